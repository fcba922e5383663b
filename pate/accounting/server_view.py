"""What whoever sees noisy histograms learns: a server that adds up the parties' noisy votes.

No arg max hides behind post-processing here. The whole noisy histogram is released, so only bounds
that look at no votes exist, and the label, and a check of the same noisy counts, come free.

Noise protects against those who do not know it. If each party adds a share, and all but ``honest``
of them may collude with the server, what counts is the noise of ``honest`` shares; parties that add
too much or too little change nothing in that. Guarantee it by the least number of honest shares, and
stop before anything is opened when fewer are left.

Shares of continuous Gaussian or Skellam noise add up to noise of the same law. Shares of discrete
Gaussian noise do not, and :func:`distributed_dgauss_rdp` says by how little.

Proof: docs/proofs/server-view.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.arrays import Floats, check_orders, check_positive, check_rdp
from pate.accounting.skellam import Skellam, skellam_rdp, skellam_rdp_bound
from pate.accounting.units import Neighbours
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from pate.accounting.units import Adjacency

__all__ = [
    "Skellam",
    "dgauss_rdp",
    "distributed_dgauss_rdp",
    "server_view_rdp",
    "skellam_rdp",
    "skellam_rdp_bound",
]

_LEAST_VARIANCE: Final = 1e-4
#: Relative rounding error of a divergence, with room to spare.
_ROUNDING: Final = 1e-13
#: From this variance on the series of Poisson summation is the faster one; they meet here.
_TURN: Final = 1.0 / (2.0 * math.pi)
#: Shares so small that their lattice shows: the correction would be no correction any more.
_LEAST_SHARE: Final = 0.25


def server_view_rdp(
    share_variance: float, honest: int, neighbours: Neighbours, orders: ArrayLike
) -> Floats:
    """Return the cost of a noisy histogram with Gaussian shares. (orders,), in nats.

    order * d^2 / (2 V), with d the l2 distance of neighbours and V the variance of the honest
    shares together. The same holds for a single discrete Gaussian draw of parameter V.

    >>> server_view_rdp(160.0, 8, Neighbours(1), [2.0]).tolist()
    [0.0015625]

    Args:
        share_variance: of one party's noise on each count, in votes squared.
        honest: parties whose noise the observer does not know.
        neighbours: whom it protects.
        orders: (orders,) Renyi orders.

    Raises:
        AccountingError: for a variance that is not above 0, no honest party, or orders not above 1.

    Source: Papernot et al. 2018, Proposition 8, without its arg max.
    """
    return _rate(share_variance, honest, neighbours) * check_orders(orders)


def dgauss_rdp(
    variance: float, k: int, orders: ArrayLike, adjacency: Adjacency = "change"
) -> Floats:
    """Return the exact cost under one discrete Gaussian draw per count, of (+k, -k).

    Per count a k^2/(2V) + ln(Theta(a k)/Theta(0)) / (a - 1), where Theta(c) is the sum over the
    integers of exp(-(x-c)^2/(2V)). The second part is 0 or less, and invisible from V = 2 on: then
    it is the cost under continuous noise.

    >>> dgauss_rdp(1.0, 1, [1.5, 2.0]).round(10).tolist()
    [1.4999999572, 2.0]

    Args:
        variance: parameter sigma^2, in votes squared.
        k: votes of one unit.
        orders: (orders,) Renyi orders.
        adjacency: whether the unit's votes ``change`` (two counts move by k) or are ``remove``d (one
            does).

    Returns:
        (orders,), in nats, rounded up.

    Raises:
        AccountingError: for a variance below 1e-4, or orders not above 1.
        UsageError: for a k or an adjacency that makes no sense.

    Source: Canonne, Kamath, Steinke 2020 (arXiv 2004.00010), proof of Proposition 5.
    Proof: docs/proofs/server-view.md, section 2.
    """
    width, alphas = check_positive(variance, "variance"), check_orders(orders)
    if width < _LEAST_VARIANCE:
        raise AccountingError(f"a variance below {_LEAST_VARIANCE} is no noise, got {variance}")
    counts = 2 if Neighbours(k, adjacency).adjacency == "change" else 1
    plain = counts * float(k) ** 2 / (2.0 * width) * alphas
    shift = (alphas - 1.0) * k  # order * k less an integer
    saved = counts * _log_theta_ratio(shift - np.rint(shift), width) / (alphas - 1.0)
    made = np.minimum(plain, plain + saved) + _ROUNDING * (plain - saved)
    return check_rdp(made, "the cost of discrete Gaussian noise")


def distributed_dgauss_rdp(
    share_variance: float, honest: int, neighbours: Neighbours, orders: ArrayLike
) -> Floats:
    """Return the cost of a noisy histogram with discrete Gaussian shares. (orders,), in nats.

    That of :func:`server_view_rdp`, and tau for each count that may move. tau bounds how far the
    sum of the shares is from a discrete Gaussian of their joint variance: below 1e-15 for shares of
    variance 4, for ten of them.

    >>> plain, sums = (
    ...     cost(1.0, 10, Neighbours(1), [2.0]) for cost in (server_view_rdp, distributed_dgauss_rdp)
    ... )
    >>> (sums - plain).round(6).tolist()
    [0.000435]

    Args:
        share_variance: parameter sigma^2 of one party's noise, in votes squared.
        honest: parties whose noise the observer does not know.
        neighbours: whom it protects.
        orders: (orders,) Renyi orders.

    Raises:
        AccountingError: for a share below 0.25, no honest party, or orders not above 1.

    Source: own, after Kairouz, Liu, Steinke 2021 (arXiv 2102.06387), whose tau it sharpens.
    Proof: docs/proofs/server-view.md, section 4.
    """
    plain = server_view_rdp(share_variance, honest, neighbours, orders)
    if share_variance < _LEAST_SHARE:
        raise AccountingError(
            f"discrete shares of variance {share_variance} do not add up to anything like a discrete "
            f"Gaussian: give each party {_LEAST_SHARE} or more"
        )
    added = np.arange(1.0, honest)
    exponent = 2.0 * math.pi**2 * share_variance * added / (added + 1.0)
    waves = 2.0 * sum(np.exp(-(j**2) * exponent) for j in range(1, 6)) + np.exp(-35.0 * exponent)
    tau = float((np.log1p(waves) - np.log1p(-waves)).sum())
    return (plain + neighbours.gap_shift * tau) * (1.0 + _ROUNDING)


def _rate(share_variance: float, honest: int, neighbours: Neighbours) -> float:
    variance = check_positive(share_variance, "share_variance")
    if isinstance(honest, bool) or not isinstance(honest, int) or honest < 1:
        raise AccountingError(f"without an honest party nothing is hidden, got {honest!r}")
    return neighbours.squared_distance / (2.0 * variance * honest)


def _log_theta_ratio(fraction: Floats, width: float) -> Floats:
    """Return ln(Theta(c) / Theta(0)), at most 0, for c in [-1/2, 1/2]."""
    if width < _TURN:
        x = np.arange(-4.0, 5.0)[:, None]
        logs = np.logaddexp.reduce(-((x - fraction) ** 2) / (2.0 * width), axis=0)
        at_0 = np.logaddexp.reduce(-(x[:, 0] ** 2) / (2.0 * width))
        direct: Floats = np.minimum(logs - at_0, 0.0)
        return direct
    j = np.arange(1.0, 7.0)[:, None]
    weights = np.exp(-2.0 * math.pi**2 * width * j**2)
    lost = 4.0 * (weights * np.sin(math.pi * j * fraction) ** 2).sum(axis=0)
    made: Floats = np.log1p(-lost / (1.0 + 2.0 * weights.sum()))
    return made
