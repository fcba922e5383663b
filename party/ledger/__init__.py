"""The party's own ledger: what it answered, what that costs, and what may still be answered."""
