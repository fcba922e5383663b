"""The output of ``pate-server status`` fits a terminal, and names each figure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aggregator_server.exchange.presence import FILE, Presence, noting
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.results.report import describe, describe_state, show
from tests.support.server.campaigns import label, make_spec, start


@pytest.mark.parametrize("width", [80, 100])
def test_the_screen_of_a_campaign(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with start(tmp_path / "ledger.db", make_spec(epsilon=7.0)) as ledger:
        label(ledger)
        state = ledger.state()
    found = describe_state(state)
    show(found | {"epsilon": 6.999999999995904, "budget_spent": 0.9965, "parties": ["[red]avon"]})
    said = capsys.readouterr().out
    rows = dict(
        re.findall(r"^│ (\S.*?) +│ (.*?) *│$", said.partition("adjacency:")[0], re.MULTILINE)
    )
    assert rows["towards the public"] == "epsilon 7 at delta 1e-05 per record"
    assert rows["towards the server"] == "nothing is promised"
    assert rows["charged"] == "99.65 % of the privacy budget"
    assert "[red]avon" in rows["parties"]
    assert all(len(line) <= width for line in said.splitlines())
    # Long values are below the table; the head can be copied in one piece.
    *_, head = said.splitlines()
    assert head.endswith(f" {state.head}")
    assert "…" not in said
    assert " ".join(said.split()).count(str(found["adjacency"])) == 1


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


def test_before_the_roster_nothing_is_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.create(tmp_path / "ledger.db", make_spec()) as ledger:
        show(describe_state(ledger.state()))
    said = capsys.readouterr().out
    assert "gathering" in said
    assert "epsilon" not in said
    assert "charged" not in said
