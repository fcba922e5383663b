"""``pate-server check``: what would keep this server from running a campaign, found before it tries."""
