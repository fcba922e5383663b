"""The identity of a party: its key, and its enrolment."""
