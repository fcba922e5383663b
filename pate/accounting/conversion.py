"""From zCDP and Renyi DP to (epsilon, delta), and back. Every figure is rounded to the safe side.

Symbols: ``rho`` is the zCDP parameter (Renyi divergence at most rho * order at every order > 1),
``order`` the Renyi order alpha, ``rdp`` the Renyi divergence at an order in nats, ``delta`` the
whole failure probability. Each formula holds at every order by itself, so the value at an order
close to the best one is still a valid bound, only slightly larger.

Sources: *improved*, Canonne, Kamath, Steinke 2020 (arXiv 2004.00010), Proposition 12, also Balle
et al. 2020 (2001.05990), equation 20; *classical*, Mironov 2017 (1702.07476), Proposition 3.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from pate.errors import AccountingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Formula = Literal["improved", "classical"]

#: Bound on the relative rounding error of one term of a formula, with a margin.
_ROUNDING = 2.0**-49


def float_up(value: Fraction) -> float:
    """Return the least float that is not below ``value``.

    >>> float_up(Fraction(1, 2))
    0.5
    >>> Fraction(float_up(Fraction(1, 10))) >= Fraction(1, 10)
    True

    Raises:
        AccountingError: if it is beyond the largest float.
    """
    try:
        near = float(value)
    except OverflowError:
        raise AccountingError("a cost is too large for a number: it protects nothing") from None
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def check_rho(rho: Fraction, name: str = "rho") -> Fraction:
    """Return ``rho`` if it is an exact number that is not negative, else raise AccountingError."""
    if type(rho) not in (Fraction, int):  # no floats, no bools
        raise AccountingError(f"{name} must be exact, got {rho!r}: give a Fraction")
    if rho < 0:
        raise AccountingError(f"{name} must not be negative, got {rho}")
    return Fraction(rho)


def check_delta(delta: float) -> float:
    """Return ``delta`` if it lies strictly between 0 and 1, else raise AccountingError."""
    if not 0.0 < delta < 1.0:
        raise AccountingError(f"delta must lie between 0 and 1, both excluded, got {delta}")
    return float(delta)


def epsilon_from_rho(rho: Fraction, delta: float, formula: Formula = "improved") -> float:
    """Return the epsilon of (epsilon, delta)-DP that rho-zCDP gives.

    The conversion at its optimal real order, rounded up: never below the minimum of the formula,
    and above it by less than 1e-12 relative to the formula's terms. Two costs that differ by less
    may be ordered wrongly; compare costs in rho.

    >>> round(epsilon_from_rho(Fraction("0.19"), 1e-5), 6)
    2.734054
    >>> epsilon_from_rho(Fraction(0), 1e-5)
    0.0

    Args:
        rho: zCDP parameter.
        delta: failure probability.
        formula: ``improved``, or ``classical`` (rho + 2 sqrt(rho ln(1/delta))) for comparison.

    Raises:
        AccountingError: for a rho that is not exact or negative, or a delta outside (0, 1).

    Source: Canonne, Kamath, Steinke 2020, Proposition 12; Bun and Steinke 2016, Proposition 1.3.
    """
    rho = check_rho(rho)
    log_inverse_delta = -math.log(check_delta(delta))
    _check_formula(formula)
    if rho == 0:
        return 0.0
    rate = float_up(rho)
    if formula == "classical":
        return (rate + 2.0 * math.sqrt(rate * log_inverse_delta)) * (1.0 + _ROUNDING)
    excess = _best_excess(rate, log_inverse_delta)
    return _improved_at(rate * (1.0 + excess), excess, log_inverse_delta)


def rho_from_epsilon(epsilon: float, delta: float) -> Fraction:
    """Return the budget in rho for ``epsilon``: the largest of 12 digits, rounded down.

    :func:`epsilon_from_rho` of the result is always at most ``epsilon``.

    >>> rho_from_epsilon(2.7340536403879776, 1e-5)
    Fraction(189999999999, 1000000000000)

    Args:
        epsilon: the (epsilon, delta) budget; 0 gives rho = 0.
        delta: failure probability.

    Raises:
        AccountingError: for an epsilon that is NaN, negative or infinite, or a delta outside
            (0, 1).
    """
    if not 0.0 <= epsilon < math.inf:
        raise AccountingError(f"epsilon must be finite and not negative, got {epsilon}")
    check_delta(delta)
    if epsilon == 0.0:
        return Fraction(0)

    low = largest_float(lambda rate: epsilon_from_rho(Fraction(rate), delta) <= epsilon)
    if low == math.inf:
        raise AccountingError(f"an epsilon of {epsilon} protects nothing: choose a smaller one")
    digits = math.ceil(math.log10(low))
    return rounded_down(Fraction(low), digits, lambda rho: epsilon_from_rho(rho, delta) <= epsilon)


def largest_float(affordable: Callable[[float], bool]) -> float:
    """Return the largest float that is affordable, as all smaller ones are; infinity if all are."""
    low = 1.0
    while affordable(low):
        low *= 2.0
        if low == math.inf:
            return low
    while not affordable(low):
        low /= 2.0
    high = 2.0 * low
    while (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if affordable(middle) else (low, middle)
    return low


def rounded_down(budget: Fraction, digits: int, affordable: Callable[[Fraction], bool]) -> Fraction:
    """Return a budget of 12 digits, of which ``digits`` are before the point: the largest that is affordable.

    ``affordable``: in the conversion of a cost, whose rounding may put a last digit on the wrong side.
    """
    unit = Fraction(10) ** (digits - 12)
    budget = budget // unit * unit
    while budget > 0 and not affordable(budget):
        budget -= unit
    return max(budget, Fraction(0))


def epsilon_from_rdp(
    orders: Sequence[float], rdp: Sequence[float], delta: float, formula: Formula = "improved"
) -> float:
    """Return the least epsilon over the given orders.

    >>> round(epsilon_from_rdp([2, 4, 8, 16, 32], [0.1, 0.2, 0.4, 0.8, 1.6], 1e-5), 6)
    1.318151

    Args:
        orders: Renyi orders, each above 1.
        rdp: Renyi divergences at those orders; infinity where there is no bound.
        delta: failure probability.
        formula: ``improved`` (and never below 0), or ``classical`` for comparison with papers.

    Raises:
        AccountingError: for no orders, lists of different lengths, an order not above 1, a
            divergence that is NaN or negative, or a delta outside (0, 1).
    """
    return _at_best_order(orders, rdp, delta, formula)[0]


def best_order(
    orders: Sequence[float], rdp: Sequence[float], delta: float, formula: Formula = "improved"
) -> float:
    """Return the order at which :func:`epsilon_from_rdp` finds the least epsilon.

    Where ``rdp`` depends on the votes, so does this order: it must stay secret.
    """
    return _at_best_order(orders, rdp, delta, formula)[1]


def _at_best_order(
    orders: Sequence[float], rdp: Sequence[float], delta: float, formula: Formula
) -> tuple[float, float]:
    log_inverse_delta = -math.log(check_delta(delta))
    _check_formula(formula)
    if len(orders) != len(rdp) or not len(orders):
        raise AccountingError(
            f"each order needs its divergence: got {len(orders)} orders and {len(rdp)} divergences"
        )
    found: list[tuple[float, float]] = []
    for order, divergence in zip(orders, rdp, strict=True):
        if not 1.0 < order < math.inf:
            raise AccountingError(f"an order must be finite and above 1, got {order}")
        if not divergence >= 0.0:
            raise AccountingError(f"the divergence at order {order} is {divergence}, not positive")
        if formula == "improved":
            epsilon = _improved_at(float(divergence), float(order) - 1.0, log_inverse_delta)
        else:
            epsilon = (divergence + log_inverse_delta / (order - 1.0)) * (1.0 + _ROUNDING)
        found.append((epsilon, float(order)))
    return min(found)


def _check_formula(formula: Formula) -> None:
    if formula not in ("improved", "classical"):
        raise AccountingError(f"formula must be improved or classical, got {formula!r}")


def _improved_at(divergence: float, excess: float, log_inverse_delta: float) -> float:
    """Return the improved formula at order 1 + ``excess``, rounded up, and not below 0.

    divergence + ln(1 - 1/order) + (ln(1/delta) - ln(order)) / (order - 1).
    """
    log_excess, log_order = math.log(excess), math.log1p(excess)
    gain, price = log_order / excess, log_inverse_delta / excess
    # The terms nearly cancel for small epsilon: the error is bounded term by term.
    size = divergence + abs(log_excess) + log_order + gain + price
    value = divergence + (log_excess - log_order) + (price - gain) + _ROUNDING * size
    return max(0.0, value)


def _best_excess(rate: float, log_inverse_delta: float) -> float:
    """Return order - 1 at the minimum over real orders of the improved formula, for rdp = rate*order.

    Its derivative is rate + (ln(order) - ln(1/delta)) / (order - 1)^2. So at the minimum
    rate x^2 + ln(1 + x) = ln(1/delta) with x = order - 1: the left side rises from 0, and the
    solution is unique.
    """
    low, high = -700.0, math.log(log_inverse_delta) / 2.0 - math.log(rate) / 2.0
    low = min(low, high - 1.0)
    for _ in range(100):
        middle = (low + high) / 2.0
        x = math.exp(middle)
        if rate * x * x + math.log1p(x) < log_inverse_delta:
            low = middle
        else:
            high = middle
    return math.exp(low)
