"""Many campaigns one after the other with random faults: nothing may leak, no ledger may break."""
