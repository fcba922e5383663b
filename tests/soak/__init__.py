"""Soak test: many campaigns with random faults, checked for leaks and damaged ledgers."""
