"""Kill -9 of server, SuperLink and parties over Flower: the campaign continues, privacy holds.

Every failpoint by itself, without Flower's processes, is in ``test_failpoints.py``.
"""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from aggregator_server.results.report import entries, verify
from simulation.programs import Program, children, until
from tests.support.world.commands import Campaign, names_of
from tests.support.world.sites import TEACHERS, Sites

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

QUERIES = 300
#: One campaign, killed at each step of the server in turn and resumed each time. The ledger labels
#: 64 queries at a time, so releases precede every kill from the third on.
KILLS = (
    "roster-recorded",
    "opening-listed",
    "votes-arrived",
    "release-recorded",
    "charge-recorded",
    "noise-drawn",
    "campaign-closed",
)
#: The last entry of the ledger that each of them leaves.
LAST = ("roster", "opening", "opening", "release", "charge", "charge", "close")
#: Killed there, the next process is killed before it writes, or has nothing to write any more.
ADDS_NOTHING = ("opening-listed", "campaign-closed")
MECHANISM = (
    "--aggregator",
    "confident-gnmax",
    "--threshold",
    "5",
    "--sigma1",
    "2",
    "--sigma2",
    "1",
)


@dataclass(frozen=True)
class Snapshot:
    """The ledger of a server that is dead."""

    kinds: tuple[str, ...]
    bodies: tuple[dict[str, Any], ...]
    digests: tuple[str, ...]
    spent: Fraction

    @classmethod
    def take(cls, place: Path) -> Snapshot:
        held = entries(place)
        return cls(
            tuple(str(entry["kind"]) for entry in held),
            tuple(dict(entry["body"]) for entry in held),  # type: ignore[call-overload]
            tuple(str(entry["digest"]) for entry in held),
            Fraction(str(verify(place, None)["spent"])),
        )

    @property
    def answers(self) -> list[tuple[int, int | None]]:
        """Queries and labels in the order of release; no label where teachers were not agreed."""
        return [
            (query, label)
            for kind, body in zip(self.kinds, self.bodies, strict=True)
            if kind == "release"
            for query, label, _source, _events in body["answers"]
        ]


@dataclass(frozen=True)
class Story:
    """A campaign that was killed at every step, and its end."""

    campaign: Campaign
    after: tuple[Snapshot, ...]
    parties: tuple[Program, ...]
    summary: dict[str, Any]

    @property
    def end(self) -> Snapshot:
        return self.after[-1]


