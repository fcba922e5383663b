"""Durable storage: SQLite files, hash chains, backups, and caches of tables."""
