"""Logarithms, exponentials and roots of exact numbers with directed rounding.

Floats do not say on which side of the true value they are. Here every function returns a fraction
that is never below (``_up``) or never above (``_down``) the exact value, and within a relative
error of 1e-50 of it. ``decimal`` rounds its logarithm, exponential and root correctly, so one step
to the side at 60 digits is enough.
"""

from __future__ import annotations

import decimal
from decimal import Decimal
from fractions import Fraction
from typing import Final

from pate.errors import AccountingError

_DIGITS: Final = 60
#: Exponents are clipped to this: e^-20000 is negligible as a cost.
_LARGEST_EXPONENT: Final = 20_000


def _context(rounding: str) -> decimal.Context:
    return decimal.Context(
        prec=_DIGITS,
        rounding=rounding,
        Emin=-(10**6),
        Emax=10**6,
        traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
    )


_UP: Final = _context(decimal.ROUND_CEILING)
_DOWN: Final = _context(decimal.ROUND_FLOOR)


def decimal_up(x: Fraction) -> Decimal:
    """Return a decimal of 60 digits that is not below ``x``."""
    return _UP.divide(Decimal(x.numerator), Decimal(x.denominator))


def decimal_down(x: Fraction) -> Decimal:
    """Return a decimal of 60 digits that is not above ``x``."""
    return _DOWN.divide(Decimal(x.numerator), Decimal(x.denominator))


def log_up(x: Fraction) -> Fraction:
    """Return ln(x), not understated.

    Raises:
        AccountingError: if x is not above 0.
    """
    return Fraction(_UP.next_plus(_DOWN.ln(decimal_up(_positive(x)))))


def exp_up(x: Fraction) -> Fraction:
    """Return e^x, not understated.

    Raises:
        AccountingError: if it is beyond e^20000.
    """
    x = max(_bounded(x), Fraction(-_LARGEST_EXPONENT))
    return Fraction(_UP.next_plus(_UP.exp(decimal_up(x))))


def exp_down(x: Fraction) -> Fraction:
    """Return e^x, not overstated; 0 below e^-20000.

    Raises:
        AccountingError: if it is beyond e^20000.
    """
    if _bounded(x) < -_LARGEST_EXPONENT:
        return Fraction(0)
    return Fraction(_DOWN.next_minus(_DOWN.exp(decimal_down(x))))


def round_up(x: Fraction, digits: int = 20) -> Fraction:
    """Return ``x`` >= 0 with that many significant decimal digits, not understated.

    >>> round_up(Fraction(1, 3), 4)
    Fraction(1667, 5000)
    """
    return Fraction(
        decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING).plus(decimal_up(x))
    )


def round_down(x: Fraction, digits: int = 20) -> Fraction:
    """Return ``x`` >= 0 with that many significant decimal digits, not overstated."""
    context = decimal.Context(prec=digits, rounding=decimal.ROUND_FLOOR)
    return Fraction(context.plus(decimal_down(x)))


def _positive(x: Fraction) -> Fraction:
    if x <= 0:
        raise AccountingError(f"internal error: a logarithm or root of {float(x)}")
    return x


def _bounded(x: Fraction) -> Fraction:
    if x > _LARGEST_EXPONENT:
        raise AccountingError("a cost is too large for a number: it protects nothing")
    return x
