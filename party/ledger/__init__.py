"""The party's own ledger: its answers, their cost, and the rules for further answers."""
