"""Auditing: lower bounds on epsilon, measured by attacks on the shipped code."""
