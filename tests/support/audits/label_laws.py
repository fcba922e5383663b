"""The exact law of a run's answers, with a bug or without, in both worlds."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from pate.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax
from tests.support.audits import laws

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats
    from pate.auditing.neighbours import Pair
    from pate.mechanisms import Mechanism
    from pate.mechanisms.contract import Votes
    from tests.support.audits.bugs import Bug

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
