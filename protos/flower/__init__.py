"""How our messages ride in Flower's, and what the two ends of a connection tell each other."""
