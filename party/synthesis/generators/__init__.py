"""Generators: learn a Bayesian network from rows at a privacy cost.

``l1`` is the default; ``cfs`` is the paper's.
"""
