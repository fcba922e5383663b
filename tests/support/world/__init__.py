"""Campaigns for tests: of the real commands, over Flower or as forked processes."""
