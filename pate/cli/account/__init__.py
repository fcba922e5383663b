"""``pate account``: what a file of votes costs."""
