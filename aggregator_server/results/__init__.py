"""Results of a campaign: labels, the privacy statement, and robustness certificates."""
