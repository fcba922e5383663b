"""A campaign as it runs: batches of votes, their labels, and the ways to release them."""
