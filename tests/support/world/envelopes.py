"""A campaign by envelope on one machine: real voters, real ledgers, and a carrier that tests direct."""

from __future__ import annotations

import contextlib
import copy
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from aggregator_server.exchange.attendance import Keyring
from aggregator_server.exchange.by_envelope import KnownKeys
from aggregator_server.exchange.carrier import Carrier
from aggregator_server.exchange.folders import Both, Folders
from aggregator_server.exchange.store import FILE, Store
from aggregator_server.identities import Identities
from aggregator_server.ledger.encoding import Probabilities
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.state import CampaignState
from aggregator_server.reaching import enrolled_of
from party.envelopes import Answered, Answers
from party.identity.enrolment import enrol
from party.identity.keys import identity_key
from party.voting.site import Site
from pate.campaign.spec import CampaignSpec
from pate.data.values import Images
from pate.errors import PateError
from pate.formats.enrolment import Answer as EnrolmentAnswer
from tests.support.campaign_messages import SERVER_KEY
from tests.support.server.lines import Lines
from tests.support.world.in_process import TEACHERS, Parties, World

PUBLIC = Images(np.random.default_rng(6).integers(0, 255, (6, 4, 4, 1), dtype=np.uint8))
NAMES = ("a", "b", "c", "d", "e")
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


class StuckError(Exception):
    """The server waits, and no file is under way."""


