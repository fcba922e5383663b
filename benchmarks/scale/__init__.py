"""``python -m benchmarks.scale [--out DIR]``: the server's resources, and their growth.

Whole campaigns, each with a fresh server process and separate party processes: the server's CPU seconds, peak
memory, bytes each way, and the time to send the size of the packed votes over the loopback interface right
after. Ratios and slopes are of one run. Votes are masked; each party has one synthetic teacher without cost;
every query is asked and gets a label. Flower's transport is not included.
"""

from __future__ import annotations
