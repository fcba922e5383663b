"""The file under the ledger: its tables, how it is opened, and how its layout moves on."""
