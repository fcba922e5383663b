"""Feature spaces: inputs as vectors with meaningful distances, fitted without private data."""
