"""Envelopes of real processes: lost, repeated, altered; or beside parties over TLS."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from aggregator_server.results.report import entries
from party.ledger.ledger import PartyLedger
from tests.support.needs import require
from tests.support.processes.programs import Program, until
from tests.support.world.commands import Campaign
from tests.support.world.sites import TEACHERS, Sites, lenient

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

NAMES = ("north", "south", "west")
QUERIES = 40


@dataclass
class Carrier:
    """What carries files between the server's folder and those that parties watch.

    Attributes:
        post: of the server.
        boxes: of the parties, with ``in`` and ``out``.
        done: what it did, with the names of files.
    """

    post: Path
    boxes: Path
    rng: random.Random
    done: list[str] = field(default_factory=list)
    _seen: dict[str, bytes] = field(default_factory=dict)

    def box(self, name: str, way: str) -> Path:
        return self.boxes / name / way

    def put(self, to: Path, name: str, body: bytes) -> None:
        """Write a file as a carrier does who does not know better: under its name, not atomically."""
        (to / name).write_bytes(body)

    def altered(self, body: bytes) -> bytes:
        at = self.rng.randrange(len(body))
        return body[:at] + bytes([body[at] ^ 1 << self.rng.randrange(8)]) + body[at + 1 :]

    def round(self) -> None:
        """Carry what is new, after much that is wrong."""
        out = sorted((self.post / "out").glob("*.pate"))
        back = sorted(path for name in NAMES for path in self.box(name, "out").glob("*.pate"))
        for path in [*out, *back]:
            if path.name in self._seen:
                continue
            try:
                body = path.read_bytes()
            except FileNotFoundError:
                continue  # the step is over
            self._seen[path.name] = body
            whose = next(name for name in NAMES if f"-{name}." in path.name)
            other = NAMES[(NAMES.index(whose) + 1) % 3]
            if path.parent.name == "out" and path.parent.parent == self.post:
                self.put(self.box(other, "in"), path.name, body)
                self.put(self.box(whose, "in"), f"altered-{path.name}", self.altered(body))
                self.put(self.box(whose, "in"), f"cut-{path.name}", body[: len(body) // 2])
                for _ in range(2):
                    self.put(self.box(whose, "in"), path.name, body)
                self.put(self.box(whose, "in"), f"again-{path.name}", body)
                self.done += ["swapped", "altered", "cut", "repeated"]
                for old in [name for name in self._seen if f".for-{whose}." in name]:
                    self.put(self.box(whose, "in"), f"old-{old}", self._seen[old])
                    self.done.append("reordered")
                continue
            # Answers: to the server as somebody else's, altered, under a wrong number; then as it is.
            swapped = path.name.replace(f"-{whose}.", f"-{other}.")
            self.put(self.post / "in", f"x-{swapped}", body)
            self.put(self.post / "in", f"altered-{path.name}", self.altered(body))
            for old in [name for name in self._seen if ".from-" in name]:
                self.put(self.post / "in", f"old-{old}", self._seen[old])
            if self.rng.random() < 0.5:  # lost; it is carried when the carrier comes again
                del self._seen[path.name]
                self.done.append("dropped")
                continue
            self.put(self.post / "in", path.name, body)
            self.put(self.post / "in", f"again-{path.name}", body)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Campaign, Carrier, list[Program]]:
    folder = tmp_path_factory.mktemp("hostile")
    sites = Sites(folder, NAMES).deal()
    with Campaign(folder / "campaign", sites) as campaign:
        campaign.enrol(lenient(3, 3))
        carrier = Carrier(folder / "post", folder / "boxes", random.Random(7))  # noqa: S311
        for name in NAMES:
            for way in ("in", "out"):
                carrier.box(name, way).mkdir(parents=True)
        server = campaign.serve(
            sites.public(0, QUERIES), "--aggregator", "gnmax", "--sigma2", "2",
            "--noise", "distributed", "--min-parties", "3", "--colluders", "0",
            "--envelopes", str(carrier.post), parties=",".join(NAMES),
        )  # fmt: skip
        parties = [
            campaign.run(
                name, "party", "watch", carrier.box(name, "in"), carrier.box(name, "out"),
                "--data", sites.data(name), "--model", "linear", "--teachers", TEACHERS,
                "--home", sites.home(name), "--every", "0.2",
            )
            for name in NAMES
        ]  # fmt: skip

        def over() -> bool:
            carrier.round()
            return server.code is not None

        until(over, "the campaign ends", 600.0)
        server.ends(0)
        carrier.round()  # the end, which nobody waits for
        for party in parties:
            party.send(signal.SIGTERM)
            party.ends(130)
        return campaign, carrier, [server, *parties]


def test_all_labels_come_out_and_all_ledgers_hold(
    played: tuple[Campaign, Carrier, list[Program]],
) -> None:
    campaign, carrier, _ = played
    assert {"swapped", "altered", "cut", "repeated", "reordered", "dropped"} <= set(carrier.done)
    assert campaign.verified()["labels_released"] == QUERIES
    (votes,) = (each["body"] for each in entries(campaign.place) if each["kind"] == "votes")
    assert isinstance(votes, dict)
    assert votes["responders"] == list(NAMES)


def test_each_party_voted_once_and_answered_nothing_else(
    played: tuple[Campaign, Carrier, list[Program]],
) -> None:
    campaign, _, _ = played
    for name in NAMES:
        ledger = PartyLedger(campaign.sites.home(name) / "ledger.db", read_only=True)
        ledger.verify()
        (record,) = ledger.campaigns()
        assert len(record.batches) == 1
        assert [each.survivors for each in record.opened] == [NAMES]
        numbers = [each.number for each in record.files.values()]
        assert numbers == sorted(set(numbers)), "two answers to one envelope"


def test_what_was_wrong_is_named_in_one_line(
    played: tuple[Campaign, Carrier, list[Program]],
) -> None:
    _, _, (server, *parties) = played
    for program in (server, *parties):
        assert "Traceback" not in program.text
    assert "not taken" in server.text
    for party in parties:
        assert "this envelope is for" in party.text
        assert "is not answered" in party.text


ONLINE = ("east", "north")
#: "south" answers late, the votes of "up" are never asked for there, "west" has no network.
BY_ENVELOPE = ("south", "up", "west")
BOTH_WAYS = tuple(sorted((*ONLINE, *BY_ENVELOPE)))
IN_THE_SUM = ["east", "north", "west"]
#: Runs a command where there is no interface, and the loopback one is down.
ALONE = ("unshare", "-rn")


def can_be_alone() -> bool:
    """Return whether this machine lets us make a network namespace."""
    try:
        return subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@dataclass
class Played:
    """The campaign, and what its carrier has seen.

    Attributes:
        left: SHA-256 of each answer, by party, in the order of their envelopes.
        closed: parties whose votes were not waited for any more.
        alone: how the commands of "west" are run.
    """

    campaign: Campaign
    server: Program
    alone: tuple[str, ...]
    left: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in BY_ENVELOPE})
    closed: list[str] = field(default_factory=list)

    @property
    def post(self) -> Path:
        return self.campaign.folder / "post"

    def envelope(self, name: str, number: int) -> Path:
        """Wait until a party's envelope of this number is outside."""
        pattern = f"campaign-*.round-{number}.for-{name}.pate"

        def found() -> list[Path]:
            return [*(self.post / "out").glob(pattern)]

        until(
            lambda: bool(found()) or self.server.code is not None,
            f"an envelope {number} for {name}; the server said:\n{self.server.text}",
        )
        assert found(), f"the server ended without it:\n{self.server.text}"
        return found()[0]

    def start(self, name: str, *arguments: object) -> Program:
        """Start a command of a party by envelope, where this party runs its commands."""
        campaign, sites = self.campaign, self.campaign.sites
        before, campaign.prefix = campaign.prefix, self.alone if name == "west" else ()
        try:
            return campaign.run(
                name, "party", *arguments, "--data", sites.data(name), "--model", "linear",
                "--teachers", TEACHERS, "--home", sites.home(name), "--json",
            )  # fmt: skip
        finally:
            campaign.prefix = before

    def answer(self, to: Path | None = None, **numbers: int) -> None:
        """Have these parties answer their envelope of this number, and bring the answers."""
        started = {
            name: self.start(
                name, "answer", self.envelope(name, number), "--out", to or self.post / "in"
            )
            for name, number in numbers.items()
        }
        for name, program in started.items():
            program.ends(0)
            self.left[name].append(str(program.result()["sha256"]))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("mixed")
    sites = Sites(folder, BOTH_WAYS).deal()
    alone = ALONE if can_be_alone() else ()
    with Campaign(folder / "campaign", sites) as campaign:
        campaign.enrol(lenient(5, 3))
        late = campaign.folder / "late"
        late.mkdir()
        server = campaign.serve(
            sites.public(0, QUERIES), "--aggregator", "gnmax", "--sigma2", "2",
            "--noise", "distributed", "--min-parties", "3", "--colluders", "0", "--patience", "8",
            "--envelopes", str(campaign.folder / "post"), "--by-envelope", ",".join(BY_ENVELOPE),
            parties=",".join(BOTH_WAYS),
        )  # fmt: skip
        mixed = Played(campaign, server, alone)
        online = [campaign.party(name) for name in ONLINE]
        mixed.answer(south=1, up=1, west=1)  # who are you, and keys ahead: all are enrolled
        # Votes: one envelope is lost, one answer is made and under way for too long.
        mixed.envelope("up", 2).unlink()
        mixed.answer(late, south=2, west=2)
        (answer,) = late.glob("*.from-west.pate")
        answer.rename(mixed.post / "in" / answer.name)
        server.says("answer of west to envelope 2")
        close = campaign.run(
            "close", "aggregator_server", "envelopes", "close", "--home", campaign.home, "--json"
        )
        close.ends(0)
        mixed.closed = close.result()["closing"]  # type: ignore[assignment]
        consent = mixed.envelope("west", 3)  # who is in the sum is fixed, and not yet signed
        (answer,) = late.iterdir()
        answer.rename(mixed.post / "in" / answer.name)
        server.says("it came too late")
        assert consent.exists()
        mixed.answer(west=3)
        mixed.answer(west=4)
        server.ends(0)
        for party in online:
            party.ends(0)
        # The end, for those who are in the sum and for those who are not.
        mixed.answer(south=3, up=3, west=5)
        return mixed


