"""Who a party is to its server: its key, and its enrolment."""
