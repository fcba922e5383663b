"""Messages of the pate package."""
