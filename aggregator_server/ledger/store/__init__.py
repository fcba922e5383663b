"""The ledger's storage: its tables and layout, in a file or a database."""
