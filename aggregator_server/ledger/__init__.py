"""The privacy ledger of a campaign: its chain, its rules, its backup and its verification."""
