"""Synthetic rows that a party may release as public queries: generators, release modes, costs."""
