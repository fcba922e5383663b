"""One release of synthetic rows: its plan, the policy, the ledger entry and the file."""
