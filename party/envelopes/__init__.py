"""Answers to envelopes: a party's whole step from a file to a file, without a connection."""
