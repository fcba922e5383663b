from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

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
from student.evaluation.figures import Rate
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
