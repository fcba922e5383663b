"""Bugs that an audit should find, and the effect of each on the law of the output.

Tests plant each bug in the shipped code, and compare the audit's findings with the predictions of
:mod:`pate.auditing.power`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from scipy.special import gammaln

from pate.auditing import laws
from pate.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats
    from pate.auditing.neighbours import Pair
    from pate.mechanisms import Mechanism
    from pate.mechanisms.contract import Votes


@dataclass(frozen=True)
class Bug:
    """One way in which code may deviate from what the accountant charges for.

    Attributes:
        name: in plain words, stable, since JSON contains it.
        check: factor on the noise of the threshold test; 0 for none.
        label: factors on the noise of the counts, for classes with even and with odd index.
        one_draw: over which axis the noise on the counts is drawn only once.
        gate: factor on the noise of the gate's coin; 0 for none.
        ungated: whether labels are released without the gate.
        shares_missing: how many of the noise shares are left out: ``one``, or ``half`` of them.
        one_vote: whether the accountant assumes that each unit reaches one vote.
        free: whether every second charge is skipped.
    """

    name: str
    check: Fraction = Fraction(1)
    label: tuple[Fraction, Fraction] = (Fraction(1), Fraction(1))
    one_draw: Literal["classes", "queries"] | None = None
    gate: Fraction = Fraction(1)
    ungated: bool = False
    shares_missing: Literal["one", "half"] | None = None
    one_vote: bool = False
    free: bool = False


#: Most queries for which three kinds of answers are distinguished, with two kinds of rows or one.
_FEW, _MANY = 16, 64

_NO, _ONE, _SMALL = Fraction(0), Fraction(1), Fraction(2, 3)

NO_CHECK_NOISE: Final = Bug("no noise at the check", check=_NO)
NO_LABEL_NOISE: Final = Bug("no noise at the label", label=(_NO, _NO))
NO_NOISE: Final = Bug("no noise at all", check=_NO, label=(_NO, _NO), gate=_NO)
NO_GATE_NOISE: Final = Bug("no noise at the gate", gate=_NO)
NO_GATE: Final = Bug("labels leave without the gate", ungated=True)
ONE_DRAW: Final = Bug("one draw for all classes", one_draw="classes")
SAME_DRAW: Final = Bug("one draw for all queries", one_draw="queries")
EVERY_SECOND: Final = Bug("noise on every second class only", label=(_ONE, _NO))
SMALL: Final = Bug("noise 1.5 times too small", check=_SMALL, label=(_SMALL, _SMALL), gate=_SMALL)
ONE_SHARE: Final = Bug("the noise share of one party missing", shares_missing="one")
HALF_SHARES: Final = Bug("the noise shares of half the parties missing", shares_missing="half")
ONE_VOTE: Final = Bug("a unit charged as if it reached one vote", one_vote=True)
FREE: Final = Bug("every second charge skipped", free=True)

#: Bugs of mechanisms with a threshold test; of those without; of released or visible noisy counts.
_CHECKED: Final = (
    NO_CHECK_NOISE, NO_LABEL_NOISE, NO_NOISE, ONE_DRAW, SAME_DRAW, EVERY_SECOND, SMALL, ONE_VOTE, FREE,
)  # fmt: skip
_LABELLED: Final = (NO_NOISE, ONE_DRAW, SAME_DRAW, EVERY_SECOND, SMALL, ONE_VOTE, FREE)
_SHARED: Final = (
    NO_NOISE, ONE_SHARE, HALF_SHARES, ONE_DRAW, SAME_DRAW, EVERY_SECOND, SMALL, ONE_VOTE, FREE,
)  # fmt: skip
#: Bugs of a gate before a whole batch.
GATED: Final = (NO_GATE_NOISE, NO_GATE, NO_LABEL_NOISE, NO_NOISE, ONE_DRAW, SMALL, ONE_VOTE)


def bugs_of(mechanism: Mechanism) -> tuple[Bug, ...]:
    """Return the bugs that the code of a mechanism may have."""
    if isinstance(mechanism, ConfidentGNMax | InteractiveGNMax):
        return _CHECKED
    return _SHARED if mechanism.noise_inside else _LABELLED


def label_runs(mechanism: Mechanism, pair: Pair, queries: int, bug: Bug) -> Floats:
    """Return (outcomes, 2): the probabilities of a run's outcomes in the two worlds.

    An outcome is how often each of three kinds of answers occurred. Merging outcomes can only hide
    something.

    Args:
        mechanism: one that draws noise itself, and answers with labels.
        pair: the neighbours.
        queries: of a run.
        bug: in the code.
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
    if bug.one_draw == "queries":
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


def _noise(mechanism: Mechanism, factor: Fraction) -> Floats:
    if factor == 0:
        return laws.NOTHING
    if isinstance(mechanism, LNMax):
        return laws.laplace(mechanism.scale * factor)
    sigma = mechanism.sigma if isinstance(mechanism, GNMax) else mechanism.sigma2  # type: ignore[attr-defined]
    return laws.gaussian(sigma * factor)


def _passes(mechanism: Mechanism, row: Votes, expected: Votes | None, bug: Bug) -> float:
    """Return the probability that a query gets a teachers' label."""
    if not isinstance(mechanism, ConfidentGNMax | InteractiveGNMax):
        return 1.0
    top = int((row if expected is None else row - expected).max())
    law = laws.NOTHING if bug.check == 0 else laws.gaussian(mechanism.sigma1 * bug.check)
    return laws.at_least(law, mechanism.threshold - top)


def _answers(mechanism: Mechanism, row: Votes, expected: Votes | None, bug: Bug) -> Floats:
    """Return (classes + 1,) probabilities of each teachers' label, and of none."""
    passes = _passes(mechanism, row, expected, bug)
    if bug.one_draw == "classes":
        labels = np.eye(len(row))[int(row.argmax())]
    else:
        each = [_noise(mechanism, factor) for factor in bug.label]
        labels = laws.argmax(row, [each[at % 2] for at in range(len(row))])
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
    """Return the law of a run whose label noise is the same for all queries.

    Each kind of row then gets one label, of the two leading classes. Runs with an unanswered query
    are merged.
    """
    gap = laws.total(_noise(mechanism, Fraction(1)), 2)
    middle = np.arange(len(gap)) - len(gap) // 2
    worlds = []
    for world in (0, 1):
        passes, wins = 1.0, []
        for at, (row, number) in enumerate(zip(pair.rows(world, len(times)), times, strict=True)):
            passes *= _passes(mechanism, row, _expected(pair, at), bug) ** number
            first, second = sorted(np.argsort(-pair.votes[0], kind="stable")[:2].tolist())
            wins.append(middle + row[first] - row[second] >= 0)
        chances = [
            float(
                gap[np.all([win == say for win, say in zip(wins, said, strict=True)], axis=0)].sum()
            )
            for said in itertools.product((True, False), repeat=len(wins))
        ]
        worlds.append([passes * each for each in chances] + [1.0 - passes])
    return np.array(worlds).T
