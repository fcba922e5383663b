"""What an audit finds, from exact laws: the least runs at which it sees each bug, and the table of them.

``python -m tests.support.audits.foretold`` prints the table of docs/proofs/audits.md.
"""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from pate.accounting.arrays import Floats
from pate.auditing.harness import Claim
from pate.auditing.mechanism import ROWS, claimed
from pate.auditing.neighbours import Pair, cell_pairs, distinguishing_pairs
from pate.mechanisms import (
    ConfidentGNMax,
    DistributedMechanism,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Mechanism,
    Neighbour,
)
from pate.mechanisms.contract import Votes
from simulation.audit.options import AuditOptions
from simulation.audit.run import gated_of, mechanism_of
from tests.support.audits import laws
from tests.support.audits.bugs import GATED, Bug, bugs_of
from tests.support.audits.count_laws import count_laws
from tests.support.audits.power import events_of, level_events, seen_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.accounting.arrays import Floats
    from pate.auditing.neighbours import Pair
    from pate.mechanisms import Mechanism
    from simulation.audit.campaigns import Gated
    from tests.support.audits.power import Seen

#: Most queries for which three kinds of answers are distinguished, with two kinds of rows or one.
_FEW, _MANY = 16, 64


def label_runs(mechanism: Mechanism, pair: Pair, queries: int, bug: Bug) -> Floats:
    """Return (outcomes, 2): the probabilities of a run's outcomes in the two worlds.

    An outcome is how often each of three kinds of answers occurred. Merging outcomes can only hide
    something.

    ``mechanism``: one that draws noise itself, and answers with labels; ``pair``: the neighbours;
    ``queries``: of a run; ``bug``: in the code.
    """
    rows = len(pair.votes)
    times = [len(range(row, queries, rows)) for row in range(rows)]
    answers = [
        [
            _answers(mechanism, pair.rows(world, rows)[row], _expected(pair, row), bug)
            for world in (0, 1)
        ]
        for row in range(rows)
    ]
    if bug.of_batch:
        return _same_draw(mechanism, pair, times, bug)
    if rows > 1 and queries > _MANY:  # too many outcomes: the other rows are ignored
        answers, times = answers[:1], times[:1]
    most = 3 if queries <= (_FEW if len(times) > 1 else _MANY) else 2
    parts = [
        _repeated(_fewest(np.array(answer).T, most), number)
        for answer, number in zip(answers, times, strict=True)
    ]
    table = parts[0]
    for part in parts[1:]:
        table = (table[:, None, :] * part[None, :, :]).reshape(-1, 2)
    return table


def _expected(pair: Pair, row: int) -> Votes | None:
    return None if pair.prediction is None else pair.prediction[row]


def _noise(mechanism: Mechanism, factor: Fraction, bug: Bug) -> Floats:
    if factor == 0:
        return laws.NOTHING
    if bug.even:
        return laws.stretched(_noise(mechanism, factor / 2, replace(bug, even=False)), 2)
    if isinstance(mechanism, LNMax):
        return laws.laplace(mechanism.scale * factor)
    sigma = mechanism.sigma if isinstance(mechanism, GNMax) else mechanism.sigma2  # type: ignore[attr-defined]
    return laws.gaussian(sigma * factor)


def _passes(mechanism: Mechanism, row: Votes, expected: Votes | None, bug: Bug) -> float:
    """Return the probability that a query gets a teachers' label."""
    if not isinstance(mechanism, ConfidentGNMax | InteractiveGNMax):
        return 1.0
    top = _top(row, expected)
    return laws.at_least(_check_noise(mechanism, bug), mechanism.threshold - top)


def _check_noise(mechanism: ConfidentGNMax | InteractiveGNMax, bug: Bug) -> Floats:
    if bug.check == 0:
        return laws.NOTHING
    if bug.even:
        return laws.stretched(laws.gaussian(mechanism.sigma1 * bug.check / 2), 2)
    return laws.gaussian(mechanism.sigma1 * bug.check)


def _top(row: Votes, expected: Votes | None) -> int:
    return int((row if expected is None else row - expected).max())


