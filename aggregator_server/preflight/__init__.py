"""``pate-server check``: preflight checks of the configuration and environment of a campaign."""
