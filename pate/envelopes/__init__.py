"""Envelopes: signed messages of a campaign in one file, for parties without a connection."""
