"""Generators: what learns a network from rows, and what that costs.

``l1`` is the default; ``cfs`` is the paper's; ``marginals`` keeps no dependence between columns;
``uniform`` reads no data and costs nothing.
"""
