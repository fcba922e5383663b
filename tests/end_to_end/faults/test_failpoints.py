"""Kill -9 at every failpoint: after a restart nothing is lost and nothing is doubled.

The commands are the real ones in processes of their own, with their real files; only Flower's
transport is left out (:mod:`tests.support.world.direct`), which makes one campaign some seconds of
work. Over Flower a server is killed in ``test_flower_campaign.py``, and anything in the soak.
"""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from party.ledger.ledger import PartyLedger
from pate.errors import StateError
from pate.runtime import failpoints
from tests.aggregator_server.campaign import test_rounds
from tests.end_to_end import test_simulate
from tests.envelopes import test_killed
from tests.party.voting import test_voter_ahead
from tests.support.processes.programs import until
from tests.support.world.sites import NAMES
from tests.support.world.stand import Stand

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.world.commands import Homes, Play


@dataclass(frozen=True)
class Case:
    """Where the processes of a role are killed, one after the other.

    Attributes:
        who: server, or the party.
        kind: of the campaign, or ``enrolment`` or ``training``.
        points: failpoints; ``name:3`` is the third pass of a process.
        queries: of the public set; a charge is of 64.
        at_the_end: whether the last point is the party's end of the campaign. It cannot tell the server
            that it knows, and the server is gone when it is back.
    """

    who: str
    kind: str
    points: tuple[str, ...]
    queries: int = 100
    at_the_end: bool = False

    @property
    def names(self) -> set[str]:
        return {point.partition(":")[0] for point in self.points}

    def __str__(self) -> str:
        return f"{self.who}-{self.kind}-{self.points[0].replace(':', '-')}"


CAMPAIGNS: Final = [
    Case(
        "server", "masked",
        (
            "file-drafted", "public-set-stored", "ledger-drafted", "ledger-created", "file-drafted",
            "roster-recorded", "opening-listed", "votes-arrived", "votes-recorded",
            "release-recorded", "charge-recorded", "noise-drawn", "round-ended", "campaign-closed",
            "farewell-said", "parties-told",
        ),
        200,
    ),
    # Each entry written and not committed: roster, opening, votes, charge, release. The next process charges
    # for the other 36 queries (all are answered: how often it charges does not depend on the noise), and is
    # killed at the round's end, the last one at the close.
    Case(
        "server", "answered",
        ("entry-written:1", *["entry-written:2"] * 4, "entry-written:3", "entry-written:2"),
    ),
    Case(
        "west", "masked",
        (
            "offer-recorded", "public-set-kept", "voting", "votes-cached", "answer-recorded",
            "shares-sent", "masked-sent", "survivors-signed", "opening-recorded", "ending-recorded",
        ),
        at_the_end=True,
    ),
    # Joining, its terms, an answer, an opening, the ending.
    Case(
        "west", "masked",
        ("party-entry-written:1", *["party-entry-written:2"] * 3, "party-entry-written:3"),
        at_the_end=True,
    ),
    Case("west", "noisy", ("noise-share-drawn", "noise-share-kept")),
    Case("west", "proved", ("votes-proved",)),
    # Of a single release in promises/test_every_campaign.py.
    *(
        Case("server", "gated", (point,))
        for point in ("charge-recorded", "noise-drawn", "release-recorded")
    ),
    Case(
        "server", "interactive",
        (
            "label-sent:5", "predictions-arrived", "predictions-recorded", "charge-recorded",
            "round-ended", "campaign-closed", "farewell-said", "parties-told",
        ),
    ),
]  # fmt: skip
#: The model of the first teacher is drafted; the second is trained; its mark is drafted.
TRAINING: Final = ("file-drafted:1", "teacher-trained:2", "file-drafted:2")
#: Steps, in order, each killed at its failpoint, and repeated.
ENROLMENT: Final[list[dict[str, str]]] = [
    {
        "init": "identity-drafted", "enroll": "bundle-handed-over", "west": "enrolment-pending",
        "admit": "parties-changed",
    },
    {
        "init": "file-drafted:1", "enroll": "parties-changed", "west": "enrolment-answered",
        "admit": "file-drafted:1",
    },
    {"init": "file-drafted:6", "enroll": "file-drafted:1", "west": "enrolment-accepted"},
    *(
        {"west": point}
        for point in ("identity-settled", *(f"file-drafted:{times}" for times in (1, 3, 5)))
    ),
]  # fmt: skip
#: What was charged is lost with a process that is killed there.
LOSES: Final = ("charge-recorded", "noise-drawn")


