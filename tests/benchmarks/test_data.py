"""The data of the rows: what was read, that no person is in two parts, and how records are dealt."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.data import Split, deal, images, tables
from pate.data.values import Dataset, Images, Table
from pate.errors import UsageError
from tests.support.there import there

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


#: Read once: a hundred thousand rows.
STAYS = cache(tables.read_stays)


@pytest.fixture
def files(test_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATE_TEST_DATA", str(test_data))
    monkeypatch.setattr(tables, "read_stays", STAYS)


def sizes(split: Split) -> tuple[int, int, int]:
    return len(split.private), len(split.public), len(split.test)


def pixels(part: Dataset) -> NDArray[np.uint8]:
    assert isinstance(part.inputs, Images)
    return part.inputs.pixels.reshape(len(part), -1)


@pytest.mark.usefixtures("files")
def test_halves_of_mnists_test_images_are_all_of_them_once() -> None:
    whole, split = pixels(images.read_mnist("t10k")), images.mnist_halves()
    assert sizes(split) == (60_000, 5_000, 5_000)
    halves = np.concatenate([pixels(split.public), pixels(split.test)])
    assert sorted(map(bytes, halves)) == sorted(map(bytes, whole))
    # Neither the first half nor the last, which are by different writers.
    in_order = (halves[:5_000] == whole[:5_000]).all(axis=1)
    assert in_order.sum() < 50


@pytest.mark.usefixtures("files")
def test_adult() -> None:
    split = tables.adult()
    assert sizes(split) == (32_561, 12_000, 4_281)
    assert np.bincount(split.private.labels).tolist() == [24_720, 7_841]
    assert split.public.labels.sum() + split.test.labels.sum() == 3_846
    # Two columns are left out, and nothing of the label is left in.
    assert "fnlwgt" not in split.queries.schema()
    assert split.queries.schema().count(":number") == 5


@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_no_patient_of_diabetes_is_in_two_parts() -> None:
    split = tables.diabetes()
    patients = [
        set(part.groups.tolist())
        for part in (split.private, split.public, split.test)
        if part.groups is not None
    ]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 69_990
    whole = there(split.whole)
    assert np.array_equal(whole.test.labels, split.test.labels)
    assert np.array_equal(whole.private.labels, split.private.labels)
    assert split.queries.schema().count(":") == len(tables.SCORED)
    assert "readmitted" not in whole.queries.schema()


@pytest.mark.slow
@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("question", "hidden"),
    [("readmitted", "readmitted"), ("groups", "diag_1"), ("days", "time_in_hospital")],
)
def test_no_question_about_diabetes_has_its_answer_among_the_columns(
    question: str, hidden: str
) -> None:
    split = tables.asked(question)
    for each in (split, there(split.whole)):
        assert hidden not in each.queries.schema()
        assert len(each.private.inputs) >= len(split.private)
    parts = (split.private, split.public, split.test, split.validation)
    patients = [
        set(part.groups.tolist()) for part in parts if part is not None and part.groups is not None
    ]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 69_990
    if question == "readmitted":  # a patient votes with one stay
        assert split.private.groups is not None
        assert len(np.unique(split.private.groups)) == len(split.private)


@pytest.mark.parametrize(
    ("code", "group"),
    [("250", "diabetes"), ("250.83", "diabetes"), ("249", "other"), ("786", "respiratory"),
     ("785.5", "circulatory"), ("V57", "other"), ("E909", "other"), ("?", ""), ("38", "other")],
)  # fmt: skip
def test_diagnoses_have_the_groups_of_strack(code: str, group: str) -> None:
    assert tables.diagnosis_group(code) == group


@pytest.mark.usefixtures("files")
def test_every_hospital_is_in_every_part() -> None:
    split = tables.heart()
    assert sum(sizes(split)) == 920
    assert dict(zip(tables.SITES, split.sizes, strict=True)) == {
        "cleveland": 182, "hungarian": 176, "switzerland": 74, "va": 120,
    }  # fmt: skip
    # Kinds are written alike at all sites, and a cholesterol of 0 is none.
    table = split.private.inputs
    cells = dict(zip(table.names, table.columns, strict=True))  # type: ignore[union-attr]
    assert set(cells["thal"].tolist()) == {"", "3", "6", "7"}
    assert np.nanmin(cells["chol"]) > 0


def test_pneumonia_is_split_without_overlap(test_data: Path, files: None) -> None:
    split = images.pneumonia()
    assert sizes(split) == (3500, 1732, 624)
    with np.load(test_data / "medmnist" / "pneumoniamnist.npz") as file:
        held = np.concatenate([file["train_images"], file["val_images"]])
    both = np.concatenate([pixels(split.private), pixels(split.public)])
    # Every image of the two parts is one of the file, and as often.
    assert sorted(map(bytes, both)) == sorted(map(bytes, held.reshape(len(held), -1)))
    assert split.private.labels.sum() + split.public.labels.sum() == 3494 + 389
    assert split.validation is not None
    last = split.public.take(range(1732 - 524, 1732))
    assert (pixels(split.validation) == pixels(last)).all()
    assert (split.validation.labels == last.labels).all()


def records(count: int, *, patients: int | None = None) -> Dataset:
    table = Table(("number",), (np.arange(float(count)),))
    labels = np.arange(count) % 2
    groups = None if patients is None else np.array([f"p{at % patients}" for at in range(count)])
    return Dataset(table, labels.astype(np.int64), ("no", "yes"), groups)


def test_every_record_goes_to_one_party_and_a_patient_too() -> None:
    parts = deal(records(23), 5, seed=3)
    assert sorted(len(part) for part in parts) == [4, 4, 5, 5, 5]
    assert sorted(np.concatenate(parts).tolist()) == list(range(23))
    whole = records(60, patients=13)
    held = [set(there(whole.groups)[rows].tolist()) for rows in deal(whole, 5, seed=0)]
    assert sum(map(len, held)) == len(set.union(*held)) == 13
    first, other = (deal(records(50), 5, seed=seed)[0] for seed in (0, 1))
    assert set(first.tolist()) != set(other.tolist())
    with pytest.raises(UsageError, match="3 records or groups"):
        deal(records(9, patients=3), 4, seed=0)


def test_parts_of_other_classes_and_other_sites_are_refused() -> None:
    odd = Dataset(records(4).inputs, np.zeros(4, dtype=np.int64), ("yes", "no"))
    with pytest.raises(UsageError, match="other classes"):
        Split(records(9), odd, records(4), "")
    with pytest.raises(UsageError, match="validation part has other classes"):
        Split(records(9), records(4), records(4), "", validation=odd)
    with pytest.raises(UsageError, match="the sites are not the private part"):
        Split(records(9), records(4), records(4), "", sizes=(4, 4))
