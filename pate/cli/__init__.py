"""Commands that need no role: ``account``, ``plan`` and ``plan-neighbour``."""
