"""Figures with intervals, for patients too, and gaps between groups."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit, ndtr

from pate.data.values import Dataset, Images, Table
from pate.errors import DataError, UsageError
from pate.formats.labels import LabelRow
from student.evaluation.fairness import (
    MOST_GROUPS,
    Coverage,
    Gap,
    by_group,
    coverage,
    group_column,
    require_groups,
    widest_gap,
)
from student.evaluation.figures import Figure, Rate, area, area_of, ranks, rate_of, spread, wilson
from tests.support.student_samples import Parrot, counted
from tests.support.there import there


def test_the_published_example_of_the_difference() -> None:
    # Newcombe 1998, Table II, method 10: 56/70 against 48/80 is 0.0524 to 0.3339.
    gap = there(widest_gap({"a": Rate(48, 80), "b": Rate(56, 70)}))
    assert (gap.higher, gap.lower) == ("b", "a")
    assert gap.difference == pytest.approx(0.2)
    assert gap.low == pytest.approx(0.0524, abs=5e-5)
    assert gap.high == pytest.approx(0.3339, abs=5e-5)
    assert gap.told


def test_few_inputs_make_no_gap_and_small_groups_do_not_hide_one() -> None:
    few = there(widest_gap({"a": Rate(18, 20), "b": Rate(14, 20)}))
    assert not few.told
    # Three of three and none of two are the extremes; what is certain lies between the others.
    rates = {"a": Rate(900, 1000), "b": Rate(800, 1000), "c": Rate(3, 3), "d": Rate(1, 2)}
    found = there(widest_gap(rates))
    assert (found.higher, found.lower) == ("a", "b")
    assert found.told


def test_more_pairs_and_more_questions_ask_for_more() -> None:
    two = widest_gap({"a": Rate(480, 800), "b": Rate(560, 800)})
    more = widest_gap(
        {"a": Rate(480, 800), "b": Rate(560, 800), **{str(n): Rate(520, 800) for n in range(6)}}
    )
    asked = widest_gap({"a": Rate(480, 800), "b": Rate(560, 800)}, comparisons=10)
    assert two is not None
    assert more is not None
    assert asked is not None
    assert two.low > more.low
    assert two.low > asked.low
    assert two.high < asked.high


def test_alike_groups_are_seldom_told_apart() -> None:
    # 5 % of draws may be told apart by chance; more than 40 of 200 have probability below 1e-12.
    generator = np.random.default_rng(3)
    told = 0
    for hits in generator.binomial(300, 0.8, (200, 4)).tolist():
        gap = there(widest_gap({str(at): Rate(hit, 300) for at, hit in enumerate(hits)}))
        told += gap.told
    assert told <= 40


def test_no_pair_no_gap() -> None:
    assert widest_gap({}) is None
    assert widest_gap({"a": Rate(1, 2), "b": Rate(0, 0)}) is None


def test_groups_count_what_they_say() -> None:
    generator = np.random.default_rng(1)
    truth, said = generator.integers(0, 2, (2, 300))
    names = np.array(["x", "y", "z"])[generator.integers(0, 3, 300)]
    found = there(by_group(names, truth, said, ("no", "yes"), positive=0))
    assert found.positive == 0
    found = there(by_group(names, truth, said, ("no", "yes")))
    assert found.positive == 1
    for name in ("x", "y", "z"):
        mine = names == name
        assert found.accuracy[name] == Rate(int((truth == said)[mine].sum()), int(mine.sum()))
        assert found.predictions[1][name].share == pytest.approx(said[mine].mean())
        assert found.shares[1][name].share == pytest.approx(truth[mine].mean())
        both = mine & (truth == 1)
        assert found.recalls[1][name].share == pytest.approx(said[both].mean())
    fields = json.loads(json.dumps(found.to_json()))
    assert set(fields["of"]) == {"x", "y", "z"}
    assert set(fields["gaps"]) == {"accuracy", "predicted", "recall"}
    assert fields["of"]["x"]["recall"]["yes"]["share"] == found.recalls[1]["x"].share


def test_of_many_classes_only_accuracy_is_compared() -> None:
    groups = counted(
        {"a": [[50, 0, 0], [0] * 3, [0] * 3], "b": [[0, 50, 0], [0] * 3, [0] * 3]}, ("x", "y", "z")
    )
    assert groups.positive is None
    gaps = groups.gaps()
    assert list(gaps) == ["accuracy"]
    assert isinstance(gaps["accuracy"], Gap)
    assert gaps["accuracy"].difference == 1.0


def test_people_are_no_groups() -> None:
    many = np.array([str(n) for n in range(MOST_GROUPS + 1)])
    zeros = np.zeros(len(many), dtype=np.int64)
    assert by_group(many, zeros, zeros, ("a", "b")) is None
    assert by_group(None, zeros, zeros, ("a", "b")) is None
    assert by_group(many[1:], zeros[1:], zeros[1:], ("a", "b")) is not None
    pixels = np.zeros((len(many), 2, 2, 1), dtype=np.uint8)
    data = Dataset(Images(pixels), zeros, ("a", "b"), many)
    with pytest.raises(UsageError, match="21 different values"):
        require_groups(data, "groups")
    assert require_groups(data.take(range(3)), "groups").groups is not None


def table() -> Dataset:
    columns = (np.array(["f", "m", "", "m"]), np.array([1.0, 2.0, np.nan, 1.0]))
    return Dataset(Table(("sex", "site"), columns), np.array([0, 1, 0, 1]), ("a", "b"))


def test_a_column_becomes_the_groups_and_stays_a_feature() -> None:
    found = group_column(table(), "sex")
    assert there(found.groups).tolist() == ["sex = f", "sex = m", "sex = (missing)", "sex = m"]
    assert found.inputs.schema() == table().inputs.schema()
    by_number = there(group_column(table(), "site").groups)
    assert by_number.tolist() == ["site = 1", "site = 2", "site = (missing)", "site = 1"]


def test_refuses_a_column_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="no column 'race' to group by; it has: sex, site"):
        group_column(table(), "race")
    pixels = np.zeros((1, 2, 2, 1), dtype=np.uint8)
    with pytest.raises(UsageError, match="images have no column"):
        group_column(Dataset(Images(pixels), np.zeros(1, dtype=np.int64), ("a", "b")), "sex")
    ages = Table(("age",), (np.arange(40.0),))
    with pytest.raises(UsageError, match="40 different values"):
        group_column(Dataset(ages, np.zeros(40, dtype=np.int64), ("a", "b")), "age")


def test_coverage_goes_by_what_the_student_sees() -> None:
    public = Table(("said",), ((np.arange(8) >= 3).astype(np.float64),))
    rows = [
        LabelRow(0, 2, 1, "teachers"),
        LabelRow(1, 0, 1, "teachers"),
        LabelRow(7, 0, 2, "reinforced"),
    ]
    found = coverage(Parrot(), public, rows)
    assert found == Coverage(("a", "b", "c"), (3, 5, 0), (2, 1, 0), (2, 0, 1))
    assert found.rates == {"a": Rate(2, 3), "b": Rate(1, 5), "c": Rate(0, 0)}
    fields = json.loads(json.dumps(found.to_json()))
    assert fields["released"] == {"a": 2, "b": 0, "c": 1}
    assert fields["gap"]["told_apart"] is False
    assert coverage(Parrot(), public, []).labelled == (0, 0, 0)


def test_the_command_reads_groups_and_patients_of_tables_and_of_archives(tmp_path: Path) -> None:
    from student.reading import labelled_data

    csv = tmp_path / "test.csv"
    csv.write_text("sex,age,who,ill\nf,30,p7,no\nm,40,p8,yes\nf,50,p7,yes\n")
    test = labelled_data(csv, "ill", "sex", "who")
    found = test.records
    assert there(found.groups).tolist() == ["sex = f", "sex = m", "sex = f"]
    assert found.inputs.schema() == "table sex:category, age:number, who:category"
    assert test.patients is not None
    assert (test.patients.tolist(), test.name) == (["p7", "p8", "p7"], "test.csv")
    plain = labelled_data(csv, "ill", None)
    assert plain.records.groups is plain.patients is None
    with pytest.raises(DataError, match="nobody"):
        labelled_data(csv, "ill", None, "nobody")

    pixels = np.zeros((3, 4, 4), dtype=np.uint8)
    site, who = np.array(["a", "b", "a"]), np.array([7, 8, 7])
    np.savez(tmp_path / "test.npz", images=pixels, labels=np.array([0, 1, 1]), site=site, who=who)
    test = labelled_data(tmp_path / "test.npz", None, "site", "who")
    assert there(test.records.groups).tolist() == ["a", "b", "a"]
    assert there(test.patients).tolist() == ["7", "8", "7"]
    with pytest.raises(DataError, match="no array called sex"):
        labelled_data(tmp_path / "test.npz", None, "sex")


def test_groups_count_patients_if_they_are_known() -> None:
    generator = np.random.default_rng(4)
    truth, said = generator.integers(0, 2, (2, 120))
    names = np.array(["x", "y"])[generator.integers(0, 2, 120)]
    once = by_group(names, truth, said, ("no", "yes"), units=np.arange(120))
    often = by_group(
        names.repeat(5), truth.repeat(5), said.repeat(5), ("no", "yes"),
        units=np.arange(120).repeat(5),
    )  # fmt: skip
    assert once is not None
    assert often is not None
    for few, many in (
        (once.accuracy, often.accuracy),
        (once.recalls[0], often.recalls[0]),
        (once.predictions[0], often.predictions[0]),
        (once.shares[0], often.shares[0]),
    ):
        for name in ("x", "y"):
            assert many[name].count == 5 * few[name].count
            assert many[name].interval() == pytest.approx(few[name].interval(), abs=1e-3)
    json.dumps(often.to_json())


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
    """Of 200 intervals at 93 % or more, fewer than 166 hold with a probability below 1e-6."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        of = np.repeat(np.arange(50), rows)
        values = rng.normal(size=50)[of] + rng.normal(size=50 * rows)
        found = Figure.of(lambda some, values=values: float(values[some].mean()), of)  # type: ignore[misc]
        assert found.interval is not None
        hits += found.interval[0] <= 0 <= found.interval[1]
    assert hits >= 166


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
    # Two normals 1.5 apart, also with patients whose rows share most of their error. Of 200 draws
    # at a coverage of 0.92 or more, fewer than 163 have a probability below 1e-6.
    generator = np.random.default_rng(8)
    true = float(ndtr(1.5 / np.sqrt(2)))
    covered = 0
    units = np.arange(100).repeat(rows)
    truth = units % 2 == 1
    for _ in range(200):
        person, row = generator.normal(size=100).repeat(rows), generator.normal(size=100 * rows)
        weight = np.sqrt(0.8) if rows > 1 else 1.0
        noise = weight * person + np.sqrt(1 - weight**2) * row
        found = there(area_of((noise + 1.5 * truth)[:, None], truth[:, None], units))
        assert found.interval is not None
        covered += found.interval[0] <= true <= found.interval[1]
    assert covered >= 163
