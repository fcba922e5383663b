"""Results of a campaign: labels and the privacy statement."""
