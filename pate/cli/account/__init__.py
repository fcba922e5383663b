"""``pate account``: the privacy cost of a file of votes."""
