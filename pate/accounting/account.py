"""Epsilon of a matrix of votes by every available bound.

For researchers who have the votes of an ensemble, and for planning with a public proxy. A
data-dependent figure reveals something about the votes: see ``meaning`` of each, and
docs/privacy.md for what may be published.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.arrays import Floats, blocks, check_histograms, check_orders, check_positive
from pate.accounting.bounds import every_neighbour, outlier, theorem3, theorem6, threshold
from pate.accounting.bounds.sharp import GaussianSetting, bound_by_outcomes, sharp_bound
from pate.accounting.bounds.theorem6_plus import Table
from pate.accounting.conversion import best_order, check_delta, epsilon_from_rdp
from pate.accounting.gate import Choice, least_for_public_proxy
from pate.accounting.gdp import epsilon_from_delta
from pate.accounting.nearby import batch_of
from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from pate.accounting import BoundName
    from pate.accounting.nearby import Batch
    from pate.accounting.units import Neighbours

#: Half steps where optimal orders lie in practice, wider ones above.
ORDERS: Final = np.concatenate(
    (
        np.arange(1.5, 33.0, 0.5),
        np.arange(34.0, 66.0, 2.0),
        [80.0, 100.0, 128.0, 192.0, 256.0, 512.0],
    )
)
#: Moments of the 2017 paper, as orders.
MOMENTS_2017: Final = np.arange(2.0, 10.0)

#: Orders tried for gates, as multiples of the bound's best order - 1.
_RELEASE_ORDERS: Final = np.array([0.5, 0.65, 0.8])

#: The meaning of each figure, by bound.
MEANING: Final[dict[BoundName, str]] = {
    "paper-2017": "moments 1 to 8 with Theorem 3 of 2017; a bound, depends on the votes",
    "paper-2018": (
        "the cost of the 2018 reference, an expectation over which queries are answered; NOT a bound"
    ),
    "theorem3": "Theorem 3 of 2017 at all orders; a bound, depends on the votes",
    "theorem6": "Theorem 6 of 2018, joint over check and label; a bound, depends on the votes",
    "sharp": (
        "Theorem 3+ of lnmax, else the bound by outcomes joined with the exact one of the check; a "
        "bound, depends on the votes"
    ),
    "every-neighbour": (
        "the exact divergence of GNMax and its check from every neighbour's; a bound, depends on all "
        "votes: only for votes that are public"
    ),
    "expected": (
        "the worst cost of checks and of the expected number of labels; that number depends on the "
        "votes, and an expectation is NOT a bound"
    ),
    "independent": (
        "every query answered, each at its worst cost; a bound, looks at no vote: the same for all "
        "votes on as many queries"
    ),
}


@dataclass(frozen=True, kw_only=True)
class LaplaceSetting:
    """LNMax with noise of scale 1/gamma.

    Attributes:
        gamma: inverse scale of the noise, per vote.
        discrete: whether the noise is the two-sided geometric one.
    """

    gamma: float
    discrete: bool = False


@dataclass(frozen=True)
class Figures:
    """Epsilon by one bound.

    Attributes:
        rdp: (orders,) Renyi divergence of all queries together.
        orders: (orders,).
        delta: at which the epsilons hold.
        exact: epsilon without the loss of a conversion, where one is known.
    """

    rdp: Floats
    orders: Floats
    delta: float
    exact: float | None = None

    @property
    def classical(self) -> float:
        """Epsilon by Mironov 2017, Proposition 3."""
        return epsilon_from_rdp(self.orders.tolist(), self.rdp.tolist(), self.delta, "classical")

    @property
    def improved(self) -> float:
        """Epsilon by Canonne, Kamath, Steinke 2020, Proposition 12."""
        return epsilon_from_rdp(self.orders.tolist(), self.rdp.tolist(), self.delta)

    @property
    def best_orders(self) -> tuple[float, float]:
        """The orders of the two: secret, where the bound depends on secret votes."""
        curve = (self.orders.tolist(), self.rdp.tolist(), self.delta)
        return best_order(*curve, "classical"), best_order(*curve)


@dataclass(frozen=True)
class Account:
    """The result of :func:`account`.

    Attributes:
        queries: rows of the votes.
        answered: expected number of labels; with a threshold test it depends on the votes.
        figures: by bound.
        gate: the gate of least epsilon that would open for such votes, if it was looked for and
            there is one.
    """

    queries: int
    answered: float
    figures: dict[BoundName, Figures] = field(default_factory=dict)
    gate: Choice | None = None


def account(
    votes: ArrayLike,
    setting: LaplaceSetting | GaussianSetting,
    *,
    delta: float,
    neighbours: Neighbours,
    bounds: Sequence[BoundName] | None = None,
    orders: ArrayLike = ORDERS,
    margins: ArrayLike | None = None,
    gate: bool = False,
) -> Account:
    """Return the cost of answering every row of ``votes`` once.

    Args:
        votes: (queries, classes) counts.
        setting: the mechanism.
        delta: failure probability.
        neighbours: whom it protects.
        bounds: which ones; None for all that the mechanism has but every-neighbour, which is for
            public votes, units of one vote and few classes.
        orders: (orders,) Renyi orders to choose from.
        margins: (queries,) what the check looks at, if not the largest count: for
            Interactive-GNMax, max_j (n_j - r_j).
        gate: whether to look for a gate, which needs the bound ``sharp``: its parameters follow
            from the votes, so they must be public.

    Raises:
        AccountingError: for impossible votes, orders or parameters.
        UsageError: for a bound that the mechanism does not have.
    """
    check_delta(delta)
    counts = check_histograms(votes)
    orders = check_orders(orders)
    known: tuple[BoundName, ...] = (
        ("paper-2017", "theorem3", "sharp", "independent")
        if isinstance(setting, LaplaceSetting)
        else ("paper-2018", "theorem6", "sharp", "expected", "independent")
    )
    if isinstance(setting, GaussianSetting) and setting.check is None:
        # All queries are answered: the expected number is the worst.
        known = tuple(name for name in known if name != "expected")
    wanted = tuple(bounds) if bounds else known
    if isinstance(setting, GaussianSetting) and margins is None:
        known = (*known, "every-neighbour")
    if odd := [name for name in wanted if name not in known]:
        raise UsageError(f"this mechanism has no bound {odd[0]!r}; it has {', '.join(known)}")
    if isinstance(setting, LaplaceSetting):
        return _laplace(counts, setting, delta, neighbours, wanted, orders)
    seen = counts.max(axis=1) if margins is None else np.asarray(margins, np.float64)
    found = _gaussian(counts, seen, setting, delta, neighbours, wanted, orders)
    if not gate or "sharp" not in found.figures or margins is not None:
        return found
    batch = _batch(found, counts, setting, neighbours)
    return replace(found, gate=least_for_public_proxy(batch, delta=delta))


def _laplace(
    counts: Floats,
    setting: LaplaceSetting,
    delta: float,
    neighbours: Neighbours,
    wanted: Sequence[BoundName],
    orders: Floats,
) -> Account:
    gamma = check_positive(setting.gamma, "gamma")
    epsilon0 = neighbours.gap_shift * gamma
    log_q = outlier.lnmax_log_q(counts, gamma, discrete=setting.discrete)
    figures: dict[BoundName, Figures] = {}
    for name in wanted:
        at = MOMENTS_2017 if name == "paper-2017" else orders
        if name == "independent":
            rdp = len(counts) * theorem3.independent(epsilon0, at)
        else:
            rdp = np.zeros(len(at))
            for part in blocks(len(log_q), len(at)):
                rdp += theorem3.rdp(log_q[part], epsilon0, at, sharp=name == "sharp").sum(axis=0)
        figures[name] = Figures(rdp, at, delta)
    return Account(len(counts), float(len(counts)), figures)


def _gaussian(
    counts: Floats,
    seen: Floats,
    setting: GaussianSetting,
    delta: float,
    neighbours: Neighbours,
    wanted: Sequence[BoundName],
    orders: Floats,
) -> Account:
    log_q = outlier.gnmax_log_q(counts, setting.label)
    if setting.check is None:
        log_pass = np.zeros(len(counts))
    else:
        log_pass = threshold.log_pass(seen, setting.threshold, setting.check)
    answered = float(np.exp(log_pass).sum())
    figures: dict[BoundName, Figures] = {}
    for name in wanted:
        if name in ("expected", "independent"):
            labels = answered if name == "expected" else len(counts)
            figures[name] = _worst(setting, neighbours, len(counts), labels, delta, orders)
            continue
        total = np.zeros(len(orders))
        if name == "every-neighbour":
            total += every_neighbour.rdp(counts, setting, neighbours, orders).sum(axis=0)
        elif name == "sharp":
            total += bound_by_outcomes(setting, neighbours, orders)(counts, seen).sum(axis=0)
        else:
            cost = _published(name, setting, neighbours, orders)
            for part in blocks(len(counts), len(orders)):
                total += cost(seen[part], log_q[part]).sum(axis=0)
        figures[name] = Figures(total, orders, delta)
    return Account(len(counts), answered, figures)


def _batch(
    found: Account, counts: Floats, setting: GaussianSetting, neighbours: Neighbours
) -> Batch:
    # A gate counts at one order, somewhat below the best of the bound alone.
    orders = np.unique(1.0 + _RELEASE_ORDERS * (found.figures["sharp"].best_orders[1] - 1.0))
    bound = sharp_bound(setting, neighbours, orders, Table.build)
    return batch_of(counts, setting, neighbours, bound, orders)


def _published(
    name: BoundName, setting: GaussianSetting, neighbours: Neighbours, orders: Floats
) -> Callable[[Floats, Floats], Floats]:
    """Return the function from what the check sees and log q to (queries, orders) costs."""
    rate = neighbours.squared_distance / (2 * setting.label.sigma**2)
    if setting.check is None:
        return lambda _, log_q: theorem6.rdp(log_q, rate, orders)
    law, k = setting.check, neighbours.votes

    def of_paper(seen: Floats, log_q: Floats) -> Floats:
        checks = threshold.rdp_theorem6(seen, setting.threshold, law, k, orders)
        log_pass = threshold.log_pass(seen, setting.threshold, law)
        return threshold.expected(log_pass, checks, theorem6.rdp(log_q, rate, orders))

    def joint(seen: Floats, log_q: Floats) -> Floats:
        labels = theorem6.rdp(log_q, rate, orders)
        return threshold.joint(seen, setting.threshold, law, k, orders, labels)

    return of_paper if name == "paper-2018" else joint


def _worst(
    setting: GaussianSetting,
    neighbours: Neighbours,
    queries: int,
    labels: float,
    delta: float,
    orders: Floats,
) -> Figures:
    """Return the worst cost of all checks and this number of labels, an upper bound for any fewer."""
    mu_squared = labels * neighbours.squared_distance * setting.label.mu_of_step**2
    rate = labels * neighbours.squared_distance / (2 * setting.label.sigma**2)
    if setting.check is not None:
        # One count moves, by at most k: the check is a single Gaussian.
        mu_squared += queries * (neighbours.votes * setting.check.mu_of_step) ** 2
        rate += queries * neighbours.votes**2 / (2 * setting.check.sigma**2)
    exact = epsilon_from_delta(float(np.sqrt(mu_squared)), delta) if mu_squared else 0.0
    return Figures(rate * orders, orders, delta, exact)
