"""Benchmarks: whole campaigns on real data, each printing one JSON object."""
