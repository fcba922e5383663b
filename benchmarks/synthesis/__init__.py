"""Synthetic queries: the speed of the privacy test, and the accuracy of students trained on such queries."""
