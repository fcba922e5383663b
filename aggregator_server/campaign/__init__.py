"""A running campaign: batches of votes, their labels, and the ways to release them."""
