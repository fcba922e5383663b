"""The server sends its encoder to parties that have none, and to no other."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

import pytest

from aggregator_server.exchange import conversation
from aggregator_server.exchange.attendance import Keyring
from aggregator_server.exchange.carrier import Distribution
from aggregator_server.exchange.exchange import Exchange
from aggregator_server.exchange.outbox import Request
from benchmarks.methods.local_grid import LocalGrid
from party.flower.connection import make_client_app
from pate.campaign.roster import RosterParty
from protos.public_set import PackedEncoder
from tests.aggregator_server.exchange.test_exchange import Quick
from tests.party.voting.test_encoders import CLASSES, WIDTH, Party
from tests.support.campaign_messages import SERVER_KEY, request_in
from tests.support.encoders import tiny_encoders as tiny
from tests.support.server.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pate.runtime.screen import Screen


class House:
    """Three parties over photographs, of which only the first has the encoder's folder."""

    def __init__(self, root: Path) -> None:
        self.lines = Lines()
        self.said = self.lines.said
        self.folder = tiny.image_folder(root / "encoder", 16, WIDTH)
        self.parties = []
        self.pieces: dict[str, list[int]] = {}
        for at, own in enumerate((True, False, False)):
            (root / f"p{at}").mkdir()
            party = Party(root / f"p{at}", self.folder, own=own)
            party.voter._name = f"p{at}"
            self.parties.append(party)
        self.grid = LocalGrid([make_client_app(self._counted(party)) for party in self.parties])

    def _counted(self, party: Party) -> Callable[[bytes], bytes]:
        taken = self.pieces.setdefault(party.voter._name, [])

        def handle(body: bytes) -> bytes:
            request = request_in(body)
            if request.WhichOneof("body") == "public_piece" and request.public_piece.encoder:
                taken.append(request.public_piece.index)
            return party.voter.handle(body)

        return handle

    def exchange(
        self, *, sends: bool = True, enrolled: Callable[[], Mapping[str, bytes]] | None = None
    ) -> Exchange:
        return Exchange(
            Quick(self.grid), self.parties[0].campaign.offer(), Keyring(SERVER_KEY, enrolled),
            Distribution(list), cast("Screen", self.lines),
            encoder=Distribution(lambda: PackedEncoder(self.folder), encoder=True) if sends else None,
        )  # fmt: skip

    def key(self, at: int) -> bytes:
        return self.parties[at].voter._identity.public_key().public_bytes_raw()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    with contextlib.closing(made.grid):
        yield made


def test_parties_without_a_copy_get_it_and_then_describe_themselves(house: House) -> None:
    found = house.exchange().gather(3)
    assert [party.name for party in found] == ["p0", "p1", "p2"]
    assert all(party.classes == CLASSES for party in found)
    assert {name: sorted(taken) for name, taken in house.pieces.items()} == {
        "p0": [], "p1": [0, 1, 2, 3], "p2": [0, 1, 2, 3],
    }  # fmt: skip
    assert sum("has no copy of the encoder: it is sent" in line for line in house.said) == 2


def test_who_is_not_enrolled_gets_no_piece(house: House) -> None:
    exchange = house.exchange(enrolled=lambda: {"p0": house.key(0), "p1": house.key(1)})
    assert [party.name for party in exchange.gather(2)] == ["p0", "p1"]
    while not any("p2 is not enrolled with that key" in line for line in house.said):
        exchange.look()
        exchange.carrier.pause(0)
    assert house.pieces["p2"] == []


def test_without_a_folder_the_server_says_who_refused(house: House) -> None:
    exchange = house.exchange(sends=False)
    assert [party.name for party in exchange.gather(1)] == ["p0"]
    while sum("refused (RefusedError)" in line for line in house.said) < 2:
        exchange.look()
        exchange.carrier.pause(0)
    assert "--encoder" in house.parties[1].said[-1]


def test_they_are_served_one_after_the_other_if_they_are_many(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "_MOST_SENT", 1)
    exchange = house.exchange()
    seen = set()
    while len(exchange.here) < 3:
        exchange.look()
        seen.add(len(exchange._outbox.open("encoder_piece")))
        exchange.carrier.pause(0)
    assert seen == {0, 1}
    assert len(house.pieces["p1"]) == len(house.pieces["p2"]) == 4


def test_who_is_not_on_the_roster_gets_no_piece(house: House) -> None:
    exchange = house.exchange()
    exchange._who.fix_roster([RosterParty("p0", house.key(0).hex(), 100, "record")])
    while sum("is not on the roster" in line for line in house.said) < 2:
        exchange.look()
        exchange.carrier.pause(0)
    assert exchange.here in ([], ["p0"])
    assert house.pieces == {"p0": [], "p1": [], "p2": []}


def test_a_node_that_returns_is_not_held_back_by_what_was_lost(house: House) -> None:
    exchange = house.exchange()
    for (
        node
    ) in house.grid.get_node_ids():  # pieces that it was sent before it left, and never answers
        lost = Request(node, "encoder_piece", None, None, left=True)
        exchange._outbox._open[node, b"lost"] = lost
    assert len(exchange.gather(3)) == 3
