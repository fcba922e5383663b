"""Requests to parties and their replies: presence, the public set, sums of votes."""
