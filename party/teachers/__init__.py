"""Teachers: one model per shard, of a kind that suits the data."""
