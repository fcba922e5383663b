"""Exact noise from the operating system's randomness, shares of it, and seeded noise for simulation."""
