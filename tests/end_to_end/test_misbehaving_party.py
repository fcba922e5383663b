"""Misbehaving parties through a real SuperNode: each is named in one line, the others continue."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from aggregator_server.results.report import verify
from party.flower.connection import Connection, make_client_app
from party.flower.supernode import Server
from party.identity.keys import identity_key
from party.voting.voter import Voter
from party.voting.voters import ReadyVoters
from pate.noise.exact import SystemNoise
from protos import wire
from protos.bounds import MAX_MESSAGE
from protos.pate.v1 import vote_pb2
from tests.support.campaign_messages import request_in, site
from tests.support.processes.programs import until
from tests.support.world.commands import KINDS, Campaign, Homes, one_body
from tests.support.world.direct import DirectConnection
from tests.support.world.in_process import Unanimous
from tests.support.world.sites import TEACHERS, Sites

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


QUERIES: Final = 20
#: Of teachers of digits that need no training.
VOTES: Final = Unanimous(TEACHERS, classes=tuple("0123456789"), schema="images 8x8x1")


@dataclass
class Rogue:
    """A party that follows the protocol until votes are asked for."""

    name: str
    home: Path
    server: str
    misdeed: Callable[[Rogue, bytes], bytes]
    #: Whether it connects by a SuperNode.
    flower: bool
    leave: threading.Event = field(default_factory=threading.Event)
    earlier: bytes = b""

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        self._voter = Voter(
            name=self.name, identity=identity_key(self.home), voters=ReadyVoters(VOTES),
            home=self.home, site=site(self.home), noise=SystemNoise(),
        )  # fmt: skip
        connection = (
            Connection(Server(self.server), make_client_app(self._handle), self.home / "flower")
            if self.flower
            else DirectConnection(Server(self.server), self._handle, self.home)
        )
        self._thread = threading.Thread(target=connection.run, args=(self.leave.is_set,))
        self._thread.start()

    def _handle(self, body: bytes) -> bytes:
        reply = self._voter.handle(body)
        request = request_in(body)
        if request.WhichOneof("body") == "ask":
            return self.misdeed(self, reply)
        self.earlier = reply
        return reply

    def signed(self, body: bytes, change: Callable[[vote_pb2.Reply], object]) -> bytes:
        """Return a reply with a change, signed with the party's own key."""
        envelope = vote_pb2.SignedReply.FromString(body)
        reply = vote_pb2.Reply.FromString(envelope.body)
        change(reply)
        return wire.sign_reply(reply, identity_key(self.home))

    def stop(self) -> None:
        self.leave.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def garbage(rogue: Rogue, reply: bytes) -> bytes:
    return os.urandom(1000)


def twice(rogue: Rogue, reply: bytes) -> bytes:
    """Replay its answer to an earlier request."""
    return rogue.earlier


def another(rogue: Rogue, reply: bytes) -> bytes:
    def change(said: vote_pb2.Reply) -> None:
        said.campaign = b"x" * len(said.campaign)

    return rogue.signed(reply, change)


def stranger(rogue: Rogue, reply: bytes) -> bytes:
    """In another party's name."""

    def change(said: vote_pb2.Reply) -> None:
        said.party = "north"

    return rogue.signed(reply, change)


def too_many(rogue: Rogue, reply: bytes) -> bytes:
    def change(said: vote_pb2.Reply) -> None:
        said.votes.counts = bytes([TEACHERS + 1]) + said.votes.counts[1:]

    return rogue.signed(reply, change)


def huge(rogue: Rogue, reply: bytes) -> bytes:
    return bytes(MAX_MESSAGE + 1)


def hung(rogue: Rogue, reply: bytes) -> bytes:
    rogue.leave.wait(300)
    return reply


#: What each does, and what the server says of it.
MISDEEDS: Final = {
    "garbage": (garbage, "sent an invalid reply"),
    "twice": (twice, "a reply answers another request"),
    "another": (another, "a reply is for another campaign"),
    "stranger": (stranger, "signed by north, not by the party that was asked"),
    "toomany": (too_many, "sent an invalid reply"),
    "huge": (huge, "failed (unreadable)"),
    "hung": (hung, "continuing without hung"),
}


#: Those that are tried through real SuperNodes, too: what Flower carries, or waits for, is in them.
THROUGH_FLOWER: Final = ("garbage", "huge", "hung")


@contextmanager
def rogues(port: int, folder: Path, names: Sequence[str], *, flower: bool) -> Iterator[None]:
    """Let parties that do wrong take part."""
    address, made = f"127.0.0.1:{port}", list[Rogue]()
    try:
        for name in names:
            made.append(Rogue(name, folder / name, address, MISDEEDS[name][0], flower))
        yield
    finally:
        for rogue in made:
            rogue.leave.set()
        for rogue in made:
            rogue.stop()


def check(text: str, place: Path, names: Sequence[str], honest: Sequence[str]) -> None:
    """Each is named with its fault, and the sum is of the others."""
    for name in names:
        words = MISDEEDS[name][1]
        said = [line for line in text.splitlines() if words in line and name in line]
        # Where asking again may help, it is asked three times.
        assert 1 <= len(said) <= 3, (name, text)
    assert "Traceback" not in text
    votes = one_body(place, "votes")
    assert votes["responders"] == list(honest)
    assert votes["teachers"] == len(honest) * TEACHERS
    told = verify(place, None)
    assert told["phase"] == "finished"
    assert told["labels_released"] == QUERIES


def test_each_is_named_in_one_line_and_the_others_go_on(homes: Homes, tmp_path: Path) -> None:
    honest = ("north", "south")
    names = [name for name in MISDEEDS if name != "huge"]  # what is too large, Flower's wire says
    with homes.play(tmp_path / "campaign", "plain", queries=QUERIES) as play:
        server = play.serve(
            "--parties", ",".join((*honest, *names)), "--min-parties", "2", "--patience", "4"
        )
        parties = [play.party(name) for name in honest]
        with rogues(play.port, tmp_path / "rogues", names, flower=False):
            server.says("continuing without hung")
        for command in (server, *parties):
            command.ends(0)
        check(server.text, play.place, names, honest)


@pytest.mark.slow
@pytest.mark.usefixtures("children")
def test_the_same_through_real_supernodes(sites: Sites, tmp_path: Path) -> None:
    with Campaign(tmp_path, sites) as campaign:
        server = campaign.serve(
            sites.public(1000, QUERIES), *KINDS["plain"], "--min-parties", "1", "--patience", "45",
            parties=",".join(("north", *THROUGH_FLOWER)),
        )  # fmt: skip
        north = campaign.party("north")
        with rogues(campaign.port, tmp_path / "rogues", THROUGH_FLOWER, flower=True):
            words = "continuing without hung"
            until(lambda: words in server.text, f"the server says {words!r}", 240)
        for program in (server, north):
            program.ends(0)
        check(server.text, campaign.place, THROUGH_FLOWER, ("north",))
