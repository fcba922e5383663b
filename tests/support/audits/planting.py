"""Plants the bugs of :mod:`tests.support.audits.bugs` in the code that ships.

It replaces functions that shipped mechanisms call: the samplers of
:class:`pate.noise.exact.SystemNoise`, the arg max of noisy counts, the events that a mechanism is
charged for, and the filter. The bits of the operating system come from a seed, so that each audit
comes out the same always.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pate.accounting.events import GeometricHistogram
from pate.accounting.filters import PrivacyFilter
from pate.accounting.gate import GateParameters
from pate.auditing import mechanism as auditing
from pate.auditing.harness import Runs
from pate.auditing.neighbours import Pair
from pate.mechanisms import Mechanism, rule
from pate.mechanisms.contract import Votes
from pate.mechanisms.rule import noisy_argmax
from pate.noise import exact as noises
from pate.noise.exact import Noise, SystemNoise
from pate.noise.lanes import Integers
from tests.support.audits import bugs
from tests.support.audits.bugs import Bug

#: Honest parties whose shares are in each sum.
HONEST = 4

_RUN = auditing.run_mechanism
_GAUSSIAN, _LAPLACE = SystemNoise.gaussian, SystemNoise.laplace
_LAPLACE_SHARE = SystemNoise.laplace_share


def seed(patch: pytest.MonkeyPatch, text: str) -> None:
    """Let the samplers take the operating system's bits from a seed."""
    bits = np.random.SFC64(list(text.encode()))

    def urandom(number: int) -> bytes:
        return bits.random_raw(-(-number // 8)).tobytes()[:number]

    patch.setattr(noises, "os", SimpleNamespace(urandom=urandom))


def run_together(patch: pytest.MonkeyPatch) -> None:
    """Make the runs of a pair that are calls of their own together, as those of other pairs.

    Their law is the same where no draws are shared by the queries of a call.
    """

    def together(
        mechanism: Mechanism, noise: Noise, queries: int, pair: Pair, world: int, runs: int
    ) -> Runs:
        return _RUN(mechanism, noise, queries, replace(pair, apart=False), world, runs)

    patch.setattr(auditing, "run_mechanism", together)


def plant(patch: pytest.MonkeyPatch, bug: Bug, mechanism: Mechanism, *, counted: bool) -> None:
    """Plant a bug. ``counted``: where noisy counts are seen as they are, two classes to a row."""
    if bug is bugs.NO_CHECK_NOISE:
        _draws(patch, lambda call, drawn: drawn * (call % 2))
    elif bug is bugs.NO_LABEL_NOISE and mechanism.name in ("confident-gnmax", "interactive-gnmax"):
        _draws(patch, lambda call, drawn: drawn * ((call + 1) % 2))
    elif bug is bugs.NO_LABEL_NOISE:
        patch.setattr(SystemNoise, "gaussian", _nothing)
    elif bug is bugs.NO_NOISE:
        patch.setattr(SystemNoise, "gaussian", _nothing)
        patch.setattr(SystemNoise, "laplace", _nothing)
        patch.setattr(SystemNoise, "laplace_share", lambda *asked: np.zeros(asked[-1], np.int64))
    elif bug is bugs.NO_GATE_NOISE:
        patch.setattr(SystemNoise, "laplace", _nothing)
    elif bug is bugs.NO_GATE:
        patch.setattr(GateParameters, "decide", _opened)
    elif bug is bugs.SMALL:
        less = Fraction(2, 3)
        patch.setattr(SystemNoise, "gaussian", lambda self, s, n: _GAUSSIAN(self, less * s, n))
        patch.setattr(SystemNoise, "laplace", lambda self, s, n: _LAPLACE(self, less * s, n))
        patch.setattr(
            SystemNoise, "laplace_share", lambda self, s, h, n: _LAPLACE_SHARE(self, less * s, h, n)
        )
    elif bug.even:
        half = Fraction(1, 2)
        patch.setattr(SystemNoise, "gaussian", lambda self, s, n: 2 * _GAUSSIAN(self, half * s, n))
        patch.setattr(SystemNoise, "laplace", lambda self, s, n: 2 * _LAPLACE(self, half * s, n))
        patch.setattr(
            SystemNoise,
            "laplace_share",
            lambda self, s, h, n: 2 * _LAPLACE_SHARE(self, half * s, h, n),
        )
    elif bug.cut is not None:
        cut = bug.cut
        patch.setattr(
            SystemNoise, "laplace", lambda self, s, n: _cut(_LAPLACE(self, s, n), cut * s)
        )
        patch.setattr(
            SystemNoise,
            "laplace_share",
            lambda self, s, h, n: _cut(_LAPLACE_SHARE(self, s, h, n), cut * s),
        )
    elif bug is bugs.SAME_CHECK:
        _draws(patch, lambda call, drawn: drawn if call % 2 else np.repeat(drawn[:1], len(drawn)))
    elif bug is bugs.ONE_SHARE:
        _draws(patch, lambda call, drawn: drawn * (call % HONEST > 0))
    elif bug is bugs.HALF_SHARES:
        _draws(patch, lambda call, drawn: drawn * (call % 2))
    elif bug is bugs.ONE_VOTE:
        charged: Any = type(mechanism).worst
        patch.setattr(
            type(mechanism),
            "worst",
            property(lambda self: tuple(map(_of_one_vote, charged.fget(self)))),
        )
    elif bug is bugs.FREE:
        skip_charges(patch)
    elif counted:
        _draws(patch, lambda _, drawn: _COUNTS[bug](drawn.reshape(-1, 2)).ravel())
    else:
        patch.setattr(
            rule,
            "noisy_argmax",
            lambda rows, noise: noisy_argmax(rows, _alike(bug, noise.reshape(rows.shape)).copy()),
        )


def _alike(bug: Bug, noise: Votes) -> Votes:
    if bug.alike is None:
        return _COUNTS[bug](noise)
    first, second = bug.alike
    made = noise.copy()
    made[:, second] = made[:, first]
    return made


def _cut(drawn: Integers, most: Fraction) -> Integers:
    return np.clip(drawn, -math.ceil(most), math.ceil(most))


def _of_one_vote(event: Any) -> Any:
    if isinstance(event, GeometricHistogram):
        return replace(event, distance=2)
    return replace(event, votes_per_unit=1)


def skip_charges(patch: pytest.MonkeyPatch) -> None:
    """Let the filter settle every second reservation at nothing."""
    settle, calls = PrivacyFilter.settle, []

    def skipping(self: PrivacyFilter, held: Any, cost: Fraction) -> None:
        calls.append(held)
        settle(self, held, cost if len(calls) % 2 else Fraction(0))

    patch.setattr(PrivacyFilter, "settle", skipping)


def _every_second(noise: Votes) -> Votes:
    kept = noise.copy()
    kept[:, 1::2] = 0
    return kept


#: From noise as it was drawn, (rows, classes), to what a bug makes of it.
_COUNTS: dict[Bug, Callable[[Votes], Votes]] = {
    bugs.ONE_DRAW: lambda noise: np.repeat(noise[:, :1], noise.shape[1], axis=1),
    bugs.SAME_DRAW: lambda noise: np.tile(noise[:1], (len(noise), 1)),
    bugs.EVERY_SECOND: _every_second,
}


def _nothing(_noise: SystemNoise, _scale: Fraction, count: int) -> Integers:
    return np.zeros(count, np.int64)


def _opened(*_: object) -> bool:
    return True


def _draws(patch: pytest.MonkeyPatch, change: Callable[[int, Integers], Integers]) -> None:
    """Change what is drawn, given the number of the call, from 0."""
    calls = 0

    def gaussian(self: SystemNoise, sigma: Fraction, count: int) -> Integers:
        nonlocal calls
        drawn = change(calls, _GAUSSIAN(self, sigma, count))
        calls += 1
        return drawn

    def laplace(self: SystemNoise, scale: Fraction, count: int) -> Integers:
        nonlocal calls
        drawn = change(calls, _LAPLACE(self, scale, count))
        calls += 1
        return drawn

    def laplace_share(self: SystemNoise, scale: Fraction, shares: int, count: int) -> Integers:
        nonlocal calls
        drawn = change(calls, _LAPLACE_SHARE(self, scale, shares, count))
        calls += 1
        return drawn

    patch.setattr(SystemNoise, "gaussian", gaussian)
    patch.setattr(SystemNoise, "laplace", laplace)
    patch.setattr(SystemNoise, "laplace_share", laplace_share)
