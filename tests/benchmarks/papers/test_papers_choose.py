"""A row's settings are chosen by trials among public records only."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.papers.choose import choose, trial_options
from benchmarks.papers.encoded_rows import RECORDS, tried
from benchmarks.papers.row import Row, Wanted
from benchmarks.papers.rows import ROWS
from benchmarks.papers.split import Split
from benchmarks.papers.table import render
from pate.accounting.gdp import delta_from_epsilon, mu_squared_from_epsilon
from pate.data.values import Dataset, Table
from pate.errors import DataError, UsageError
from pate.runtime.screen import Screen
from tests.support.benchmark_results import result

if TYPE_CHECKING:
    from pathlib import Path

SCREEN = Screen("test")
CLASSES = ("no", "yes")
ROW = Row(
    name="stripes",
    title="Stripes",
    data="stripes",
    files=(),
    options=RECORDS,
    # One representative cannot tell two classes apart.
    tries=tried(RECORDS, "nearest-1", "nearest-30"),
    wanted=(Wanted(least=0.9, epsilon={"cap": 1.0}),),
)


def stripes(count: int, seed: int, *, wrong: bool = False) -> Dataset:
    """Records whose class tells on which of four stripes they lie; or all labels turned round."""
    random = np.random.default_rng(seed)
    stripe = random.integers(0, 4, count)
    columns = stripe + random.normal(0, 0.05, count), random.normal(0, 0.05, count)
    labels = (stripe % 2).astype(np.int64)
    return Dataset(Table(("x", "y"), columns), 1 - labels if wrong else labels, CLASSES)


def split(*, wrong: bool) -> Split:
    return Split(
        # So many that the noise of a trial is far below its votes: no draw decides.
        private=stripes(20_000, 1, wrong=wrong),
        public=stripes(600, 2),
        test=stripes(100, 3, wrong=wrong),
        note="",
    )


def geometric_deviation(epsilon: float) -> float:
    """The standard deviation of two-sided geometric noise for an altered record, added up."""
    values = np.arange(-2_000, 2_001)
    law = np.exp(-epsilon / 2 * np.abs(values))
    return float(np.sqrt((law * values**2).sum() / law.sum()))


@pytest.mark.parametrize("ratio", [1, 6, 12])
def test_fewer_voters_stand_to_the_noise_as_all_records_do(ratio: int) -> None:
    pure = replace(RECORDS, epsilon=0.5)
    found = trial_options(pure, private=500 * ratio, voters=500)
    assert geometric_deviation(found.epsilon) == pytest.approx(geometric_deviation(0.5) / ratio)

    for each in tried(pure, "dense-64"):
        mu = math.sqrt(mu_squared_from_epsilon(0.5, each.delta))
        found = trial_options(each, private=500 * ratio, voters=500)
        assert delta_from_epsilon(ratio * mu, found.epsilon) == pytest.approx(each.delta, rel=1e-6)


def test_a_trial_has_a_stated_law_of_noise() -> None:
    unsaid = replace(RECORDS, delta=1e-5, noise_law=None)
    with pytest.raises(UsageError, match="law of the noise"):
        trial_options(unsaid, private=10, voters=5)
    for row in ROWS.values():
        for each in row.tries:
            trial_options(each, private=10, voters=5)


@pytest.mark.parametrize("wrong", [False, True])
def test_the_better_of_two_is_chosen_whatever_private_and_test_labels_say(
    tmp_path: Path, wrong: bool
) -> None:
    """With clean stripes the better try is right on 90 % and more, the other on some half of the records."""
    best, why = choose(ROW, split(wrong=wrong), work=tmp_path, screen=SCREEN, trials=1)
    assert best == ROW.tries[1]
    assert "representatives 1 0." in why
    good = float(why.split("representatives 30 ")[1])
    assert good > 0.9


def test_a_result_tells_what_was_chosen_and_is_refused_once_the_tries_are_others() -> None:
    told = result(row="ag-news")
    chosen = {"chosen": {"representatives": 77}, "choice": "accuracy in 5 trials each"}
    page = render({"ag-news": replace(told, settings={**told.settings, **chosen})})
    assert "representatives 77" in page
    assert "- chosen in the row: accuracy in 5 trials each" in page
    with pytest.raises(DataError, match=r"\(tries changed\)"):
        render({"ag-news": replace(told, settings={**told.settings, "tries": []})})
