"""``pate plan``: from its options to its report and picture."""
