"""What an audit finds, from exact laws: the least runs at which it sees each bug, and the table of them.

``python -m tests.support.audits.foretold`` prints the table of docs/proofs/audits.md.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from pate.auditing.harness import Claim
from pate.auditing.mechanism import ROWS, claimed
from pate.auditing.neighbours import cell_pairs, distinguishing_pairs
from pate.mechanisms import DistributedMechanism, Neighbour
from simulation.audit.options import AuditOptions
from simulation.audit.run import gated_of, mechanism_of
from tests.support.audits import laws
from tests.support.audits.bugs import GATED, Bug, bugs_of
from tests.support.audits.count_laws import count_laws
from tests.support.audits.label_laws import label_runs
from tests.support.audits.power import events_of, level_events, seen_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.accounting.arrays import Floats
    from pate.auditing.neighbours import Pair
    from pate.mechanisms import Mechanism
    from simulation.audit.gated import Gated
    from tests.support.audits.power import Seen

LABELLED = ("lnmax", "gnmax", "confident-gnmax", "interactive-gnmax")
COUNTED = ("distributed-gnmax", "neighbour", "distributed-neighbour")
NAMES = (*LABELLED, *COUNTED, "gated-gnmax")
CONFIDENCE, DELTA, QUERIES = 0.999, 1e-2, 2
RUNS = {**dict.fromkeys(LABELLED, 20_000), **dict.fromkeys(COUNTED, 100_000), "gated-gnmax": 1_000}
#: The noise of a gate's coin.
_COIN = 2**20


@cache
def foretold(name: str) -> tuple[Seen, ...]:
    """Return for each bug what an audit with the default options finds."""
    if name == "gated-gnmax":
        gated = gated_of(AuditOptions())
        claim = Claim(gated.gate.epsilon(DELTA), DELTA)
        return tuple(
            seen_from(
                bug.name,
                {pair.name: events_of(gated_outcomes(gated, pair, bug)) for pair in gated.pairs},
                claim,
                runs=RUNS[name],
                confidence=CONFIDENCE,
            )
            for bug in GATED
        )
    mechanism = mechanism_of(name, AuditOptions())
    return foresee(mechanism, QUERIES, RUNS[name], DELTA, CONFIDENCE, 2)


def foresee(
    mechanism: Mechanism,  # the one under audit
    queries: int,  # of a run
    runs: int,  # that count, in each world
    delta: float,  # at which epsilon is claimed
    confidence: float,  # of the audit
    votes: int,  # k
    *,
    pairs: Sequence[Pair] | None = None,  # neighbours; default: those of an audit
    bugs: Sequence[Bug] | None = None,  # default: those that code of such a mechanism may have
) -> tuple[Seen, ...]:
    """Return for each bug what an audit finds."""
    counted = isinstance(mechanism, Neighbour | DistributedMechanism)
    if pairs is None:
        pairs = cell_pairs(votes) if counted else distinguishing_pairs(mechanism, votes, queries)

    def events(pair: Pair, bug: Bug) -> Floats:
        if not isinstance(mechanism, Neighbour | DistributedMechanism):
            return events_of(label_runs(mechanism, pair, queries, bug))
        return np.vstack([level_events(each) for each in count_laws(mechanism, pair, queries, bug)])

    return tuple(
        seen_from(
            bug.name,
            {pair.name: events(pair, bug) for pair in pairs},
            claimed_with(bug, mechanism, queries, delta),
            runs=runs,
            confidence=confidence,
            apart=[pair.apart for pair in pairs],
            together=max(1, ROWS // queries) if bug.of_batch and not counted else 1,
        )
        for bug in (bugs_of(mechanism) if bugs is None else bugs)
    )


def claimed_with(bug: Bug, mechanism: Mechanism, queries: int, delta: float) -> Claim:
    """Return the claim of an accountant with that bug for ``queries`` answers."""
    if bug.one_vote:
        mechanism = replace(mechanism, votes_per_unit=1)  # type: ignore[type-var]  # a dataclass
    return claimed(mechanism, -(-queries // 2) if bug.free else queries, delta)


def gated_outcomes(gated: Gated, pair: Pair, bug: Bug) -> Floats:
    """Return (outcomes, 2) probabilities of the outcomes of a gated batch in the two worlds."""
    from scipy import stats

    mechanism = gated.mechanism
    judge = replace(mechanism, votes_per_unit=1) if bug.one_vote else mechanism
    still = bug.label[0] == 0 or bug.one_draw == "classes"
    noise = laws.NOTHING if still else laws.gaussian(mechanism.sigma * bug.label[0])
    worlds = []
    for world in (0, 1):
        rows = gated.rows(pair, world)
        opens = _opens(gated, gated.distance(rows, judge), bug)
        probe, other = (float(laws.argmax(rows[at], [noise, noise])[0]) for at in (0, 1))
        times = stats.binom.pmf(np.arange(gated.queries), gated.queries - 1, other)
        opened = opens * np.outer([probe, 1.0 - probe], times).ravel()
        worlds.append(np.append(opened, 1.0 - opens))
    return np.array(worlds).T


def _opens(gated: Gated, distance: int, bug: Bug) -> float:
    if bug.ungated:
        return 1.0
    chance = gated.gate.opens(distance)
    if bug.gate == 1 or distance < 0:
        return chance
    # The coin's threshold at that distance, from its probability, then the probability with other noise.
    level = -_COIN * math.log(2 * chance) if chance < 0.5 else _COIN * math.log(2 - 2 * chance)
    if bug.gate == 0:
        return float(level <= 0)
    level /= float(bug.gate)
    tail = math.exp(-abs(level) / _COIN) / 2
    return tail if level > 0 else 1.0 - tail


def table() -> str:
    """Return the table in Markdown: from how many runs on; in brackets if that is too many."""
    bugs = list(dict.fromkeys(each.bug for name in NAMES for each in foretold(name)))
    lines = [
        "|bug|" + "|".join(f"`{name}`" for name in NAMES) + "|",
        "|---" * (len(NAMES) + 1) + "|",
    ]
    lines.append("|*runs of an audit*|" + "|".join(f"*{RUNS[name]:,}*" for name in NAMES) + "|")
    for bug in bugs:
        cells = []
        for name in NAMES:
            said = next((each for each in foretold(name) if each.bug == bug), None)
            if said is None:
                cells.append("")
            elif said.seen:
                cells.append(f"{said.runs:,}")
            else:
                cells.append("**no**" if said.runs is None else f"**no** ({said.runs:,})")
        lines.append(f"|{bug}|" + "|".join(cells) + "|")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
