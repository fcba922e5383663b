"""Seeded synthesis: plausible deniability of each row, and what many rows cost together."""
