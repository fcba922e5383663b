"""Audit of a gated batch: repeated runs of the same votes, their gate, and the labels behind it.

The target is a gated campaign between its charge and its release, from votes to labels or none; the
ledger ensures that there is only one attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Final

import numpy as np

from aggregator_server.campaign.labelling import batch_of, bound_of, labels_behind
from pate.accounting.bounds.theorem6_plus import Table
from pate.accounting.gate import GateParameters
from pate.accounting.units import Neighbours
from pate.auditing.harness import Audit, Claim, Progress, Subject, audit
from pate.auditing.neighbours import Pair
from pate.errors import UsageError

if TYPE_CHECKING:
    from pate.accounting.nearby import Bound
    from pate.auditing.harness import Runs
    from pate.mechanisms import GNMax
    from pate.mechanisms.contract import Votes
    from pate.noise.exact import Noise

#: The gate's order, and the share of the divergence that its test may cost.
_ORDER, _SHARE = 6.0, 0.3
_STEP: Final = 50


@dataclass(frozen=True)
class Gated:
    """A gate, the mechanism behind it, and a batch that has one probe and many like queries."""

    mechanism: GNMax
    queries: int
    epsilon: float  # of the gate at ``delta``
    delta: float

    def __post_init__(self) -> None:
        if self.queries < 2:
            raise UsageError("a gated batch under audit has two queries or more")

    @cached_property
    def gate(self) -> GateParameters:
        """The gate, as a campaign of that epsilon would have it."""
        return GateParameters.worth(self.epsilon, self.delta, order=_ORDER, share=_SHARE)

    def rows(self, pair: Pair, world: int) -> Votes:
        """Return (queries, classes) votes: the first row of the pair once, then the second."""
        given = pair.neighbour if world else pair.votes
        return np.repeat(given, [1, self.queries - 1], axis=0)

    def distance(self, rows: Votes, mechanism: GNMax | None = None) -> int:
        """Return the distance of the votes from a closed gate, in units."""
        judge = self.mechanism if mechanism is None else mechanism
        batch = batch_of(rows, judge, self.gate.order, _bound(judge))
        return batch.distance_to(self.gate.target, self.gate.order, self.gate.levels - 1)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Neighbours on both sides of the gate, of its coin, and of a tie behind it."""
        reach = self.mechanism.votes_per_unit
        floor = round(12 * self.mechanism.sigma)
        leads = range(0, floor + 2 * reach, 2 * reach)
        at = [self.distance(self.rows(_pair(lead, lead, reach, floor, ""), 0)) for lead in leads]
        coin = [self.gate.opens(distance) for distance in range(self.gate.levels)]
        even = next(level for level, chance in enumerate(coin) if chance >= 0.5)
        clear = leads[-1]
        made = [
            _pair(reach, reach, reach, floor, "closed gate, all winners change"),
            _pair(reach, clear, reach, floor, "open gate, one winner changes"),
        ]
        for level, name in (
            (even, "the gate rather opens or not"),
            (0, "the gate may open or never"),
        ):
            lead = next((lead for lead, d in zip(leads, at, strict=True) if d >= level), None)
            if lead is not None:
                made.append(_pair(lead, lead, reach, floor, name))
        return tuple(made)

    def run(self, noise: Noise, pair: Pair, world: int, runs: int) -> Runs:
        """Return (runs, 5) counts: closed; labels of the probe; labels of the others."""
        rows = self.rows(pair, world)
        batch = batch_of(rows, self.mechanism, self.gate.order, _bound(self.mechanism))
        counts = np.zeros((runs, 5), np.int64)
        for row in counts:
            labels = labels_behind(self.gate, batch, rows, self.mechanism, noise)
            if labels is None:
                row[0] = 1
                continue
            row[1:3] = np.bincount([int(labels[0] or 0)], minlength=2)
            row[3:5] = np.bincount([int(each or 0) for each in labels[1:]], minlength=2)
        return counts


@lru_cache(maxsize=8)
def _bound(mechanism: GNMax) -> Bound:
    return bound_of(mechanism, _ORDER, Table.build)


def _pair(probe: int, others: int, reach: int, floor: int, name: str) -> Pair:
    given = np.array([[floor + lead, floor] for lead in (probe, others)], np.int64)
    return Pair(given, given + np.array([-reach, reach]), None, name)


def audit_gated(
    gated: Gated,  # the target; its claim is that of the gate
    noise: Noise,
    *,
    runs: int,  # batches that count, in each of two worlds
    confidence: float,
    progress: Progress = lambda *_: None,  # called with runs done and runs in all
) -> Audit:
    """Attack a gate and the labels behind it."""
    unit = Neighbours(gated.mechanism.votes_per_unit)
    subject = Subject(
        name=f"gated {gated.mechanism.name}",
        kind="gated",
        claim=Claim(gated.gate.epsilon(gated.delta), gated.delta),
        pairs=gated.pairs,
        sample=partial(gated.run, noise),
        queries=gated.queries,
        step=_STEP,
        unit=f"a unit with {unit.votes} of the votes of a query",
        adjacency=unit.in_words,
    )
    return audit(subject, runs=runs, confidence=confidence, progress=progress)
