"""Synthetic queries: the speed of the privacy test, and what a student learns from such queries."""
