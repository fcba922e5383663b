"""``python -m benchmarks.versus``: this project and the other ways, on the same records."""
