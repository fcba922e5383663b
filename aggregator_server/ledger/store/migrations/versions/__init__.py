"""One module per layout of the ledger file."""
