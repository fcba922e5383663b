"""Kill -9 of a server over Flower, before and behind a release: the campaign continues, privacy holds.

Every failpoint by itself, without Flower's processes, is in ``test_failpoints.py``; the SuperLink is killed
in ``test_superlink_restart.py``, and parties in ``test_enrolled_campaign.py``.
"""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from aggregator_server.results.report import entries, verify
from simulation.programs import Program
from tests.support.world.commands import Campaign
from tests.support.world.sites import TEACHERS, Sites

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

QUERIES = 300
#: One campaign, killed and resumed at each of them. The ledger labels 64 queries at a time, so a release
#: precedes the second kill.
KILLS = ("votes-arrived", "noise-drawn:2")
#: The last entry of the ledger that each of them leaves.
LAST = ("opening", "charge")
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
    """A campaign that was killed twice, and its end."""

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


def test_a_server_killed_at_any_step_goes_on_from_there(story: Story) -> None:
    for step, last in enumerate(LAST):
        killed, resumed = story.after[step], story.after[step + 1]
        assert killed.kinds[-1] == last
        # Resumed, it appends: what was durable stays, byte for byte, labels among it.
        assert resumed.digests[: len(killed.digests)] == killed.digests
        assert len(resumed.digests) > len(killed.digests)
        assert resumed.answers[: len(killed.answers)] == killed.answers
        assert resumed.spent >= killed.spent


def test_no_query_is_released_twice_and_none_before_its_charge(story: Story) -> None:
    asked = [query for query, _ in story.end.answers]
    assert len(asked) == len(set(asked)) > len(story.after[1].answers) > 0
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
    # Killed with a charge open: it stays spent in vain.
    assert len(charged) == 1


def test_votes_on_disk_are_not_asked_for_again(story: Story) -> None:
    assert story.end.kinds.count("votes") == story.end.kinds.count("opening") == 1
    votes = story.end.bodies[story.end.kinds.index("votes")]
    assert votes["responders"] == sorted(votes["responders"]) == ["north", "south", "west"]
    assert votes["teachers"] == 3 * TEACHERS


def test_a_sum_is_opened_with_those_of_the_first_attempt(story: Story) -> None:
    """Killed behind the opening, so it was opened twice: with the same parties."""
    opening = story.end.bodies[story.end.kinds.index("opening")]
    assert opening == {"first": 0, "count": QUERIES, "survivors": ["north", "south", "west"]}


def test_the_parties_leave_by_themselves(story: Story) -> None:
    for party in story.parties:
        ending = party.result()
        assert ending["votes_given"] == QUERIES
        assert ending["labels_released"] == story.summary["labels_released"]
        party.leaves_nobody()


def test_the_ledger_verifies(story: Story) -> None:
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
