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
    ("aggregator_server.envelopes.wire", "envelope-written"),
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
    play = Play(tmp_path, names=NAMES[:3])
    for _ in range(100):
        try:
            play.serve()
            while play.carry():
                play.note()
        except Crash:
            continue
        break
    assert died
    assert play.responders() == NAMES[:3]
    verify(play.path)
    for name in NAMES[:3]:
        ledger_ = play.ledger(name)
        ledger_.verify()
        (record,) = ledger_.campaigns()
        assert [each.number for each in record.files] == [1, 2, 3]
        assert len(record.batches) == 1
    assert {name.split(".")[1] for name in play.files} == {"round-1", "round-2", "round-3"}
