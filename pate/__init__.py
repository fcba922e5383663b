"""Mathematics and shared values of federated PATE."""
