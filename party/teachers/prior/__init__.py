"""Teachers of tiny tables: a network that was trained on made-up tables and reads a shard at once."""