def _answers(mechanism: Mechanism, row: Votes, expected: Votes | None, bug: Bug) -> Floats:
    """Return (classes + 1,) probabilities of each teachers' label, and of none."""
    passes = _passes(mechanism, row, expected, bug)
    if bug.one_draw == "classes":
        labels = np.eye(len(row))[int(row.argmax())]
    else:
        each = [_noise(mechanism, factor, bug) for factor in bug.label]
        # Of two classes with the same noise the one with fewer votes never wins.
        rival = None if bug.alike is None else max(bug.alike, key=lambda at: (-row[at], at))
        free = [at for at in range(len(row)) if at != rival]
        labels = np.zeros(len(row))
        labels[free] = laws.argmax(row[free], [each[at % 2] for at in free])
    answers: Floats = np.append(passes * labels, 1.0 - passes)
    return answers


def _fewest(chances: Floats, most: int) -> Floats:
    """Return (most, 2): the likeliest kinds, and the others as one."""
    order = np.argsort(-chances.sum(axis=1), kind="stable")
    chances = chances[order]
    kept = np.vstack([chances[: most - 1], chances[most - 1 :].sum(axis=0)])
    seen: Floats = kept[kept.sum(axis=1) > 1e-15]
    return seen


def _repeated(chances: Floats, times: int) -> Floats:
    """Return (outcomes, 2) probabilities of how often each kind occurs in ``times`` answers."""
    logs = np.log(np.maximum(chances, 1e-300))
    counts = _splits(times, len(chances))
    ways = gammaln(times + 1) - gammaln(counts + 1).sum(axis=1)
    made: Floats = np.exp(ways[:, None] + counts @ logs)
    return made


@cache
def _splits(total: int, parts: int) -> Floats:
    """Return (splits, parts): all ways to split ``total`` answers over up to 3 kinds."""
    if parts == 1:
        return np.array([[float(total)]])
    if parts == 2:
        first = np.arange(total + 1.0)
        return np.stack([first, total - first], axis=1)
    one, two = np.indices((total + 1, total + 1)).reshape(2, -1)
    inside = one + two <= total
    return np.stack([one, two, total - one - two], axis=1)[inside].astype(np.float64)


def _same_draw(mechanism: Mechanism, pair: Pair, times: list[int], bug: Bug) -> Floats:
    """Return the law of a run whose noise, of the check or of the labels, is the same for all queries.

    Of the check: which kinds of rows pass; labels are ignored. Of the labels: each kind of row gets one
    label, of its two leading classes, and runs with an unanswered query are merged.
    """
    worlds = []
    for world in (0, 1):
        rows = pair.rows(world, len(times))
        if bug.one_draw == "checks":
            assert isinstance(mechanism, ConfidentGNMax | InteractiveGNMax)
            law = _check_noise(mechanism, bug)
            tops = [_top(row, _expected(pair, at)) for at, row in enumerate(rows)]
            worlds.append(_patterns(law, [mechanism.threshold - top for top in tops]))
            continue
        passes, levels = 1.0, dict[tuple[int, ...], list[int]]()
        gap = laws.total(_noise(mechanism, Fraction(1), bug), 2)
        for at, (row, number) in enumerate(zip(rows, times, strict=True)):
            passes *= _passes(mechanism, row, _expected(pair, at), bug) ** number
            # Other classes have other draws, of which no two couples of a pair share one.
            couple = sorted(np.argsort(-pair.votes[at], kind="stable")[:2].tolist())
            levels.setdefault(tuple(couple), []).append(int(row[couple[1]] - row[couple[0]]))
        chances = np.ones(1)
        for level in levels.values():
            chances = np.outer(chances, _patterns(gap, level)).ravel()
        worlds.append(np.append(passes * chances, 1.0 - passes))
    return np.array(worlds).T


def _patterns(law: Floats, levels: list[int]) -> Floats:
    """Return (2^levels,) the chances that one draw reaches some of the levels and no other."""
    middle = np.arange(len(law)) - len(law) // 2
    reached = [middle >= level for level in levels]
    return np.array(
        [
            law[np.all([hit == say for hit, say in zip(reached, said, strict=True)], axis=0)].sum()
            for said in itertools.product((True, False), repeat=len(levels))
        ]
    )


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
