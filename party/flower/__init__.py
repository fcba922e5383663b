"""Everything of a party that speaks Flower: its SuperNode, and the connection to it."""
