"""``pate-server``: its commands and their options."""
