"""Shares, areas and other figures, with intervals that hold also where inputs come in patients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit, ndtr

from pate.errors import DataError
from student.evaluation.figures import Figure, Rate, area, area_of, ranks, rate_of, spread, wilson
from tests.support.there import there


@pytest.mark.parametrize("doubt", [0.05, 0.001])
def test_the_interval_is_scipys_where_inputs_are_independent(doubt: float) -> None:
    from scipy.stats import binomtest

    for hits, count in ((0, 1), (1, 1), (0, 9), (3, 9), (9, 9), (817, 4000)):
        known = binomtest(hits, count).proportion_ci(1 - doubt, method="wilson")
        found = Rate(hits, count).interval(doubt)
        assert found == pytest.approx((known.low, known.high), abs=1e-12)
    assert Rate(0, 0).share is None
    assert Rate(0, 0).interval() == (0.0, 1.0)
    for hits, count in ((-1, 3), (4, 3)):
        with pytest.raises(DataError, match="not a share"):
            Rate(hits, count)


def test_patients_are_worth_as_many_inputs_as_they_tell() -> None:
    hits = np.arange(400) % 5 > 0
    assert rate_of(hits, np.arange(400)).independent == pytest.approx(400, rel=0.02)
    assert rate_of(hits, None) == Rate(320, 400)
    assert rate_of(hits[:0], np.arange(0)) == Rate(0, 0)
    # Inputs that repeat add nothing, also where nothing varies.
    for share in (0.0, 0.3, 1.0):
        each = np.arange(60) < 60 * share
        once, often = rate_of(each, np.arange(60)), rate_of(each.repeat(7), np.arange(60).repeat(7))
        assert often.share == once.share
        assert often.interval() == pytest.approx(once.interval(), abs=2e-3)
        low, high = Rate(often.hits, often.count).interval()
        assert often.interval()[1] - often.interval()[0] > 1.8 * (high - low)
    one = rate_of(np.ones(100, dtype=bool), np.zeros(100, dtype=np.int64))
    assert one.interval() == wilson(1.0, 1.0)


def test_the_interval_of_a_share_covers_the_truth_over_patients() -> None:
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


def test_units_are_drawn_whole_and_figures_together() -> None:
    units = np.array([2, 0, 1, 0, 2, 2, 3])
    drawn: list[np.ndarray] = []

    def whole(rows: np.ndarray) -> float:
        drawn.append(rows)
        times = np.bincount(rows, minlength=7)
        assert times[1] == times[3]
        assert times[0] == times[4] == times[5]
        assert times[1] + times[2] + times[0] + times[6] == 4
        return float(times[6])

    # How often one of four units is drawn in four draws: a binomial number.
    assert spread(whole, units) == pytest.approx(np.sqrt(4 * 0.25 * 0.75), rel=0.15)
    assert len(drawn) == 200
    # Two figures over the same draws: what is equal has no difference.
    values = np.random.default_rng(0).normal(size=7)
    assert spread(lambda rows: float(values[rows].mean() - values[rows].mean()), units) == 0
    assert np.isnan(spread(lambda _: float("nan"), units))


@pytest.mark.parametrize("rows", [1, 4])
def test_the_interval_of_a_mean_covers_the_truth(rows: int) -> None:
    """Of 400 intervals at 93 % or more, fewer than 340 hold with a probability below 1e-6."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        of = np.repeat(np.arange(50), rows)
        values = rng.normal(size=50)[of] + rng.normal(size=50 * rows)
        found = Figure.of(lambda some, values=values: float(values[some].mean()), of)  # type: ignore[misc]
        assert found.interval is not None
        hits += found.interval[0] <= 0 <= found.interval[1]
    assert hits >= 340


