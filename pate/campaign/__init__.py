"""A campaign: its specification, its roster, and its terms."""
