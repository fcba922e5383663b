"""A student of several campaigns of one series."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.errors import DataError, UsageError
from pate.formats.labels import LabelSet
from pate.formats.noisy_counts import NoisyVotes
from pate.formats.privacy_statement import ObserverStatement, adjacency_of
from student.card import promise_of
from student.options import TrainOptions
from student.series import together
from tests.party.voting.test_neighbour_voter import CLASSES
from tests.support.party.offers import statement

SIGMA = 4.0


def campaign(number: int, queries: list[int], counts: list[list[int]], **changes: Any) -> LabelSet:
    fields: dict[str, Any] = {
        "campaign": bytes([number]).hex() * 16,
        "series": "monthly",
        "series_key": "3" * 64,
        "adjacency": adjacency_of("record", records_vote=True, series=True),
        "unit": "record",
    }
    of_set = {name: changes.pop(name) for name in ("public_set", "classes") if name in changes}
    code = changes.pop("code", "nearest")
    noisy = NoisyVotes(np.array(queries), np.array(counts), changes.pop("sigma", SIGMA), code)
    made: dict[str, Any] = {
        "campaign": bytes([number]) * 16, "classes": CLASSES, "public_set": b"p" * 32,
        "queries": 10, "rows": (), "privacy": statement(**(fields | changes)).to_json(),
        "noisy": noisy,
    }  # fmt: skip
    return LabelSet(**(made | of_set))


def test_a_series_of_one_name_at_two_servers_is_two_series() -> None:
    """Their costs add up: a unit votes once at each of them."""
    rounds = [campaign(at, [0], [[9, 0]], series_key=f"{at}" * 64) for at in (1, 2)]
    with pytest.raises(DataError, match="their series_key differs"):
        together(rounds)
    rounds[1] = campaign(2, [0], [[9, 0]], series_key="1" * 64)
    assert json.loads(together(rounds).privacy)["series_key"] == "1" * 64


JANUARY = campaign(1, [0, 2], [[30, 0], [0, 6]])
FEBRUARY = campaign(2, [0, 2, 5], [[10, 4], [1, 30], [9, 0]])


def test_of_several_labels_counts_are_added_and_no_query_gets_a_label() -> None:
    made = together([campaign(at, [0], [[900, 0]], code="nearest labels-1") for at in (1, 2)])
    assert made.noisy is not None
    assert made.noisy.counts.tolist() == [[1800, 0]]
    assert made.rows == ()
    assert made.content_in_words == "noisy counts of 1 representative"


def test_counts_are_added_and_labels_made_of_the_sum() -> None:
    made = together([JANUARY, FEBRUARY])
    assert made.noisy is not None
    assert made.noisy.queries.tolist() == [0, 2, 5]
    assert made.noisy.counts.tolist() == [[40, 4], [1, 36], [9, 0]]
    # Two noises of 4 votes, and rounding.
    assert math.sqrt(32) <= made.noisy.sigma < 5.7
    # Margins of 36 and 35 exceed twice the spread of a difference, 17; one of 9 does not.
    assert [(row.query, row.label, row.source) for row in made.rows] == [
        (0, 0, "records"), (2, 1, "records"),
    ]  # fmt: skip
    assert made.campaign == FEBRUARY.campaign


def test_older_votes_may_count_less() -> None:
    made = together([JANUARY, JANUARY_LATER, FEBRUARY], half_life=1.0)
    assert made.noisy is not None
    assert made.noisy.counts.tolist() == [
        [28, 4],
        [1, 35],
        [9, 0],
    ]  # 30/4 + 21/2 + 10, 6/4 + 7/2 + 30
    assert made.noisy.sigma == pytest.approx(math.sqrt(16 * (1 + 1 / 4 + 1 / 16) + 1 / 4))


JANUARY_LATER = campaign(3, [0, 2], [[21, 0], [0, 7]])


def test_one_campaign_is_as_it_was() -> None:
    assert together([JANUARY]) is JANUARY
    with pytest.raises(UsageError, match="two or more"):
        together([JANUARY], half_life=2.0)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="above 0"):
            together([JANUARY, FEBRUARY], half_life=wrong)


def test_the_statement_is_that_of_the_most_expensive_campaign() -> None:
    dear = campaign(4, [0], [[9, 0]], epsilon=3.0)
    none = (ObserverStatement("public", None, None, "no guarantee: seeded"),)
    simulated = campaign(5, [0], [[9, 0]], statements=none)
    for order in ([JANUARY, dear, FEBRUARY], [dear, JANUARY], [FEBRUARY, dear]):
        assert together(order).privacy == dear.privacy
    assert together([dear, simulated, JANUARY]).privacy == simulated.privacy
    promise = promise_of(json.loads(together([JANUARY, FEBRUARY]).privacy))
    assert "in all campaigns of series 'monthly' with its composition and no larger cap" in promise


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"series": "weekly"}, "series differs"),
        ({"delta": 1e-6}, "delta differs"),
        ({"composition": "zcdp"}, "composition differs"),
        ({"unit": "patient"}, "unit differs"),
        ({"public_set": b"q" * 32}, "one public set"),
        ({"classes": ("b", "a")}, "one class list"),
    ],
)
def test_campaigns_that_are_not_of_one_series_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        together([JANUARY, campaign(2, [0], [[9, 0]], **changes)])


def test_campaigns_without_a_series_add_up_and_are_refused() -> None:
    words = adjacency_of("record", records_vote=True)
    alone = {"series": None, "series_key": None, "adjacency": words}
    two = [campaign(number, [0], [[9, 0]], **alone) for number in (1, 2)]
    with pytest.raises(DataError, match="costs of others add up"):
        together(two)
    with pytest.raises(DataError, match="one is there twice"):
        together([JANUARY, JANUARY])


def test_half_life_is_for_several_files(tmp_path: Path) -> None:
    folders: dict[str, Any] = {"public": tmp_path, "out": tmp_path / "student"}
    with pytest.raises(UsageError, match="--half-life"):
        TrainOptions(**folders, server="127.0.0.1:1", half_life=2.0)
    assert TrainOptions(**folders, labels=[tmp_path], half_life=2.0).half_life == 2.0