def test_bounds_of_a_figure_and_what_has_no_interval() -> None:
    units = np.arange(6)
    values = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 30.0])
    found = Figure.of(lambda rows: float(values[rows].mean()), units, within=(0.0, np.inf))
    assert (found.value, (found.interval or (1, 0))[0]) == (5.0, 0.0)
    one = Figure.of(lambda _: 1.0, np.zeros(3, dtype=np.int64))
    assert one.interval is None
    assert (str(one), str(Figure(0.5, (0.25, 0.75)))) == ("1", "0.5 (0.25 to 0.75)")
    # One that is perfect is so in as many trials.
    assert Figure.of(lambda _: 1.0, units, trials=6).interval == wilson(1.0, 6)
    assert Figure.of(lambda _: float("nan"), units).interval is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=2, max_size=30),
    st.integers(1, 3),
)
def test_the_area_is_the_share_of_pairs_and_a_monotone_change_does_not_move_it(
    rows: list[tuple[int, bool]], power: int
) -> None:
    judged = np.array([[value] for value, _ in rows]) / 16
    truth = np.array([[said] for _, said in rows])
    found = area_of(judged, truth, None)
    high, low = judged[truth], judged[~truth]
    if not len(high) or not len(low):
        assert found is None
        assert np.isnan(area(ranks(judged), truth))
        return
    assert found is not None
    pairs = [(a > b) + (a == b) / 2 for a, b in itertools.product(high, low)]
    assert found.value == pytest.approx(np.mean(pairs), abs=1e-12)
    assert area_of(judged**power / 2 + 0.25, truth, None) == found


def test_an_area_is_scikit_learns_and_its_error_delongs() -> None:
    """The textbook sum over all pairs; a bootstrap of 200 draws has an error of 5 %, here of four times."""
    from sklearn.metrics import roc_auc_score

    generator = np.random.default_rng(4)
    truth = generator.integers(0, 2, (400, 3)).astype(bool)
    for coarse in (False, True):
        known = generator.random((400, 3)) + 0.3 * truth
        known = np.round(4 * known) if coarse else known
        found = there(area_of(known, truth, None))
        assert found.value == pytest.approx(roc_auc_score(truth, known), abs=1e-12)
        one = there(area_of(known[:, :1], truth[:, :1], None))
        high, low = known[truth[:, 0], 0], known[~truth[:, 0], 0]
        wins = (high[:, None] > low).astype(float) + (high[:, None] == low) / 2
        variance = wins.mean(1).var(ddof=1) / len(high) + wins.mean(0).var(ddof=1) / len(low)
        value = wins.mean()
        half = 1.96 * np.sqrt(variance) / (value * (1 - value))
        low_end, high_end = logit(one.interval)
        assert (high_end - low_end) / 2 == pytest.approx(half, rel=0.2)
        assert (high_end + low_end) / 2 == pytest.approx(logit(value))


def test_patients_of_an_area() -> None:
    generator = np.random.default_rng(6)
    truth = generator.integers(0, 2, (90, 1)).astype(bool)
    known = generator.random((90, 1)) + 0.4 * truth
    often = area_of(known.repeat(4, axis=0), truth.repeat(4, axis=0), np.arange(90).repeat(4))
    by_input = area_of(known.repeat(4, axis=0), truth.repeat(4, axis=0), None)
    once = area_of(known, truth, np.arange(90))
    assert often is not None
    assert once is not None
    assert by_input is not None
    assert often.interval == pytest.approx(
        once.interval, abs=1e-9
    )  # inputs that repeat add nothing
    wide, narrow = (np.diff(logit(each.interval))[0] for each in (once, by_input))
    assert wide == pytest.approx(2 * narrow, rel=0.2)
    # All labels of one patient: how they vary is unknown.
    alone = there(area_of(known, truth, np.where(truth[:, 0], 0, np.arange(90) + 1)))
    assert alone.interval is None


@pytest.mark.parametrize("rows", [1, 5])
def test_the_areas_interval_covers_the_truth(rows: int) -> None:
    # Two normals 1.5 apart, also with patients whose rows share most of their error. Of 400 draws
    # at a coverage of 0.92 or more, fewer than 335 have a probability below 1e-6.
    generator = np.random.default_rng(8)
    true = float(ndtr(1.5 / np.sqrt(2)))
    covered = 0
    units = np.arange(100).repeat(rows)
    truth = units % 2 == 1
    for _ in range(400):
        person, row = generator.normal(size=100).repeat(rows), generator.normal(size=100 * rows)
        weight = np.sqrt(0.8) if rows > 1 else 1.0
        noise = weight * person + np.sqrt(1 - weight**2) * row
        found = there(area_of((noise + 1.5 * truth)[:, None], truth[:, None], units))
        assert found.interval is not None
        covered += found.interval[0] <= true <= found.interval[1]
    assert covered >= 335
