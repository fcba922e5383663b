"""Public listeners: bounded connections, and an HTTP server on top of them."""
