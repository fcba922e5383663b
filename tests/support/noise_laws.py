"""Drawn noise against the law that it claims: pooled chi-square tests, and exact enumeration."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pate.noise.lanes import Lanes

#: Largest probability with which one test fails a correct sampler.
FALSE_ALARM = 1e-6


def weights(exponent: Callable[[int], float], reach: int) -> dict[int, float]:
    """The law P[x] ~ exp(-exponent(x)), summed directly over [-reach, reach]."""
    mass = {x: math.exp(-exponent(x)) for x in range(-reach, reach + 1)}
    total = math.fsum(mass.values())
    return {x: value / total for x, value in mass.items()}


def chi_square(drawn: NDArray[np.int64], law: dict[int, float]) -> float:
    """The p-value of the draws under the law; neighbours are pooled to 25 expected or more."""
    from scipy import stats

    counts = dict(
        zip(*(part.tolist() for part in np.unique(drawn, return_counts=True)), strict=True)
    )
    assert min(counts) >= min(law)
    assert max(counts) <= max(law)
    seen: list[int] = []
    expected: list[float] = []
    bin_seen, bin_expected = 0, 0.0
    for x in sorted(law):
        bin_seen += counts.get(x, 0)
        bin_expected += law[x] * drawn.size
        if bin_expected >= 25.0:
            seen.append(bin_seen)
            expected.append(bin_expected)
            bin_seen, bin_expected = 0, 0.0
    seen[-1] += bin_seen
    expected[-1] += bin_expected
    statistic = sum((s - e) ** 2 / e for s, e in zip(seen, expected, strict=True))
    return float(stats.chi2.sf(statistic, len(seen) - 1))


class _Path(Exception):  # noqa: N818  (not an error: the end of a branch)
    """A branch of the tree of choices that is too improbable to follow."""


class _Enumerated(Lanes):
    """Lanes whose uniform integers follow a given list of choices, then take 0."""

    def __init__(self, choices: list[tuple[int, int]], least: float) -> None:
        super().__init__(os.urandom)
        self.choices = choices
        self.used = 0
        self.ways = 1  # as likely as this path
        self.most = 1 / least if least else math.inf

    def below(self, bound: int, number: int) -> NDArray[np.int64]:
        drawn = np.zeros(number, dtype=np.int64)
        if bound == 1:
            return drawn
        for lane in range(number):
            if self.used == len(self.choices):
                self.choices.append((bound, 0))
            assert self.choices[self.used][0] == bound
            drawn[lane] = self.choices[self.used][1]
            self.used += 1
            self.ways *= bound
            if self.ways > self.most:
                raise _Path
        return drawn


def enumerate_paths(
    run: Callable[[Lanes], NDArray[np.int64]], least: float
) -> tuple[dict[int | None, Fraction], Fraction]:
    """Follow every path of ``run`` on one lane; return the mass by result, and the mass cut off."""
    found: dict[int | None, Fraction] = defaultdict(Fraction)
    cut = Fraction(0)
    choices: list[tuple[int, int]] = []
    while True:
        lanes = _Enumerated(choices, least)
        try:
            result = run(lanes)
            found[int(result[0]) if result.size else None] += Fraction(1, lanes.ways)
        except _Path:
            cut += Fraction(1, lanes.ways)
        del choices[lanes.used :]
        while choices and choices[-1][1] == choices[-1][0] - 1:
            choices.pop()
        if not choices:
            return found, cut
        choices[-1] = (choices[-1][0], choices[-1][1] + 1)
