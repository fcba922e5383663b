"""The output of ``pate-server status`` fits a terminal, and names each figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregator_server.exchange.presence import FILE, Presence, noting
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.results.report import describe, show
from tests.support.server.campaigns import make_spec, start


def test_who_is_here_while_parties_gather(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown: list[Presence] = []
    with Ledger.create(tmp_path / "ledger.db", make_spec()) as ledger:
        note = noting(tmp_path, lambda: ledger.state().phase, shown.append)
        assert "present" not in describe(tmp_path)
        note(Presence(frozenset("a"), refused=frozenset("d"), preparing=frozenset("cb")))
    show(describe(tmp_path))
    assert "3 of 4 (a; preparing: b, c); refused: d; since 20" in capsys.readouterr().out
    with start(tmp_path / "later" / "ledger.db") as ledger:
        note = noting(tmp_path, lambda: ledger.state().phase, shown.append)
        note(Presence(frozenset("ab")))
    assert not (tmp_path / FILE).exists()
    assert [len(each.here) for each in shown] == [1, 2]
