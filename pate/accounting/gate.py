"""The gate: labels of a batch are released only if a private test finds their cost small.

The *distance* of votes D is the largest d with F_d(D) <= target, F_d being the worst cost within d
units, or -1. One unit moves it by at most 1, so a coin is all the noise needed: the gate opens with
probability p_distance, p_{-1} = 0, p_0 the failure probability, and each next one the largest that
two Renyi orders allow. The output is the labels, or the fact that the gate stayed closed: (order,
target + test)-RDP but for an event of probability ``failure``, which is part of delta.

All parameters are fixed from public information before the votes are seen: see
:func:`least_for_public_proxy`. A gate cannot help once labels have been released.

Source: own; propose-test-release is of Dwork and Lei 2009, its use for data-dependent costs of
Redberg, Zhu, Wang 2023 (arXiv 2301.00301), coins that grow as fast as they may of Desfontaines,
Voss, Gipson, Mandayam 2022 (arXiv 2006.03684). Proof: docs/proofs/gate.md, sections 3 to 5.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Self

from pate.accounting.arrays import check_orders, check_positive
from pate.accounting.conversion import check_delta, epsilon_from_rdp
from pate.errors import AccountingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.accounting.nearby import Batch
    from pate.noise.exact import Noise

#: A coin is whether discrete Laplace noise of this scale reaches a threshold: its tails are
#: closed formulas, and a step of the threshold changes a probability by one part in a million.
_SCALE: Final = 2**20
#: ln(1 + exp(-1/scale)).
_LOG_NORMALISER: Final = math.log1p(math.exp(-1.0 / _SCALE))
#: The threshold at which a coin fails with probability below 1e-12: the last that is used.
_LOWEST: Final = -28 * _SCALE
_MOST_LEVELS: Final = 4096
#: Shares of the divergence that a chosen gate may give to its test.
_SHARES: Final = (0.05, 0.11, 0.2, 0.33)
#: The probability with which a chosen gate opens.
_OPENS: Final = 0.95
#: More to spare than this is not looked for.
_MOST_SPARE: Final = 200
_ROUNDING: Final = 2.0**-44


@dataclass(frozen=True, kw_only=True)
class GateParameters:
    """The parameters of a gate, fixed before any vote was seen. Public.

    >>> gate = GateParameters(order=10.0, target=0.85, test=0.15, failure=1e-5)
    >>> round(gate.epsilon(1e-5), 3)
    1.918
    >>> [round(gate.opens(distance), 3) for distance in (-1, 0, 5, 10, 15, 20, 25)]
    [0.0, 0.0, 0.002, 0.043, 0.273, 0.807, 1.0]
    """

    order: float  # the one Renyi order at which costs are counted
    target: float  # largest cost of the labels with which the gate may open, nats
    test: float  # additional cost of the test, nats
    failure: float  # probability of opening with distance 0, that is when one unit decides

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", float(check_orders([self.order])[0]))
        object.__setattr__(self, "target", check_positive(self.target, "target"))
        object.__setattr__(self, "test", check_positive(self.test, "test"))
        if not check_delta(self.failure) < 0.25:
            raise AccountingError(f"failure must be below 1/4, got {self.failure}")
        if -math.log1p(-self.failure) > self.rdp:
            raise AccountingError(
                f"a gate that costs {self.rdp} must fail less than {self.failure}"
            )
        if self.opens(self.levels - 1) < 0.5:
            raise AccountingError("this gate would never open: its test may cost too little")

    @classmethod
    def worth(cls, epsilon: float, delta: float, *, order: float, share: float) -> Self:
        """Return the gate at ``order`` that converts to ``epsilon``, rounded down.

        The epsilon is of labels and test together; ``share`` is what of the divergence the test may cost.

        >>> gate = GateParameters.worth(2.0, 1e-5, order=10.0, share=0.15)
        >>> gate.epsilon(1e-5) <= 2.0
        True
        """
        (order,) = check_orders([order])
        check_positive(epsilon, "epsilon")
        if not 0.0 < share < 1.0:
            raise AccountingError(f"the share of the test must lie between 0 and 1, got {share}")
        excess = order - 1.0
        rdp = epsilon - math.log(excess / order) + math.log(check_delta(delta) * order) / excess
        rdp *= 1.0 - 1e-9  # rounding of the conversion
        if not rdp > 0.0:
            raise AccountingError(
                f"epsilon {epsilon:g} at delta {delta:g} leaves nothing at order {order:g}: use a "
                "larger order"
            )
        made = cls(order=order, target=(1.0 - share) * rdp, test=share * rdp, failure=delta)
        if made.epsilon(delta) > epsilon:
            raise AccountingError(f"no gate at order {order:g} is worth as little as {epsilon:g}")
        return made

    @property
    def rdp(self) -> float:
        """Renyi divergence of labels and test at the order, but for probability ``failure``.

        Costs of other releases at this order add to it; of several gates the failures add, too.
        """
        return self.target + self.test

    @property
    def levels(self) -> int:
        """Distances from this on are taken for the one before it."""
        return len(self._thresholds)

    def opens(self, distance: int) -> float:
        """Return the probability that the gate opens."""
        if distance < 0:
            return 0.0
        return math.exp(_log_coin(self._thresholds[min(distance, self.levels - 1)])[0])

    def distance_to_open(self, probability: float) -> int | None:
        """Return the least distance with at least this probability, None if there is none."""
        enough = (level for level in range(self.levels) if self.opens(level) >= probability)
        return next(enough, None)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of (epsilon, delta)-DP of the whole gated release.

        ``delta`` is all there is: the failure is within it, and needs no share of its own, since
        where the gate may fail the labels are not there to be paid for.

        Proof: docs/proofs/gate.md, section 4.
        """
        made = epsilon_from_rdp([self.order], [self.rdp], delta)
        failing = self.opens(0)
        # D at distance 0: opening is lost whole, staying closed is compared with neighbours.
        failing += max(0.0, 1.0 - failing - math.exp(made) * (1.0 - self.opens(1)))
        # D beyond the target: it stays closed, a neighbour at distance 0 may open.
        failing = max(failing, 1.0 - math.exp(made) * (1.0 - self.opens(0)))
        if failing > delta:
            raise AccountingError(f"this gate fails with probability {failing}: delta must be more")
        return made

    def decide(self, batch: Batch, noise: Noise) -> bool:
        """Toss the coin that decides whether the labels may be released: once per batch."""
        drawn = int(noise.laplace(Fraction(_SCALE), 1)[0])
        distance = batch.distance_to(self.target, self.order, farthest=self.levels - 1)
        return distance >= 0 and drawn >= self._thresholds[distance]

    @property
    def _thresholds(self) -> tuple[int, ...]:
        return _coins(self.order, self.target, self.test, self.failure)


