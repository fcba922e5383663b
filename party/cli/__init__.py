"""``pate-party``: its commands and their options."""
