"""A site's policy, and the bound in its ledger."""
