"""A ledger in a PostgreSQL database: its sessions, its layout, its errors."""
