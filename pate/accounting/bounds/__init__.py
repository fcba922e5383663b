"""Renyi divergence of one query, from its votes (data-dependent) or without them."""
