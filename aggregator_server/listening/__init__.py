"""Listening where anybody may connect: bounded connections, and one HTTP server on top of them."""