def test_labels_come_out_of_the_votes_of_both_kinds(mixed: Played) -> None:
    assert mixed.campaign.verified()["labels_released"] == QUERIES
    (votes,) = (e["body"] for e in entries(mixed.campaign.place) if e["kind"] == "votes")
    assert isinstance(votes, dict)
    assert votes["responders"] == IN_THE_SUM


def test_all_ledgers_verify_and_the_published_statement_agrees(mixed: Played) -> None:
    campaign = mixed.campaign
    labels, statement = campaign.folder / "labels.json", campaign.folder / "privacy.json"
    campaign.run(
        "export", "aggregator_server", "export", "--out", labels, "--home", campaign.home
    ).ends(0)
    statement.write_text(json.loads(labels.read_text())["privacy"])
    for name in BOTH_WAYS:
        home = campaign.sites.home(name)
        ledger = PartyLedger(home / "ledger.db", read_only=True)
        ledger.verify()
        (record,) = ledger.campaigns()
        assert record.ending is not None
        in_it = name in IN_THE_SUM
        assert [list(each.survivors or ()) for each in record.opened] == [IN_THE_SUM] * in_it
        # The votes of "south" have left, and nobody can unmask them; "up" was never asked for its own.
        assert len(record.batches) == (name != "up")
        if in_it:
            campaign.run(f"agrees-{name}", "party", "verify", statement, "--home", home).ends(0)


