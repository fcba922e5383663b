"""What a party's screen says at the end of a campaign."""

from __future__ import annotations

from dataclasses import replace

import pytest

from party.voting.ending import Ending, ended_in_words
from pate.campaign.choices import EARLY_ENDS

ENDING = Ending(
    campaign="c1" * 16,
    queries_asked=40,
    labels_released=9,
    epsilon=1.5,
    delta=1e-5,
    unit="record",
    adjacency="one record added or removed",
    records_vote=False,
    observer="public",
    votes_given=40,
)


def test_an_end_says_what_was_released_and_at_most_at_what_cost() -> None:
    assert ended_in_words(ENDING) == (
        "the campaign has ended: 40 queries asked, 9 labels released, at most epsilon 1.5 at delta 1e-05 "
        "(unit: record; adjacency: one record added or removed; observer: public)"
    )


@pytest.mark.parametrize("cause", EARLY_ENDS)
def test_an_end_before_any_votes_says_why_and_what_left(cause: str) -> None:
    said = ended_in_words(replace(ENDING, queries_asked=0, labels_released=0, cause=cause))
    assert said == (
        f"the campaign has ended before it asked for votes: {EARLY_ENDS[cause]}. No vote of ours has left "
        "for it; its coordinator may start another one"
    )
