"""Diabetes month by month: who votes when, what it costs, and what the page says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.papers import monthly
from benchmarks.papers.data import diabetes
from benchmarks.papers.split import Split
from pate.data.values import Dataset, Table
from pate.errors import DataError
from pate.runtime.screen import Screen

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MONTHS = 2


def stays(count: int, patients: NDArray[np.int64], seed: int) -> Dataset:
    """Return made-up stays of some patients; the first column is of the label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    inputs = Table(("a", "b"), (labels + rng.normal(0, 0.4, count), rng.normal(size=count)))
    who = rng.choice(patients, count).astype(np.str_)
    return Dataset(inputs, labels.astype(np.int64), ("later", "soon"), who)


@pytest.fixture
def hospitals(monkeypatch: pytest.MonkeyPatch) -> Split:
    """A file of 900 stays, of which 200 are public and 200 to test, and a campaign that fits it."""
    patients = np.arange(300)
    private, public, test = (
        stays(count, patients + 1000 * at, at) for at, count in enumerate((500, 200, 200))
    )
    split = Split(private, public, test, "made up")
    whole = monthly._both(monthly._both(private, public), test)
    groups = [monthly._groups(each) for each in (private, public, test)]
    whole = replace(whole, groups=np.concatenate(groups))
    numbers = np.random.default_rng(3).permutation(len(whole)).astype(np.int64)
    monkeypatch.setattr(diabetes, "load", lambda: split)
    monkeypatch.setattr(diabetes, "read", lambda **_: whole)
    monkeypatch.setattr(monthly, "_encounters", lambda: numbers)
    monkeypatch.setattr(monthly, "MONTHS", MONTHS)
    monkeypatch.setattr(monthly, "_COMPARED", MONTHS)
    monkeypatch.setattr(monthly, "_OPTIONS", replace(monthly._OPTIONS, representatives=12))
    return split


@pytest.mark.slow
def test_a_series_costs_one_epsilon_and_asking_again_costs_more(
    hospitals: Split, tmp_path: Path
) -> None:
    found = monthly.run(1, tmp_path / "work", Screen("test"))
    (months,) = found["dealings"]
    assert [each["month"] for each in months] == [1, 2]
    assert sum(each["new"] for each in months) == found["patients"] == months[-1]["there"]
    assert found["patients"] == len(np.unique(monthly._groups(hospitals.private)))
    for each in months:
        assert each["series"]["campaign_epsilon"] == each["series"]["epsilon"] == 1.0
        assert each["series"]["campaign_delta"] == 0.0
        assert each["series"]["auc_others"] > 0.8
    once, twice = (each["again"]["epsilon"] for each in months)
    assert once < 1.2 * 1.0 < twice
    assert {"auc_others"} == set(months[-1]["forgetful"])
    (tmp_path / "2026-01-01.json").write_text(json.dumps(found))
    text = "\n".join(monthly.section(tmp_path))
    assert f"| 2 | {months[1]['new']:,} | 1 | 0." in text


def test_months_are_equal_parts_in_the_order_of_their_numbers() -> None:
    numbers = np.random.default_rng(0).permutation(24).astype(np.int64)
    months = monthly.months_of(numbers, 12)
    assert (np.bincount(months) == 2).all()
    assert np.array_equal(months, numbers // 2)


def test_a_section_is_of_a_known_format(tmp_path: Path) -> None:
    assert monthly.section(tmp_path) == []
    body: dict[str, Any] = {"format": "pate-monthly/0"}
    (tmp_path / "2026-01-01.json").write_text(json.dumps(body))
    with pytest.raises(DataError, match="format"):
        monthly.section(tmp_path)
