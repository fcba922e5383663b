"""The messages of a party that waits for an absent server."""

from __future__ import annotations

from pathlib import Path

import pytest
from flwr.clientapp import ClientApp

from party.flower import connection as resident
from party.flower.connection import Connection, Timeouts
from party.flower.supernode import Server
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.session import of_absence
from pate.errors import UnreachableError
from pate.runtime.child import free_port
from tests.support.party.offers import answer, joining, queries, settled


def test_the_line_says_what_our_ledger_knows(tmp_path: Path) -> None:
    ledger = PartyLedger(tmp_path / LEDGER_FILE)
    assert "no campaign was joined yet" in of_absence(ledger)
    answer(ledger, settled(), queries(0, 3))
    assert of_absence(ledger).startswith(
        "campaign c1c1c1c1 may have ended while this party was away"
    )
    ledger.join(joining(campaign="d2" * 16))
    assert "campaign d2d2d2d2 may have ended" in of_absence(ledger)
    ledger.end("c1" * 16, queries_asked=3, labels_released=3, epsilon=1.5, delta=1e-5)
    # What was heard last is what whoever waits here is about.
    assert of_absence(ledger).startswith("campaign c1c1c1c1 has ended, according to our ledger")


@pytest.mark.parametrize(("absence", "max_wait", "times"), [(0.0, 2.0, 1), (3600.0, 0.5, 0)])
def test_it_is_said_once_when_the_server_is_away_for_long(
    tmp_path: Path, absence: float, max_wait: float, times: int
) -> None:
    said: list[str] = []
    with pytest.raises(UnreachableError, match="gave up after"):
        Connection(
            Server(f"127.0.0.1:{free_port()}"),
            ClientApp(),
            tmp_path,
            timeouts=Timeouts(server=max_wait, absence=absence),
            on_absence=lambda: said.append("away"),
        ).run(lambda: False)
    assert len(said) == times


class Away:
    """Stands in for the clock, a server that never answers, and the SuperNode that waits for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(resident, "time", self)
        monkeypatch.setattr(Server, "probe", self.probe)
        monkeypatch.setattr(resident, "SuperNode", lambda *_: self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def probe(self, *, within: float) -> None:
        self.now += min(within, 5.0)
        raise UnreachableError("nobody answers")

    def stop(self) -> None: ...


@pytest.mark.parametrize("max_wait", [3.0, 17.0, 90.0, 3600.0])
def test_a_server_is_waited_for_as_long_as_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_wait: float
) -> None:
    away, said = Away(monkeypatch), list[str]()
    connection = Connection(
        Server("127.0.0.1:1"),
        ClientApp(),
        tmp_path,
        timeouts=Timeouts(server=max_wait),
        on_event=said.append,
    )
    with pytest.raises(UnreachableError, match="gave up after"):
        connection.run(lambda: False)
    # The first look ends after 5 seconds, and the last one may take one.
    assert max_wait <= away.now - 1005 <= max_wait + 1.5
    assert len(said) <= 2 + max_wait / 25 + 6
