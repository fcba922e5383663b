"""The coordinator: runs a campaign over Flower, keeps its ledger, and hands out labels."""