class Play(World):
    """A campaign by envelope.

    ``carrier``: called while the server waits; moves files and has parties answer. It returns
    whether anything happened; when it did not, six times, the server is stuck; ``files``: bytes of
    every file that ever appeared, by name; ``now``: the clock of all; ``student``: makes the
    predictions for a round, (queries, classes) float32; ``by_envelope``: who takes part by
    envelope; the others are online.
    """

    def __init__(self, root: Path, names: Sequence[str] = NAMES, **terms: Any) -> None:
        super().__init__(root, names, PUBLIC)
        self.folder = root / "envelopes"
        self.days: float | None = None
        self.now = NOW
        self.files: dict[str, bytes] = {}
        self.carrier: Callable[[], bool] = self.carry
        self.enrolled: Callable[[], dict[str, bytes]] | None = None
        self.identities: Identities | None = None
        self.student: Callable[[int], Probabilities] | None = None
        self.by_envelope = self.names
        self.path = self.create(**({"aggregation": "plain"} | terms))

    def enrol(self, identities: Identities | None = None) -> Play:
        """Enrol all parties by files, or take part with the parties of another campaign."""
        if identities is None:
            identities = Identities.create(self.root / "server", [], 9092, self.now)
            for name in self.names:
                file = self.root / f"{name}.answer.json"
                enrol(identities.invite(name, now=self.now), self.home(name), file=file, send=False)
                identities.admit(EnrolmentAnswer.from_json(file.read_bytes()), self.now)
        self.identities, self.enrolled = identities, enrolled_of(identities)
        return self

    def copied(self, root: Path) -> Play:
        """Return a campaign that has come as far, in another folder; nobody of this one may be at work."""
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        made = copy.copy(self)
        made.root, made.folder = root, root / "envelopes"
        made.path = root / self.path.relative_to(self.root)
        made.lines, made.files = Lines(), dict(self.files)
        made.parties, made.carrier = Parties(root, made.voter), made.carry
        return made

    # --- the server --------------------------------------------------------------------------

    def spec(self) -> CampaignSpec:
        with Ledger.open(self.path) as ledger:
            return ledger.state().spec

    def folders(self) -> Folders:
        store = Store(
            self.path.parent / FILE, self.by_envelope, nonce_key=b"n" * 32, days=self.days,
            clock=lambda: self.now,
        )  # fmt: skip
        made = Folders(store, self.folder, self.spec().id, self.keys(), b"s" * 32, self.lines.say)
        vars(made)["pause"] = self.pause()
        return made

    def keys(self) -> Keyring:
        return Keyring(SERVER_KEY, self.enrolled)

    def link(self) -> Carrier:
        files, online = self.folders(), super().link()
        return Both(files, online) if self.by_envelope != self.names else files

    def serve(self, number: int = 0, **how: Any) -> None:
        """Run one server process from the state of ledger and store to the end."""
        known = None
        if self.identities is not None:
            known = KnownKeys(self.path.parent, self.spec(), self.identities, self.lines.say)
        super().serve(number, keys=known, **how)
        self.note()

    def look(self) -> None:
        """Run a server until it waits for files, or has ended."""
        with contextlib.suppress(StuckError):
            self.serve()

    def pause(self) -> Callable[[float], None]:
        idle = 0

        def pause(_: float) -> None:
            nonlocal idle
            self.note()
            idle = 0 if self.carrier() else idle + 1
            self.note()
            if idle > 5:  # a server that starts again takes some looks to be where it was
                raise StuckError(self.lines.said[-1])

        return pause

    def predict(self, round_: int, state: CampaignState) -> Probabilities:
        return super().predict(round_, state) if self.student is None else self.student(round_)

    def close_step(self, *, looked: bool = False) -> list[str]:
        """Stop waiting for the step that is out.

        ``looked``: whether the server has looked into its inbox since: what comes now is late.
        """
        store = Store(self.path.parent / FILE, clock=lambda: self.now)
        found = store.end_wait()
        if looked:
            store.close_due()
        return found

    def votes_on_disk(self) -> list[str]:
        """Where the server still has replies to the steps of sums: requests, rounds, raw bytes."""
        with closing(sqlite3.connect(self.path.parent / FILE)) as db:
            found = [
                f"{kind} of {party}"
                for kind, party in db.execute(
                    "SELECT kind, party FROM requests WHERE kind LIKE 'ask%' AND reply IS NOT NULL"
                )
            ]
            found += [
                f"round {number}"
                for (number,) in db.execute("SELECT number FROM rounds WHERE state IS NOT NULL")
            ]
        votes = bytes([TEACHERS, 0] * len(PUBLIC))
        return found + [
            path.name
            for path in sorted(self.path.parent.glob(f"{FILE}*"))
            if votes in path.read_bytes()
        ]

    # --- the parties -------------------------------------------------------------------------

    def answers(self, name: str, pinned: bytes | None = None) -> Answers:
        """A party's process, new each time."""
        home, ledger = self.home(name), self.ledger(name)
        return Answers(
            name=name, identity=identity_key(home), home=home, ledger=ledger, pinned=pinned,
            voter=lambda: self.voter(name, site=Site(self.policy, ledger, pinned=pinned)),
            clock=lambda: self.now,
        )  # fmt: skip

    def answer(self, path: Path, name: str, to: Path | None = None) -> Answered:
        return self.answers(name).answer(path, to or self.folder / "in")

    # --- the carrier -------------------------------------------------------------------------

    def outgoing(self, name: str) -> Path | None:
        """The file that is out for a party."""
        (*found,) = (self.folder / "out").glob(f"*.for-{name}.pate")
        assert len(found) <= 1, "one envelope at a time"
        return found[0] if found else None

    def carry(self, *, without: Sequence[str] = ()) -> bool:
        """Have each party answer the file that is out for it, once."""
        moved = False
        for name in self.by_envelope:
            path = self.outgoing(name)
            if path is None or name in without:
                continue
            back = self.folder / "in" / path.name.replace(".for-", ".from-")
            if not back.exists():
                self.answer(path, name)
                moved = True
        return moved

    def note(self) -> None:
        """Compare every file with what had its name before: the same bytes, or none."""
        for path in sorted(self.folder.glob("*/*.pate")):
            content = path.read_bytes()
            assert self.files.setdefault(path.name, content) == content, f"{path.name} changed"

    def wipe(self, place: str) -> None:
        """Lose all files of a folder."""
        shutil.rmtree(self.folder / place, ignore_errors=True)

    def complaints(self) -> list[str]:
        return [line for line in self.lines.said if "not taken" in line]


def refused(play: Play, path: Path, name: str) -> PateError:
    """The error of an envelope that is not answered; no file appears, and no votes are recorded."""
    before = play.ledger(name).head
    out = play.root / "refused"
    out.mkdir(exist_ok=True)
    try:
        play.answer(path, name, out)
    except PateError as error:
        assert list(out.iterdir()) == []
        assert play.ledger(name).head == before
        return error
    raise AssertionError("it was answered")
