"""Feature spaces: inputs as vectors whose distances mean something, without any private data."""