@dataclass(frozen=True)
class Choice:
    """A gate that was chosen on public grounds."""

    gate: GateParameters  # its parameters
    # by how many units the votes may be worse than the proxy's, for the gate to open with the probability
    # that was asked for, up to 200. Negative: not even the proxy's votes would do.
    spare: int


def least_for_public_proxy(proxy: Batch, *, delta: float) -> Choice | None:
    """Return the gate of least epsilon that would open for the PUBLIC ``proxy``, to half a percent.

    What is chosen by looking at private votes is itself about them, and would break the promise.
    None if even a gate of epsilon 100 would stay closed.
    """
    low, high, best = 0.01, 100.0, None
    while high > 1.005 * low:
        middle = math.sqrt(low * high)
        found = _best_of(proxy, middle, delta)
        if found is not None and found.spare >= 0:
            best, high = found, middle
        else:
            low = middle
    return best


def _best_of(proxy: Batch, epsilon: float, delta: float) -> Choice | None:
    """Return the gate of at most ``epsilon`` that has the most to spare for the proxy."""
    found: list[Choice] = []
    for order in proxy.orders.tolist():
        for gate in _gates_worth(epsilon, delta, order):
            needed = gate.distance_to_open(_OPENS)
            if needed is not None:
                reached = proxy.distance_to(gate.target, order, farthest=needed + _MOST_SPARE)
                found.append(Choice(gate, reached - needed))
    return max(found, key=lambda choice: choice.spare, default=None)


def _gates_worth(epsilon: float, delta: float, order: float) -> Sequence[GateParameters]:
    """Return gates of at most that epsilon with different costs of their test."""
    gates: list[GateParameters] = []
    for share in _SHARES:
        with contextlib.suppress(AccountingError):  # too cheap a test for a gate that opens
            gates.append(GateParameters.worth(epsilon, delta, order=order, share=share))
    return gates


@lru_cache(maxsize=256)
def _coins(order: float, target: float, test: float, failure: float) -> tuple[int, ...]:
    """Return the thresholds of the coins of distances 0, 1, ...; the lower, the sooner it opens."""
    first = math.ceil(_SCALE * (-math.log(failure) - _LOG_NORMALISER)) + 1
    made = [first]
    while made[-1] > _LOWEST and len(made) < _MOST_LEVELS:
        # What is allowed is an interval with made[-1] in it: both sides are convex in p.
        low, high = _LOWEST, made[-1]
        while low < high:
            middle = (low + high) // 2
            if _allowed(made[-1], middle, order, target, test):
                high = middle
            else:
                low = middle + 1
        if high == made[-1]:
            break
        made.append(high)
    return tuple(made)


def _allowed(threshold: int, lower: int, order: float, target: float, test: float) -> bool:
    """Return whether coins of neighbours may have these thresholds, whichever of them is D's."""
    this, other = _log_coin(threshold), _log_coin(lower)
    excess = order - 1.0
    size = order * (abs(this[0]) + abs(this[1]) + abs(other[0]) + abs(other[1])) + excess * target
    limit = excess * test - _ROUNDING * (1.0 + size)
    for (opened, closed), (opened_other, closed_other) in ((this, other), (other, this)):
        open_part = order * opened - excess * opened_other
        closed_part = order * closed - excess * closed_other - excess * target
        larger = max(open_part, closed_part)
        if larger + math.log1p(math.exp(-abs(open_part - closed_part))) > limit:
            return False
    return True


def _log_coin(threshold: int) -> tuple[float, float]:
    """Return ln of the probability that the noise reaches ``threshold``, and that it does not."""
    if threshold >= 1:
        reached = -threshold / _SCALE - _LOG_NORMALISER
        return reached, math.log1p(-math.exp(reached))
    missed = -(1 - threshold) / _SCALE - _LOG_NORMALISER
    return math.log1p(-math.exp(missed)), missed
