"""Files that keep what was committed: SQLite, hash chains, backups, and caches of tables."""
