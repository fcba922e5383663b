"""What a campaign chooses among."""

from __future__ import annotations

from typing import Literal

Aggregator = Literal["lnmax", "gnmax", "confident-gnmax", "interactive-gnmax", "neighbour"]

#: How votes reach the server. ``plain``: each party's as they are. ``masked``: only their sum.
Aggregation = Literal["plain", "masked"]

#: Who draws the noise. ``central``: the server. ``distributed``: the parties, a share each, so that
#: the server sees no exact sum.
NoiseSource = Literal["central", "distributed"]

#: How labels leave. ``capped``: as they are answered, under a cap that looks at no vote. ``gated``:
#: all of a batch, if a private test finds their data-dependent cost below a target.
Publish = Literal["capped", "gated"]

#: What one neighbour differs by, the weakest promise first.
Unit = Literal["record", "patient", "party"]
