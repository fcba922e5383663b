"""The file or database under the ledger: its tables, how it is opened, how its layout moves on."""
