"""What a site agrees to, and the bound that its ledger keeps for it."""