def test_every_failpoint_has_its_case() -> None:
    tried = set[str]().union(*(case.names for case in CAMPAIGNS))
    others = (*TRAINING, *(point for steps in ENROLMENT for point in steps.values()))
    tried |= {point.partition(":")[0] for point in others}
    elsewhere = test_simulate.FAILPOINTS | test_voter_ahead.FAILPOINTS
    elsewhere |= test_rounds.FAILPOINTS
    assert tried | elsewhere | test_killed.FAILPOINTS == failpoints.NAMES


@pytest.mark.parametrize("case", CAMPAIGNS, ids=str)
def test_a_campaign_goes_on_after_each_kill(homes: Homes, tmp_path: Path, case: Case) -> None:
    with homes.play(tmp_path / "campaign", case.kind, case.queries) as play:
        first = {case.who: case.points[0]}
        server = play.serve(failpoint=first.get("server"))
        parties = {name: play.party(name, failpoint=first.get(name)) for name in NAMES}
        student = play.student() if case.kind == "interactive" else None
        stands = list[Stand]()
        for at in range(len(case.points)):
            following = case.points[at + 1] if at + 1 < len(case.points) else None
            if case.who == "server":
                server.ends(-signal.SIGKILL)
            else:
                parties[case.who].ends(-signal.SIGKILL)
                PartyLedger(play.sites.home(case.who) / "ledger.db", read_only=True).verify()
            if (stand := play.stand()) is not None:
                for earlier in stands[-1:]:
                    stand.follows(earlier)
                stands.append(stand)
            if case.who == "server":
                server = play.serve(failpoint=following)
            else:
                wait = 60
                if following is None and case.at_the_end:
                    server.ends(0)
                    wait = 1
                parties[case.who] = play.party(case.who, "--max-wait", wait, failpoint=following)
        for command in (server, student):
            if command is not None:
                command.ends(0)
        for name, party in parties.items():
            party.ends(40 if name == case.who and case.at_the_end else 0)
        end = play.stand()
        assert end is not None
        assert end.phase == "finished"
        for stand in stands:
            end.follows(stand)
        _check_answers(case, end)
        _check_student(play, end)
        play.check_parties()
        _check_ended(
            play, unless="" if "ending-recorded" in case.names or not case.at_the_end else case.who
        )
        assert not list(play.folder.rglob(".*")), "a draft of a file was left"


def test_a_student_that_was_cut_off_after_the_end_is_served(homes: Homes, tmp_path: Path) -> None:
    """The same command serves until the student has all labels, and then refuses."""
    with homes.play(tmp_path / "campaign") as play:
        _cut_off(play)


def _cut_off(play: Play) -> None:
    server = play.serve("--linger", "-1", failpoint="label-sent:5")
    for party in [play.party(name) for name in NAMES]:
        party.ends(0)
    server.says("serving the labels")
    student = play.student()
    server.ends(-signal.SIGKILL)
    before = play.stand()
    assert before is not None
    assert before.phase == "finished"
    play.serve("--linger", "-1").ends(0)
    student.ends(0)
    rows = json.loads((play.folder / "labels.json").read_text())["labels"]
    assert {query: label for query, label, *_ in rows} == before.labels
    assert play.stand() == before
    again = play.serve("--linger", "-1")
    again.ends(StateError.exit_code)
    assert "is finished" in again.lines[-1]


