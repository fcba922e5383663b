"""Encoding of our messages in Flower's, session headers, and the Runtime API."""
