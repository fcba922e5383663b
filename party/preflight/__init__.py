"""``pate-party check``: what would keep this party from taking part, found before it tries."""
