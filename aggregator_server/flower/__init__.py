"""The Flower side of the server, and the gateway in front of it."""
