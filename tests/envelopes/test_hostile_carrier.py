"""A carrier that drops, repeats, reorders, alters and swaps the envelopes of real processes.

Whatever it does, nothing is accepted that another made, each party votes once, and once true envelopes have
come through the campaign ends with all labels.
"""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from aggregator_server.results.report import entries
from party.ledger.ledger import PartyLedger
from simulation.programs import until
from tests.support.world.commands import Campaign
from tests.support.world.sites import TEACHERS, Sites, lenient

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.programs import Program

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
