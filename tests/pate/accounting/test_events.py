"""What events cost, and their exact text form."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.accounting.composition import Zcdp, total_cost
from pate.accounting.events import (
    Charged,
    Event,
    GaussianMax,
    GaussianThreshold,
    GeometricHistogram,
    LaplaceMax,
    NoisyArray,
    NoisyHistogram,
    event_from_dict,
)
from pate.errors import AccountingError, UsageError
from pate.exact import fraction_from_text

scales = st.builds(
    Fraction, st.integers(min_value=1, max_value=10**6), st.integers(min_value=1, max_value=100)
)
units = st.integers(min_value=1, max_value=1000)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(GaussianThreshold, scales, units),
    st.builds(GaussianMax, scales, units),
    st.builds(LaplaceMax, scales, units),
    st.builds(NoisyHistogram, scales.filter(lambda s: s >= 1), units, units),
)


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


def test_divergences_by_order() -> None:
    assert GaussianMax(Fraction(40), 1).rdp(14) == pytest.approx(0.00875, rel=1e-15)
    assert GaussianThreshold(Fraction(150), 1).rdp(2) == pytest.approx(4.44444444444e-5, rel=1e-11)
    assert LaplaceMax(Fraction(20), 1).rdp(9) == pytest.approx(0.045, rel=1e-15)
    # From order 20 on the pure-DP bound is the smaller one.
    assert LaplaceMax(Fraction(20), 1).rdp(50) == pytest.approx(0.1, rel=1e-15)
    for order in (1.0, 0.5, -2.0, math.nan, math.inf):
        for event in (GaussianMax(Fraction(40), 1), LaplaceMax(Fraction(20), 1)):
            with pytest.raises(AccountingError, match="order"):
                event.rdp(order)


@given(events, st.floats(min_value=1.001, max_value=1000))
def test_divergences_are_rounded_up_and_rho_is_exact(event: Event, order: float) -> None:
    exact = event.rho * Fraction(order)
    if isinstance(event, LaplaceMax):
        exact = min(exact, 2 * event.votes_per_unit / event.scale)
    assert Fraction(event.rdp(order)) >= exact
    assert Fraction(event.rdp(order)) <= exact * (1 + Fraction(1, 2**52))
    assert isinstance(event.rho, Fraction)


@given(events)
def test_the_text_form_is_exact(event: Event) -> None:
    fields = event.to_dict()
    assert event_from_dict(fields) == event
    assert event_from_dict(fields).to_dict() == fields


@pytest.mark.parametrize(
    "event",
    [
        GaussianThreshold(Fraction(301, 2), 1), GaussianMax(Fraction(40), 2), LaplaceMax(Fraction(20), 1),
        NoisyHistogram(Fraction(10), 16, 1), NoisyArray(Fraction(10), 16, 6, 2),
        GeometricHistogram(Fraction(20), 3, 2),
    ],
    ids=lambda event: event.to_dict()["event"],
)  # fmt: skip
def test_bad_text_is_refused(event: Charged) -> None:
    """mechanisms/test_texts.py has what the texts are."""
    good = event.to_dict()
    assert event_from_dict(good) == event
    bad: list[dict[str, Any]] = [{**good, "more": 1}, {**good, "event": "gaussian-may"}]
    bad += [{name: value for name, value in good.items() if name != key} for key in good]
    numbers = ("1", 0, -1, True, None, 1.5, 10**50)
    texts = (
        "40.0", "80/2", "40/1", " 40", "4_0", "٤٠", "-40", "0", "nan", "1e9", "1/0", "9" * 200, 40, None, "",
    )  # fmt: skip
    for key, value in good.items():
        if key != "event":
            bad += [{**good, key: each} for each in (texts if isinstance(value, str) else numbers)]
    for fields in bad:
        with pytest.raises((AccountingError, UsageError)):
            event_from_dict(fields)


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
