"""Synthetic rows of a party's table under differential privacy, as a campaign's public set.

``release`` reserves, fits, writes and spends what ``plan`` has priced from ``options``; ``schema`` and
``table`` code the rows, ``l1`` and ``cfs`` learn a ``network`` of them, ``files`` writes and merges
what leaves. Only rows from ``seeds`` need the theorem of ``deniability``.
"""
