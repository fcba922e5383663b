"""Seeded synthesis: plausible deniability of each row, and the cost of many rows."""
