"""The tables of the papers' rows: what was read, and that no person is in two parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.papers.data import adult, diabetes, heart, mnist, mnist_halves
from pate.data.values import Images

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.papers.split import Split
    from pate.data.values import Dataset


@pytest.fixture
def files(test_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATE_TEST_DATA", str(test_data))


def sizes(split: Split) -> tuple[int, int, int]:
    return len(split.private), len(split.public), len(split.test)


def pixels(part: Dataset) -> NDArray[np.uint8]:
    assert isinstance(part.inputs, Images)
    return part.inputs.pixels.reshape(len(part), -1)


@pytest.mark.usefixtures("files")
def test_halves_of_mnists_test_images_are_all_of_them_once() -> None:
    whole, split = pixels(mnist.read("t10k")), mnist_halves.load()
    assert sizes(split) == (60_000, 5_000, 5_000)
    halves = np.concatenate([pixels(split.public), pixels(split.test)])
    assert sorted(map(bytes, halves)) == sorted(map(bytes, whole))
    # Neither the first half nor the last, which are by different writers.
    in_order = (halves[:5_000] == whole[:5_000]).all(axis=1)
    assert in_order.sum() < 50


@pytest.mark.usefixtures("files")
def test_adult() -> None:
    split = adult.load()
    assert sizes(split) == (32_561, 12_000, 4_281)
    assert np.bincount(split.private.labels).tolist() == [24_720, 7_841]
    assert split.public.labels.sum() + split.test.labels.sum() == 3_846
    # Two columns are left out, and nothing of the label is left in.
    assert "fnlwgt" not in split.queries.schema()
    assert split.queries.schema().count(":number") == 5


@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_no_patient_of_diabetes_is_in_two_parts() -> None:
    split = diabetes.load()
    patients = [
        set(part.groups.tolist())
        for part in (split.private, split.public, split.test)
        if part.groups is not None
    ]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 69_990
    whole = diabetes.load(every_column=True)
    assert [part.groups is not None for part in (whole.private, whole.test)] == [True, True]
    assert np.array_equal(whole.test.labels, split.test.labels)
    assert split.queries.schema().count(":") == len(diabetes.SCORED)
    assert "readmitted" not in whole.queries.schema()


@pytest.mark.parametrize(
    ("code", "group"),
    [("250", "diabetes"), ("250.83", "diabetes"), ("249", "other"), ("786", "respiratory"),
     ("785.5", "circulatory"), ("V57", "other"), ("E909", "other"), ("?", ""), ("38", "other")],
)  # fmt: skip
def test_diagnoses_have_the_groups_of_strack(code: str, group: str) -> None:
    assert diabetes.diagnosis_group(code) == group


@pytest.mark.usefixtures("files")
def test_every_hospital_is_in_every_part() -> None:
    split, sites = heart.load(), heart.sites()
    assert sum(sizes(split)) == 920
    assert {name: len(part) for name, part in sites.items()} == {
        "cleveland": 182, "hungarian": 176, "switzerland": 74, "va": 120,
    }  # fmt: skip
    # Kinds are written alike at all sites, and a cholesterol of 0 is none.
    table = split.private.inputs
    cells = dict(zip(table.names, table.columns, strict=True))  # type: ignore[union-attr]
    assert set(cells["thal"].tolist()) == {"", "3", "6", "7"}
    assert np.nanmin(cells["chol"]) > 0
