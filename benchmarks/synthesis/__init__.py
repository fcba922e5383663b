"""Synthetic queries: the accuracy of students trained on them."""
