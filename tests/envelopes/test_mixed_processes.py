"""Two parties over TLS and three by envelope in one masked sum; one of the three has no network at all.

The parties add the noise. Of five votes three are enough, so the parties sign who is in the sum. One
envelope with the request for votes is lost; one answer to it comes when nobody waits for it any more.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from aggregator_server.results.report import entries
from party.ledger.ledger import PartyLedger
from simulation.programs import Program, until
from tests.support.needs import require
from tests.support.world.commands import Campaign
from tests.support.world.sites import TEACHERS, Sites, lenient

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ONLINE = ("east", "north")
#: "south" answers late, the votes of "up" are never asked for there, "west" has no network.
BY_ENVELOPE = ("south", "up", "west")
NAMES = tuple(sorted((*ONLINE, *BY_ENVELOPE)))
IN_THE_SUM = ["east", "north", "west"]
QUERIES = 40
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
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("mixed")
    sites = Sites(folder, NAMES).deal()
    alone = ALONE if can_be_alone() else ()
    with Campaign(folder / "campaign", sites) as campaign:
        campaign.enrol(lenient(5, 3))
        late = campaign.folder / "late"
        late.mkdir()
        server = campaign.serve(
            sites.public(0, QUERIES), "--aggregator", "gnmax", "--sigma2", "2",
            "--noise", "distributed", "--min-parties", "3", "--colluders", "0", "--patience", "8",
            "--envelopes", str(campaign.folder / "post"), "--by-envelope", ",".join(BY_ENVELOPE),
            parties=",".join(NAMES),
        )  # fmt: skip
        played = Played(campaign, server, alone)
        online = [campaign.party(name) for name in ONLINE]
        played.answer(south=1, up=1, west=1)  # who are you, and keys ahead: all are enrolled
        # Votes: one envelope is lost, one answer is made and under way for too long.
        played.envelope("up", 2).unlink()
        played.answer(late, south=2, west=2)
        (answer,) = late.glob("*.from-west.pate")
        answer.rename(played.post / "in" / answer.name)
        server.says("answer of west to envelope 2")
        close = campaign.run(
            "close", "aggregator_server", "envelopes", "close", "--home", campaign.home, "--json"
        )
        close.ends(0)
        played.closed = close.result()["closing"]  # type: ignore[assignment]
        consent = played.envelope("west", 3)  # who is in the sum is fixed, and not yet signed
        (answer,) = late.iterdir()
        answer.rename(played.post / "in" / answer.name)
        server.says("it came too late")
        assert consent.exists()
        played.answer(west=3)
        played.answer(west=4)
        server.ends(0)
        for party in online:
            party.ends(0)
        # The end, for those who are in the sum and for those who are not.
        played.answer(south=3, up=3, west=5)
        return played


def test_labels_come_out_of_the_votes_of_both_kinds(played: Played) -> None:
    assert played.campaign.verified()["labels_released"] == QUERIES
    (votes,) = (e["body"] for e in entries(played.campaign.place) if e["kind"] == "votes")
    assert isinstance(votes, dict)
    assert votes["responders"] == IN_THE_SUM


def test_all_ledgers_verify_and_the_published_statement_agrees(played: Played) -> None:
    campaign = played.campaign
    labels, statement = campaign.folder / "labels.json", campaign.folder / "privacy.json"
    campaign.run(
        "export", "aggregator_server", "export", "--out", labels, "--home", campaign.home
    ).ends(0)
    statement.write_text(json.loads(labels.read_text())["privacy"])
    for name in NAMES:
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


def test_the_late_answer_is_refused_for_good_and_said_so(played: Played) -> None:
    assert played.closed == ["south", "up"]
    (line,) = (each for each in played.server.lines if "it came too late" in each)
    assert "answer of south to envelope 2" in line
    # It is still in the inbox when the server starts again, and has no effect.
    before = [each["kind"] for each in entries(played.campaign.place)]
    again = played.campaign.resume(
        "--envelopes", str(played.post), "--by-envelope", ",".join(BY_ENVELOPE)
    )
    again.ends(0)
    assert [each["kind"] for each in entries(played.campaign.place)] == before
    listed = played.campaign.run(
        "list", "aggregator_server", "envelopes", "list", "--home", played.campaign.home
    )
    listed.ends(0)
    (line,) = (each for each in listed.text.splitlines() if "south: envelope 2" in each)
    assert line.endswith("too late: the answer is refused permanently")


def test_each_file_that_left_is_in_its_partys_ledger_by_its_digest(played: Played) -> None:
    for name in BY_ENVELOPE:
        ledger = PartyLedger(played.campaign.sites.home(name) / "ledger.db", read_only=True)
        (record,) = ledger.campaigns()
        assert [each.digest for each in record.files.values()] == played.left[name]
    (late,) = (played.post / "in").glob("*.round-2.from-south.pate")
    assert hashlib.sha256(late.read_bytes()).hexdigest() == played.left["south"][1]


def test_the_server_can_read_no_answer_any_more(played: Played) -> None:
    """Replies are deleted with their sum, and with the end the key of what carriers have kept."""
    (store,) = played.campaign.home.rglob("envelopes.db")
    with closing(sqlite3.connect(store)) as db:
        kinds = {kind for (kind,) in db.execute("SELECT kind FROM requests WHERE reply NOT NULL")}
    assert kinds == {"describe", "public_piece"}
    assert [*played.campaign.home.rglob("envelopes.key")] == []


def test_west_answered_without_an_interface(played: Played) -> None:
    require(bool(played.alone), "the right to make a network namespace (unshare -rn)")
    found = subprocess.run(
        [*played.alone, "cat", "/proc/net/dev", "/proc/net/route"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    interfaces = [line.split(":")[0].strip() for line in found.stdout.splitlines() if ":" in line]
    assert interfaces == ["lo"]
    # Not even this machine is there: what is tried fails at once.
    tried = subprocess.run(
        [*played.alone, "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{played.campaign.port}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tried.returncode != 0
    assert "unreachable" in tried.stderr
    assert len(played.left["west"]) == 5