def test_the_late_answer_is_refused_for_good_and_said_so(mixed: Played) -> None:
    assert mixed.closed == ["south", "up"]
    (line,) = (each for each in mixed.server.lines if "it came too late" in each)
    assert "answer of south to envelope 2" in line
    # It is still in the inbox when the server starts again, and has no effect.
    before = [each["kind"] for each in entries(mixed.campaign.place)]
    again = mixed.campaign.resume(
        "--envelopes", str(mixed.post), "--by-envelope", ",".join(BY_ENVELOPE)
    )
    again.ends(0)
    assert [each["kind"] for each in entries(mixed.campaign.place)] == before
    listed = mixed.campaign.run(
        "list", "aggregator_server", "envelopes", "list", "--home", mixed.campaign.home
    )
    listed.ends(0)
    (line,) = (each for each in listed.text.splitlines() if "south: envelope 2" in each)
    assert line.endswith("too late: the answer is refused permanently")


def test_each_file_that_left_is_in_its_partys_ledger_by_its_digest(mixed: Played) -> None:
    for name in BY_ENVELOPE:
        ledger = PartyLedger(mixed.campaign.sites.home(name) / "ledger.db", read_only=True)
        (record,) = ledger.campaigns()
        assert [each.digest for each in record.files.values()] == mixed.left[name]
    (late,) = (mixed.post / "in").glob("*.round-2.from-south.pate")
    assert hashlib.sha256(late.read_bytes()).hexdigest() == mixed.left["south"][1]


def test_the_server_can_read_no_answer_any_more(mixed: Played) -> None:
    """Replies are deleted with their sum, and with the end the key of what carriers have kept."""
    (store,) = mixed.campaign.home.rglob("envelopes.db")
    with closing(sqlite3.connect(store)) as db:
        kinds = {kind for (kind,) in db.execute("SELECT kind FROM requests WHERE reply NOT NULL")}
    assert kinds == {"describe", "public_piece"}
    assert [*mixed.campaign.home.rglob("envelopes.key")] == []


def test_west_answered_without_an_interface(mixed: Played) -> None:
    require(bool(mixed.alone), "the right to make a network namespace (unshare -rn)")
    found = subprocess.run(
        [*mixed.alone, "cat", "/proc/net/dev", "/proc/net/route"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    interfaces = [line.split(":")[0].strip() for line in found.stdout.splitlines() if ":" in line]
    assert interfaces == ["lo"]
    # Not even this machine is there: what is tried fails at once.
    tried = subprocess.run(
        [*mixed.alone, "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{mixed.campaign.port}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tried.returncode != 0
    assert "unreachable" in tried.stderr
    assert len(mixed.left["west"]) == 5
