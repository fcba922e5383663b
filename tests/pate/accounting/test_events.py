"""What events cost; mechanisms/test_texts.py has what their texts are."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from pate.accounting.composition import Zcdp, total_cost
from pate.accounting.events import GaussianMax, GaussianThreshold, LaplaceMax
from pate.errors import AccountingError, UsageError
from pate.exact import fraction_from_text


def test_costs_of_the_papers_settings() -> None:
    assert GaussianThreshold(Fraction(150), 1).rho == Fraction(1, 45000)
    assert GaussianMax(Fraction(40), 1).rho == Fraction(1, 1600)
    assert LaplaceMax(Fraction(20), 1).epsilon == Fraction(1, 10)
    assert LaplaceMax(Fraction(20), 1).rho == Fraction(1, 200)
    # A party of 5 teachers: k^2.
    assert GaussianMax(Fraction(40), 5).rho == Fraction(25, 1600)
    assert GaussianThreshold(Fraction(3, 2), 2).rho == Fraction(8, 9)
    assert LaplaceMax(Fraction(20), 5).rho == Fraction(1, 8)


def test_published_counts_cost_what_was_published() -> None:
    # 640 queries, 286 answers (MNIST), of Papernot et al. 2018: rho = N/(2 s1^2) + A/s2^2.
    spent = [GaussianThreshold(Fraction(200), 1)] * 640 + [GaussianMax(Fraction(40), 1)] * 286
    assert total_cost(Zcdp(), spent) == Fraction(640, 80000) + Fraction(286, 1600)
    assert total_cost(Zcdp(), []) == 0


@pytest.mark.parametrize("kind", [GaussianThreshold, GaussianMax, LaplaceMax])
def test_bad_values_cannot_be_built(
    kind: type[GaussianThreshold | GaussianMax | LaplaceMax],
) -> None:
    for value in (Fraction(0), Fraction(-3), Fraction(1, 10**9), Fraction(2**40), 2.5, math.nan):
        with pytest.raises(UsageError):
            kind(value, 1)  # type: ignore[arg-type]
    for votes in (0, -1, 2**40, 1.0, True, "1"):
        with pytest.raises(UsageError, match="votes_per_unit"):
            kind(Fraction(3), votes)  # type: ignore[arg-type]


def test_fractions_have_one_text() -> None:
    assert fraction_from_text("3/2") == Fraction(3, 2)
    assert fraction_from_text("0") == 0
    for text in ("03/2", "3/02", "0/1", "+3", "3 /2", "", "/", "6/4", "3\n"):
        with pytest.raises(AccountingError, match="fraction"):
            fraction_from_text(text)
