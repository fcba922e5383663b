"""Kills during labelling: nothing is lost, and nothing is released twice."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from aggregator_server.campaign.labelling import CHUNK
from aggregator_server.ledger.state import ReleasedLabel
from aggregator_server.ledger.verify import read_campaign, verify
from pate.accounting.composition import total_cost
from tests.support.server.campaigns import label_to_the_end
from tests.support.world.in_process import killed_at


@pytest.mark.parametrize("failpoint", ["charge-recorded", "noise-drawn", "release-recorded"])
def test_a_killed_campaign_goes_on_where_its_ledger_stands(tmp_path: Path, failpoint: str) -> None:
    path = tmp_path / "ledger.sqlite"
    before: dict[int, ReleasedLabel] = {}
    spent, deaths = Fraction(0), 0
    # Twice in the second chunk of a process, then without a failpoint to the end.
    for place in (f"{failpoint}:2", f"{failpoint}:2", None):
        assert killed_at(place, partial(label_to_the_end, path)) == (place is not None)
        deaths += place is not None
        told = verify(path)
        state, _ = read_campaign(path)
        assert told.head.seq > 0
        assert before.items() <= state.labels.items(), "a label changed or went away"
        assert len(state.labels) > len(before)
        assert spent < state.spent <= state.cap
        before, spent = dict(state.labels), state.spent
        # A death after the charge was durable and before the release was costs that charge.
        open_ = state.open_charge.cost if state.open_charge else 0
        wasted = 0 if failpoint == "release-recorded" else deaths
        worst = total_cost(state.currency, state.mechanism(1).worst)
        assert state.wasted + open_ == wasted * CHUNK * worst
    assert (told.phase, len(told.labels)) == ("finished", len(before))


def test_a_campaign_that_is_not_killed_wastes_nothing(tmp_path: Path) -> None:
    """The control: the same process without a failpoint."""
    path = tmp_path / "ledger.sqlite"
    label_to_the_end(path)
    assert verify(path, read_campaign(path)[0].head).wasted == 0