def _check_answers(case: Case, end: Stand) -> None:
    lost = sum(point.partition(":")[0] in LOSES for point in case.points)
    lost += case.points.count("entry-written:2") == 5  # the first release
    # Votes that are on the disk are not asked for again, and a sum that was opened is not opened anew.
    assert end.kinds.count("votes") == end.kinds.count("opening") == 1
    # Where a label is sent, labelling continues, and may be at a charge.
    assert end.vain - lost in ((0, 1) if "label-sent" in case.names else (0,))
    assert (end.wasted > 0) == (end.vain > 0)
    if lost and case.kind == "gated":
        assert not end.labels, "the one attempt was made, and its answers were lost"
    elif case.kind != "gated":
        assert len(end.labels) >= 10


def _check_student(play: Play, end: Stand) -> None:
    """A student that followed all the time has each label once, and all of them."""
    file = play.folder / "labels.json"
    if play.kind == "interactive":
        rows = json.loads(file.read_text())["labels"]
        assert {query: label for query, label, *_ in rows} == end.labels
        assert len(rows) == len(end.labels)


def _check_ended(play: Play, unless: str) -> None:
    for name in NAMES:
        (campaign,) = PartyLedger(play.sites.home(name) / "ledger.db", read_only=True).campaigns()
        assert campaign.ending is not None or name == unless
        assert all(batch.survivors for batch in campaign.batches.values())


def test_training_goes_on_after_a_kill(homes: Homes, tmp_path: Path) -> None:
    with homes.play(tmp_path / "campaign") as play:
        home = play.sites.home("west")
        shutil.rmtree(home)
        stored = dict[str, tuple[int, int]]()
        for point in TRAINING:
            play.party("west", failpoint=point).ends(-signal.SIGKILL)
            whole = _models(home)
            assert stored.items() <= whole.items()  # what was whole is kept as it was
            stored = whole
        assert len(stored) == 2
        party = play.party("west")
        party.says("teachers are ready")
        party.send(signal.SIGTERM)
        party.ends(130)
        after = _models(home)
        assert len(after) == 6
        assert after == after | stored
        assert not list(home.rglob(".*"))


def _models(home: Path) -> dict[str, tuple[int, int]]:
    """Return the teachers that are whole: the mark of a model is stored after it."""
    found = [path for path in (home / "teachers").rglob("*") if path.is_file()]
    marked = {path.stem for path in found if path.suffix == ".json"}
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in found
        if path.stem in marked
    }


@pytest.mark.parametrize("killed", ENROLMENT, ids=lambda killed: "-".join(killed.values()))
def test_enrolment_goes_on_after_a_kill(
    homes: Homes, tmp_path: Path, killed: dict[str, str]
) -> None:
    with homes.play(tmp_path / "campaign") as play:
        home = ("--home", play.home)
        bundle, answer = play.folder / "west.json", play.folder / "west.answer"
        party = ("--home", play.sites.home("west"))
        # What moves a new identity key to its place is a step of its own.
        new = ("--new-identity",) if "west" in killed else ()
        steps: dict[str, tuple[object, ...]] = {
            "init": ("aggregator_server", "init", "--port", play.port, *home),
            "enroll": ("aggregator_server", "enroll", "west", "--out", bundle, *home),
            "west": ("party", "enroll", bundle, "--answer", answer, *party, *new),
            "admit": ("aggregator_server", "admit", answer, *home),
        }
        for step, (module, *arguments) in steps.items():
            if step in killed:
                play.run(step, str(module), *arguments, failpoint=killed[step]).ends(
                    -signal.SIGKILL
                )
            _again(play, step, str(module), *arguments)
        shown = play.does("server", "aggregator_server", "parties", "--json", *home)
        (west,) = json.loads(shown.output)["parties"]
        assert west["state"] == "enrolled"
        identity = (play.sites.home("west") / "identity.key").read_bytes()
        assert len(identity) == 32
        started = play.party("west")
        started.says("teachers are ready")
        started.send(signal.SIGTERM)
        started.ends(130)
        assert len(list((play.sites.home("west") / "enrolments").iterdir())) == 1


def _again(play: Play, step: str, module: str, *arguments: object) -> None:
    """Repeat a killed command; it may answer that it was already carried out."""
    done = play.run(step, module, *arguments)
    until(lambda: done.code is not None, f"{step} ends")
    if step == "init" and done.code == 12:
        assert "is already an identity" in done.text
    else:
        done.ends(0)
