"""A process killed between every two steps, on either side: the same bytes, and nothing counted twice."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from aggregator_server.exchange import exchange as exchange_module
from aggregator_server.ledger.verify import verify
from pate.runtime.failpoints import NAMES as POINTS
from tests.support.envelopes import NAMES, Crash, Play

if TYPE_CHECKING:
    from pathlib import Path

#: Where a process dies: module, failpoint.
PLACES = (
    ("aggregator_server.envelopes.wire", "envelope-noted"),
    ("aggregator_server.envelopes.wire", "answer-taken"),
    ("aggregator_server.campaign.runner", "roster-recorded"),
    ("aggregator_server.campaign.runner", "votes-arrived"),
    ("aggregator_server.campaign.runner", "votes-recorded"),
    ("aggregator_server.campaign.runner", "campaign-closed"),
    ("party.envelopes.answering", "envelope-answered"),
    ("party.envelopes.answering", "envelope-recorded"),
    ("party.voting.site", "offer-recorded"),
    ("party.voting.site", "answer-recorded"),
    ("party.voting.site", "ending-recorded"),
    ("party.ledger.entry_log", "party-entry-written"),
    ("pate.runtime.home", "file-drafted"),
)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "_FAREWELL_S", 0.1)
    monkeypatch.setattr(exchange_module, "_RETURN_S", 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "point"), PLACES)
def test_the_same_command_again_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, point: str
) -> None:
    """Whoever is there dies at every second passage, until all is done."""
    play = Play(tmp_path, names=NAMES[:3])
    killed_until_done(play, monkeypatch, module, point)
    assert {name.split(".")[1] for name in play.files} == {"round-1", "round-2", "round-3"}


#: The same of masked sums.
MASKED = (
    ("aggregator_server.envelopes.wire", "answer-taken"),
    ("aggregator_server.campaign.runner", "opening-listed"),
    ("aggregator_server.campaign.runner", "votes-arrived"),
    ("party.envelopes.answering", "envelope-recorded"),
    ("party.voting.ahead", "bundles-kept"),
    ("party.ledger.entry_log", "party-entry-written"),
)


#: Failpoints that have their case here.
FAILPOINTS = {point for _, point in (*PLACES, *MASKED)}


@pytest.mark.slow
@pytest.mark.parametrize(("module", "point"), MASKED)
def test_a_masked_sum_is_unmasked_once_with_one_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, point: str
) -> None:
    play = Play(tmp_path, names=NAMES[:4], aggregation="masked", min_parties=3, colluders=1)
    killed_until_done(play, monkeypatch, module, point)
    for name in play.names:
        (record,) = play.ledger(name).campaigns()
        assert [each.survivors for each in record.opened] == [play.names]


def killed_until_done(play: Play, monkeypatch: pytest.MonkeyPatch, module: str, point: str) -> None:
    """Start whatever was killed again, until the campaign is over on both sides."""
    assert point in POINTS
    passed: Counter[object] = Counter()
    died: set[int] = set()

    def reach(name: str) -> None:
        if name != point:
            return
        passed[name] += 1
        if passed[name] % 2 == 1 and len(died) < 6:
            died.add(passed[name])
            raise Crash

    monkeypatch.setattr(importlib.import_module(module), "reach", reach)
    for _ in range(100):
        try:
            play.serve()
            while play.carry():
                play.note()
        except Crash:
            continue
        break
    assert died
    assert play.responders() == play.names
    verify(play.path)
    for name in play.names:
        ledger_ = play.ledger(name)
        ledger_.verify()
        (record,) = ledger_.campaigns()
        numbers = [each.number for each in record.files]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(record.batches) == 1
