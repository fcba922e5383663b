"""The methods of the rows."""
