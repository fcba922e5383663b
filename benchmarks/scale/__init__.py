"""``python -m benchmarks.scale [--out DIR]``: the server's resources, and their growth.

Whole campaigns, each in a fresh process that is the server and nothing else, with its parties in
processes beside it: its processor seconds, its peak memory, the bytes each way, and the time to push
as many bytes as the packed votes through the loopback interface, right after. Ratios and slopes are
of one run. Votes are masked; each party has one made-up teacher that costs nothing; every query is
asked and gets a label. Flower's transport is left out: see ``benchmarks.masking`` and the tests for
what goes over it.
"""

from __future__ import annotations
