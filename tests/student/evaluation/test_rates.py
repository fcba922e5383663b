"""Wilson intervals of shares, and how many independent inputs patients are worth."""

from __future__ import annotations

import numpy as np
import pytest

from student.evaluation.rates import Rate, rate_of, wilson


@pytest.mark.parametrize(("hits", "count"), [(0, 1), (1, 1), (0, 9), (3, 9), (9, 9), (817, 4000)])
@pytest.mark.parametrize("doubt", [0.05, 0.001])
def test_the_interval_is_scipys_where_inputs_are_independent(
    hits: int, count: int, doubt: float
) -> None:
    from scipy.stats import binomtest

    known = binomtest(hits, count).proportion_ci(1 - doubt, method="wilson")
    assert Rate(hits, count).interval(doubt) == pytest.approx((known.low, known.high), abs=1e-12)


def test_patients_with_one_input_each_are_nearly_independent_inputs() -> None:
    hits = np.arange(400) % 5 > 0
    rate = rate_of(hits, np.arange(400))
    assert rate.independent == pytest.approx(400, rel=0.02)
    assert rate_of(hits, None) == Rate(320, 400)
    assert rate_of(hits[:0], np.arange(0)) == Rate(0, 0)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_inputs_that_repeat_add_nothing(share: float) -> None:
    each = np.arange(60) < 60 * share
    once, often = rate_of(each, np.arange(60)), rate_of(each.repeat(7), np.arange(60).repeat(7))
    assert often.share == once.share
    assert often.interval() == pytest.approx(once.interval(), abs=2e-3)
    low, high = Rate(often.hits, often.count).interval()
    assert often.interval()[1] - often.interval()[0] > 1.8 * (high - low)


def test_one_patient_is_one_input_at_best() -> None:
    rate = rate_of(np.ones(100, dtype=bool), np.zeros(100, dtype=np.int64))
    assert rate.interval() == wilson(1.0, 1.0)


def test_the_interval_covers_the_truth_over_patients() -> None:
    # Beta(2, 1) shares of 80 patients with 6 inputs each: the true share is 2/3. At a coverage of
    # 0.93 or more of 2,000 draws, fewer than 1,800 have a probability below 1e-6; by inputs, as if
    # they were independent, about 80 % would cover.
    generator = np.random.default_rng(5)
    covered = by_input = 0
    for _ in range(2_000):
        hits = (generator.random((80, 6)) < generator.beta(2, 1, (80, 1))).ravel()
        low, high = rate_of(hits, np.arange(80).repeat(6)).interval()
        covered += low <= 2 / 3 <= high
        low, high = rate_of(hits, None).interval()
        by_input += low <= 2 / 3 <= high
    assert covered >= 1_800
    assert by_input < 1_740
