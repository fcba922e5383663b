"""The Flower side of a party: its SuperNode, and the connection to it."""