@pytest.fixture(scope="module")
def story(sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("killed")
    with Campaign(folder, sites) as campaign:
        names = sites.names  # three, so that votes are masked
        server = campaign.serve(
            sites.public(0, QUERIES), *MECHANISM, parties=",".join(names), failpoint=KILLS[0]
        )
        parties = tuple(campaign.party(name) for name in names)
        server.ends(-signal.SIGKILL)
        assert server.family()
        server.leaves_nobody()
        after = [Snapshot.take(campaign.place)]
        for kill in KILLS[1:]:
            campaign.resume(failpoint=kill).ends(-signal.SIGKILL)
            after.append(Snapshot.take(campaign.place))
        server = campaign.resume()
        server.ends(0)
        for party in parties:
            party.ends(0)
        after.append(Snapshot.take(campaign.place))
        yield Story(campaign, tuple(after), parties, server.result())


@pytest.mark.parametrize(("step", "kill"), list(enumerate(KILLS)), ids=KILLS)
def test_a_server_killed_at_any_step_goes_on_from_there(story: Story, step: int, kill: str) -> None:
    killed, resumed = story.after[step], story.after[step + 1]
    assert killed.kinds[-1] == LAST[step]
    assert bool(killed.answers) == (step >= KILLS.index("release-recorded"))
    # Resumed, it appends: what was durable stays, byte for byte, labels among it.
    assert resumed.digests[: len(killed.digests)] == killed.digests
    assert (len(resumed.digests) > len(killed.digests)) == (kill not in ADDS_NOTHING)
    assert resumed.answers[: len(killed.answers)] == killed.answers
    assert resumed.spent >= killed.spent


def test_no_query_is_released_twice_and_none_before_its_charge(story: Story) -> None:
    asked = [query for query, _ in story.end.answers]
    assert len(asked) == len(set(asked)) > len(story.after[KILLS.index("noise-drawn")].answers)
    assert sum(label is not None for _, label in story.end.answers) > len(asked) / 2
    charged: set[int] = set()
    for number, (kind, body) in enumerate(zip(story.end.kinds, story.end.bodies, strict=True), 1):
        if kind == "charge":
            charged.add(number)
        elif kind == "release":
            assert body["charge"] in charged
            paid = story.end.bodies[body["charge"] - 1]["queries"]
            assert [answer[0] for answer in body["answers"]] == paid
            charged.remove(body["charge"])  # one release a charge
    # Killed with a charge open, twice: both stay spent in vain.
    assert len(charged) == 2


def test_votes_on_disk_are_not_asked_for_again(story: Story) -> None:
    assert story.end.kinds.count("votes") == story.end.kinds.count("opening") == 1
    votes = story.end.bodies[story.end.kinds.index("votes")]
    assert votes["responders"] == sorted(votes["responders"]) == ["north", "south", "west"]
    assert votes["teachers"] == 3 * TEACHERS


def test_a_sum_is_opened_with_those_of_the_first_attempt(story: Story) -> None:
    """Killed before the opening and after it, so it was opened twice: with the same parties."""
    opening = story.end.bodies[story.end.kinds.index("opening")]
    assert opening == {"first": 0, "count": QUERIES, "survivors": ["north", "south", "west"]}


def test_the_parties_leave_by_themselves(story: Story) -> None:
    for party in story.parties:
        ending = party.result()
        assert ending["votes_given"] == QUERIES
        assert ending["labels_released"] == story.summary["labels_released"]
        party.leaves_nobody()


def test_the_ledger_of_a_campaign_killed_at_every_step_verifies(story: Story) -> None:
    found = story.campaign.verified()
    assert found["phase"] == "finished"
    assert found["head"] == story.summary["ledger_head"]
    assert Fraction(str(found["wasted"])) > 0


def test_a_flipped_byte_in_an_entry_is_found(story: Story, tmp_path: Path) -> None:
    place = tmp_path / "server" / "campaign"
    shutil.copytree(story.campaign.place, place)
    ledger = place / "ledger.db"
    content = bytearray(ledger.read_bytes())
    # A label of the first release: what someone who cheats would change.
    at = content.index(b'{"answers":[[') + len(b'{"answers":[[')
    content[at] ^= 1
    ledger.write_bytes(content)
    with Campaign(tmp_path / "again", story.campaign.sites) as campaign:
        program = campaign.run(
            "verify", "aggregator_server", "ledger", "verify", "--home", tmp_path / "server"
        )
        program.ends(22)
        assert len(program.lines) == 1
        assert program.text.startswith("pate-server: ")


def test_a_superlink_and_a_party_are_killed_and_come_back(sites: Sites, tmp_path: Path) -> None:
    with Campaign(tmp_path, sites) as campaign:
        server = campaign.serve(sites.public(300, 60), *MECHANISM, parties="north,south")
        north = campaign.party("north")
        server.says("north joined")
        kill_superlink(server)
        server.says("the SuperLink is running again")
        south = campaign.party("south", failpoint="voting")
        south.ends(-signal.SIGKILL)
        assert south.family()
        south.leaves_nobody()
        before = stored_teachers(sites, "south")
        assert len(before) == 2 * TEACHERS  # a model and its mark
        south = campaign.party("south")
        server.ends(0)
        north.ends(0)
        south.ends(0)
        assert stored_teachers(sites, "south") == before
        end = Snapshot.take(campaign.place)
        assert end.bodies[end.kinds.index("votes")]["responders"] == ["north", "south"]
        campaign.verified()


def stored_teachers(sites: Sites, name: str) -> dict[str, tuple[int, int]]:
    """Every stored file of a party's teachers, with what changes when it is written anew."""
    found = {}
    for path in (sites.home(name) / "teachers").rglob("*"):
        if path.is_file():
            facts = path.stat()
            found[path.name] = (facts.st_ino, facts.st_mtime_ns)
    return found


def test_a_party_that_never_comes_back_is_done_without(sites: Sites, tmp_path: Path) -> None:
    with Campaign(tmp_path, sites) as campaign:
        server = campaign.serve(
            sites.public(360, 60), *MECHANISM, "--min-parties", "2", "--patience", "2",
            parties=",".join(sites.names),
        )  # fmt: skip
        stay = [campaign.party(name) for name in ("north", "south")]
        campaign.party("west", failpoint="voting").ends(-signal.SIGKILL)
        server.ends(0)
        for party in stay:
            party.ends(0)
        told = [line for line in server.lines if "continuing without west" in line]
        assert len(told) == 1
        end = Snapshot.take(campaign.place)
        votes = end.bodies[end.kinds.index("votes")]
        assert votes["responders"] == ["north", "south"]
        assert votes["teachers"] == 2 * TEACHERS
        campaign.verified()


def kill_superlink(server: Program) -> None:
    (superlink,) = [pid for pid in children(server.pid) if b"superlink" in names_of(pid)]
    os.kill(superlink, signal.SIGKILL)
    until(lambda: superlink not in children(server.pid), "the SuperLink is gone")
