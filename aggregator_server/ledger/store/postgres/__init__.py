"""A ledger in a PostgreSQL database: its address, its sessions, its layout, what its server says."""
