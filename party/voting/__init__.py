"""How a party answers: its records or teachers vote, and votes are checked, masked and stored."""
