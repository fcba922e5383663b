"""What a campaign is: its specification, its roster, and the terms that follow from both."""
