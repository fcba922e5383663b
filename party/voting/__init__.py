"""Voting of a party: its records or teachers vote, and votes are checked, masked and stored."""
