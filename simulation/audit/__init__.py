"""``pate audit``: from its options to the campaigns that it attacks."""
