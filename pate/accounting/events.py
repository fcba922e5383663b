"""Events: immutable records of what a mechanism released. The docstrings are the specification.

*Adjacency, votes changed*: two neighbouring data sets differ by one unit (a record, a patient or a
party). A unit reaches at most ``votes_per_unit`` = k teachers, and every teacher still votes, so of
a query's histogram at most k votes move from some classes to others.

*Noise*: the laws of :mod:`pate.noise.exact`, exactly. ``sigma``, ``scale`` and ``share`` are in votes.

*Cost*: ``rho`` is the zCDP parameter, an exact fraction; costs add over adaptively chosen queries
(Bun and Steinke 2016, arXiv 1605.02065). No cost depends on the votes. The proofs are in
``docs/proofs/noise.md`` and ``discrete-gaussian.md``.

Ledgers store the text form of events, so the meaning of a kind never changes. A new meaning is a
new kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from pate.errors import UsageError
from pate.exact import TextForm
from pate.noise.exact import check_scale
from pate.noise.share_laws import GeometricShares
from pate.noise.shares import check_parties, check_share, ripple

#: Largest accepted number of votes of one unit; more is a mistake.
_MOST_VOTES = 2**31
#: Largest accepted squared L2 distance of neighbours.
_MOST_SQUARED = 2**80

#: Largest order, or cost in nats, of a gate: more is a mistake.
_MOST_NATS = 10**6
_LONGEST_TEXT = 100


def check_votes_per_unit(votes: int, name: str = "votes_per_unit") -> int:
    """Return ``votes`` if a unit can move that many, else raise UsageError."""
    if isinstance(votes, bool) or not isinstance(votes, int) or not 1 <= votes <= _MOST_VOTES:
        raise UsageError(f"{name} must be a whole number from 1 to {_MOST_VOTES}, got {votes!r}")
    return votes


class _Text(TextForm):
    tag: ClassVar[str] = "event"


class _Concentrated(_Text):
    """An event that costs rho at each order, and no less at a high one."""

    @property
    def rho(self) -> Fraction:
        """The zCDP parameter, exact."""
        raise NotImplementedError


class _Pure(_Text):
    """An event that is e0-DP at delta 0.

    Source: pure DP to zCDP, Bun and Steinke 2016, Proposition 1.4.
    """

    @property
    def epsilon(self) -> Fraction:
        """The pure-DP parameter e0, exact."""
        raise NotImplementedError

    @property
    def rho(self) -> Fraction:
        """e0^2 / 2."""
        return self.epsilon**2 / 2


@dataclass(frozen=True)
class _GaussianEvent(_Concentrated):
    sigma: Fraction
    votes_per_unit: int

    name: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", check_scale(self.sigma, "sigma"))
        check_votes_per_unit(self.votes_per_unit)


@dataclass(frozen=True)
class GaussianThreshold(_GaussianEvent):
    """One bit was released: whether max_j n_j + Z >= T, with Z of N_Z(0, sigma^2).

    The same for max_j (n_j - r_j) with integers r that follow from public values. The maximum of
    integers is an integer, and moves by at most k: each coordinate moves by at most k, and a
    maximum is 1-Lipschitz in the largest coordinate. The bit is post-processing of the noisy
    maximum. The cost does not depend on the threshold T.

    rho = k^2 / (2 sigma^2).

    Attributes:
        sigma: parameter of the noise, in votes.
        votes_per_unit: k.

    Raises:
        UsageError: for a sigma or k that makes no sense.

    Source: Canonne, Kamath, Steinke 2020, Theorem 4.
    """

    name: ClassVar[str] = "gaussian-threshold"

    @property
    def rho(self) -> Fraction:
        """k^2 / (2 sigma^2)."""
        return Fraction(self.votes_per_unit**2) / (2 * self.sigma**2)


@dataclass(frozen=True)
class GaussianMax(_GaussianEvent):
    """A label was released: argmax_j (n_j + Z_j), with independent Z_j of N_Z(0, sigma^2).

    The label is post-processing of the noisy histogram. A histogram moves by at most
    k * sqrt(2) in l2: the displacement is convex in who moves where, so it is largest when all
    k votes go from one class to one other. How ties are broken does not matter.

    rho = 2 k^2 / (2 sigma^2) = k^2 / sigma^2.

    Attributes:
        sigma: parameter of the noise, in votes.
        votes_per_unit: k.

    Raises:
        UsageError: for a sigma or k that makes no sense.

    Source: Papernot et al. 2018, Proposition 8, with the noise of Canonne, Kamath, Steinke 2020,
    Theorem 14.
    """

    name: ClassVar[str] = "gaussian-max"

    @property
    def rho(self) -> Fraction:
        """k^2 / sigma^2."""
        return Fraction(self.votes_per_unit**2) / self.sigma**2


@dataclass(frozen=True)
class LaplaceMax(_Pure):
    """A label was released: argmax_j (n_j + Z_j), with independent Z_j, P[z] ~ exp(-|z|/scale).

    A histogram moves by at most 2k in l1, so the noisy histogram, and the label with it, is
    e0-DP with e0 = 2k / scale. The papers write gamma for 1/scale.

    rho = e0^2 / 2.

    Attributes:
        scale: parameter of the noise, in votes.
        votes_per_unit: k.

    Raises:
        UsageError: for a scale or k that makes no sense.

    Source: Papernot et al. 2017, Theorem 2; pure DP to zCDP: Bun and
    Steinke 2016, Proposition 1.4.
    """

    scale: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "laplace-max"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_scale(self.scale, "scale"))
        check_votes_per_unit(self.votes_per_unit)

    @property
    def epsilon(self) -> Fraction:
        """The pure-DP parameter e0 = 2k / scale."""
        return 2 * self.votes_per_unit / self.scale


class NoisyCounts(_Concentrated):
    """An event of noisy counts: a sum of independent shares of N_Z(0, share^2) is on each.

    At least ``honest`` of them are unknown to the observer; anything else that was added is a shift
    by a known number, and costs nothing. What is a function of these noisy counts alone is
    post-processing.

    A sum of shares is no discrete Gaussian. Over the integers its law divided by that of parameter
    V = honest * share^2 varies by at most a factor exp(tau) (:func:`~pate.noise.shares.ripple`), so

    rho = squared / (2 V) + moved * tau,

    with the squared L2 distance of neighbours, and the number of counts in which they differ. The
    Renyi divergence is at most order * squared / (2 V) + moved * tau, which that rho is above at
    every order, since order > 1.

    Source: own; docs/proofs/discrete-gaussian.md, sections 6 and 8.
    """

    share: Fraction
    honest: int

    def _check_shares(self) -> None:
        object.__setattr__(self, "share", check_share(self.share))
        check_parties(self.honest, "honest parties")

    @property
    def change(self) -> tuple[int, int]:
        """The squared L2 distance of neighbours, and in how many counts they differ, at most."""
        raise NotImplementedError

    @property
    def variance(self) -> Fraction:
        """V, the joint parameter sigma^2 of the honest shares, in votes squared."""
        return self.honest * self.share**2

    @property
    def ripple(self) -> Fraction:
        """Moved * tau: most by which any log likelihood differs from that of discrete Gaussians."""
        return self.change[1] * ripple(self.share, self.honest)

    @property
    def rho(self) -> Fraction:
        """Squared / (2 V) + moved * tau."""
        return self.change[0] / (2 * self.variance) + self.ripple


@dataclass(frozen=True)
class NoisyHistogram(NoisyCounts):
    """A whole noisy histogram was released: n_j + Z_j for every class j; see :class:`NoisyCounts`.

    At most k votes move from some counts to others, so squared is 2 k^2, and 2k counts move.

    rho = k^2 / V + 2 k tau.

    Attributes:
        share: parameter of each share, in votes; at least 1.
        honest: shares in the sum that the observer does not know.
        votes_per_unit: k.

    Raises:
        UsageError: for parameters that make no sense.
    """

    share: Fraction
    honest: int
    votes_per_unit: int

    name: ClassVar[str] = "noisy-histogram"

    def __post_init__(self) -> None:
        self._check_shares()
        check_votes_per_unit(self.votes_per_unit)

    @property
    def change(self) -> tuple[int, int]:
        """2 k^2, and 2k."""
        return 2 * self.votes_per_unit**2, 2 * self.votes_per_unit


@dataclass(frozen=True)
class NoisyArray(NoisyCounts):
    """A whole array of noisy whole numbers was released; see :class:`NoisyCounts`.

    Neighbouring arrays may differ in any way within two bounds.

    Attributes:
        share: parameter of each share, in units of the array; at least 1.
        honest: shares in the sum that the observer does not know.
        squared: largest squared L2 distance of neighbours.
        moved: most entries in which they differ.

    Raises:
        UsageError: for parameters that make no sense.

    Source: docs/proofs/record-votes.md, section 4.
    """

    share: Fraction
    honest: int
    squared: int
    moved: int

    name: ClassVar[str] = "noisy-array"

    def __post_init__(self) -> None:
        self._check_shares()
        for name, most in (("squared", _MOST_SQUARED), ("moved", _MOST_VOTES)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise UsageError(f"{name} must be a whole number from 1 to {most}, got {value!r}")
        if self.moved > self.squared:
            raise UsageError(
                f"whole numbers differ by 1 or more: {self.moved} of them by {self.moved} squared, "
                f"not by {self.squared}"
            )

    @property
    def change(self) -> tuple[int, int]:
        """Both bounds."""
        return self.squared, self.moved


@dataclass(frozen=True)
class GeometricHistogram(_Pure):
    """A whole noisy histogram was released: n_j + Z_j for every class j, P[Z_j = z] ~ exp(-|z|/scale).

    Z_j is a sum of independent shares, ``honest`` of which sum to exactly that law. At least that
    number are unknown to the observer; anything else that was added costs nothing. What is a function
    of this one histogram is post-processing.

    Neighbouring histograms differ by at most ``distance`` in l1, so the release is e0-DP at delta 0
    with e0 = distance / scale. rho = e0^2 / 2.

    Attributes:
        scale: parameter of the noise of the honest shares together, in votes.
        honest: shares in the sum that the observer does not know.
        distance: largest l1 distance of neighbours, in votes: 2k where a unit of k votes is altered.

    Raises:
        UsageError: for parameters that make no sense.

    Source: Ghosh, Roughgarden, Sundararajan 2012 (the mechanism); Balle et al. 2020, arXiv
    2002.00817 (its shares); docs/proofs/noise.md, sections 7 and 8.
    """

    scale: Fraction
    honest: int
    distance: int

    name: ClassVar[str] = "geometric-histogram"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", GeometricShares(self.scale, self.honest).scale)
        check_votes_per_unit(self.distance, "distance")

    @property
    def epsilon(self) -> Fraction:
        """The pure-DP parameter e0 = distance / scale."""
        return self.distance / self.scale


@dataclass(frozen=True)
class GatedBatch(_Text):
    """A whole batch was answered, and its labels were released or withheld by a private test.

    It has no rho: its cost is known at one order, except with the probability of the test's failure
    (:class:`~pate.accounting.gate.GateParameters`, whose attributes these are).

    Attributes:
        order: Renyi order.
        target: largest cost at which the labels may be released, nats at the order.
        test: cost of the test, nats at the order.
        failure: probability that it releases labels that cost more.

    Raises:
        UsageError: for parameters that make no sense.
    """

    order: Fraction
    target: Fraction
    test: Fraction
    failure: Fraction

    name: ClassVar[str] = "gated-batch"

    def __post_init__(self) -> None:
        for name in ("order", "target", "test", "failure"):
            value = getattr(self, name)
            if type(value) is not Fraction or not 0 < value <= _MOST_NATS:
                raise UsageError(
                    f"the gate's {name} must be an exact number above 0 and at most {_MOST_NATS}"
                )
            if len(str(value)) > _LONGEST_TEXT:
                raise UsageError(f"the gate's {name} has too many digits: round it")


#: What a mechanism does to one query.
Event = (
    GaussianThreshold | GaussianMax | LaplaceMax | NoisyHistogram | NoisyArray | GeometricHistogram
)
#: Units of charging in a ledger: events of one query each, or a batch as a whole.
Charged = Event | GatedBatch
