"""The aggregation server: runs a campaign over Flower, keeps its ledger, and distributes labels."""
