"""Expected utility and privacy cost of a campaign, before any training."""
