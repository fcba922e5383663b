"""The data sets of the papers' rows, read and split."""
