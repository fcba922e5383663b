"""Campaigns by envelope: requests leave, and replies come, as files in two folders."""
