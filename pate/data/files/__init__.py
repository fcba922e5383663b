"""Formats of the files that hold records."""
