"""What a campaign publishes: labels, the privacy statement, and robustness certificates."""
