"""Everything of the server that speaks Flower, and the gateway in front of it."""
