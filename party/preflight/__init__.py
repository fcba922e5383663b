"""``pate-party check``: finds configuration problems before a party joins a campaign."""
