"""Kill -9 at every failpoint: after a restart nothing is lost and nothing is doubled.

The commands are the real ones in processes of their own, with their real files; only Flower's
transport is left out (:mod:`benchmarks.soak.direct`), which makes one campaign some seconds of
work. The same over Flower, for a part of the points: ``test_crashes.py``.
"""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from benchmarks.soak.play import NAMES, Play, Stand
from party.ledger.ledger import PartyLedger
from pate.errors import StateError
from pate.runtime import failpoints
from simulation.programs import until
from tests.end_to_end import test_synthetic_queries
from tests.envelopes import test_killed
from tests.party.voting import test_voter_ahead
from tests.support.needs import others_slow
from tests.support.processes.homes import Homes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: More than one charge.
QUERIES: Final = 100


@dataclass(frozen=True)
class Case:
    """Where a process is killed.

    Attributes:
        name: of the failpoint.
        who: server, or the party.
        kind: of the campaign, or ``enrolment`` or ``training``.
        times: at which pass.
    """

    name: str
    who: str
    kind: str
    times: int = 1

    @property
    def failpoint(self) -> str:
        return f"{self.name}:{self.times}"

    def __str__(self) -> str:
        return f"{self.name}-{self.times}-{self.who}-{self.kind}"


def _cases(who: str, kind: str, *names: str) -> list[Case]:
    found = []
    for text in names:
        name, _, times = text.partition(":")
        found.append(Case(name, who, kind, int(times or 1)))
    return found


CAMPAIGNS: Final = [
    *_cases(
        "server", "masked",
        "file-drafted:1", "file-drafted:2", "public-set-stored", "ledger-drafted", "ledger-created",
        "roster-recorded", "opening-listed", "votes-arrived", "votes-recorded",
        "charge-recorded:2", "noise-drawn:2", "release-recorded", "round-ended", "campaign-closed",
        "farewell-said", "parties-told",
        # Roster, opening, votes, charge, release, ..., close: each written and not committed.
        *(f"entry-written:{times}" for times in (1, 2, 3, 4, 5, 8, 9)),
    ),
    *_cases(
        "west", "masked",
        "offer-recorded", "public-set-kept", "answer-recorded", "voting", "votes-cached",
        "shares-sent", "masked-sent", "survivors-signed", "opening-recorded", "ending-recorded",
        # Joining, its terms, an answer, an opening, the ending.
        *(f"party-entry-written:{times}" for times in (1, 2, 3, 4, 5)),
    ),
    *_cases("west", "noisy", "noise-share-drawn", "noise-share-kept"),
    *_cases("west", "proved", "votes-proved"),
    *_cases("server", "gated", "charge-recorded", "noise-drawn", "release-recorded"),
    *_cases("server", "neighbour", "charge-recorded", "noise-drawn", "release-recorded"),
    *_cases(
        "server", "interactive",
        "label-sent:5", "predictions-arrived", "predictions-recorded", "charge-recorded:3",
        "round-ended", "round-ended:2", "campaign-closed", "farewell-said", "parties-told",
    ),
]  # fmt: skip
#: Each failpoint once; of those that any entry and any file passes, with the first release and the answer.
FIRST: Final = {
    *{case.name: case for case in reversed(CAMPAIGNS)}.values(),
    *_cases("server", "masked", "entry-written:5"),
    *_cases("west", "masked", "party-entry-written:3"),
}
TRAINING: Final = _cases(
    "west", "training", "teacher-trained:2", "file-drafted:1", "file-drafted:4"
)
ENROLMENT: Final = [
    *_cases("init", "enrolment", "identity-drafted", "file-drafted:1", "file-drafted:6"),
    *_cases("enroll", "enrolment", "bundle-handed-over", "parties-changed", "file-drafted:1"),
    *_cases(
        "west", "enrolment",
        "enrolment-pending", "enrolment-answered", "enrolment-accepted", "identity-settled",
        *(f"file-drafted:{times}" for times in (1, 3, 5)),
    ),
    *_cases("admit", "enrolment", "parties-changed", "file-drafted:1"),
]  # fmt: skip
#: Killed there, a party cannot tell the server that it knows; the server is gone when it is back.
AT_THE_END: Final = _cases("west", "masked", "party-entry-written:5", "ending-recorded")


def test_every_failpoint_has_its_case() -> None:
    tried = {case.name for case in (*CAMPAIGNS, *TRAINING, *ENROLMENT)}
    elsewhere = test_synthetic_queries.FAILPOINTS | test_voter_ahead.FAILPOINTS
    assert tried | elsewhere | test_killed.FAILPOINTS == failpoints.NAMES


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    return Homes.make(tmp_path_factory.mktemp("dealt"), QUERIES)


@pytest.fixture
def play(homes: Homes, tmp_path: Path, case: Case) -> Iterator[Play]:
    with homes.play(tmp_path / "campaign", case.kind) as play:
        yield play


@pytest.mark.parametrize("case", others_slow(CAMPAIGNS, FIRST.__contains__), ids=str)
def test_a_campaign_goes_on_after_a_kill(play: Play, case: Case) -> None:
    server = play.serve(failpoint=case.failpoint if case.who == "server" else None)
    parties = {
        name: play.party(name, failpoint=case.failpoint if case.who == name else None)
        for name in NAMES
    }
    student = play.student() if case.kind == "interactive" else None
    if case.who == "server":
        server.ends(-signal.SIGKILL)
        before = play.stand()
        server = play.serve()
    else:
        parties[case.who].ends(-signal.SIGKILL)
        before = play.stand()
        PartyLedger(play.sites.home(case.who) / "ledger.db", read_only=True).verify()
        parties[case.who] = play.party(case.who, "--max-wait", "1" if case in AT_THE_END else "60")
    for command in (server, student):
        if command is not None:
            command.ends(0)
    for name, party in parties.items():
        party.ends(40 if name == case.who and case in AT_THE_END else 0)
    end = play.stand()
    assert end is not None
    assert end.phase == "finished"
    if before is not None:
        end.follows(before)
    _check_answers(case, end)
    _check_student(play, end)
    play.check_parties()
    _check_ended(play, unless=case.who if case.name == "party-entry-written" else "")
    assert not list(play.folder.rglob(".*")), "a draft of a file was left"


@pytest.mark.parametrize("case", _cases("server", "masked", "label-sent:5"), ids=str)
def test_a_student_that_was_cut_off_after_the_end_is_served(play: Play, case: Case) -> None:
    """The same command serves until the student has all labels, and then refuses."""
    server = play.serve("--linger", "-1", failpoint=case.failpoint)
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
    lost = case.who == "server" and case.name in ("charge-recorded", "noise-drawn")
    lost |= case.failpoint == "entry-written:5"  # the first release
    if case.name == "label-sent":  # meanwhile labelling continues, and may be at a charge
        lost = end.vain == 1
    assert end.vain == (1 if lost else 0)
    assert (end.wasted > 0) == lost
    if lost and case.kind in ("gated", "neighbour"):
        assert not end.labels, "the one attempt was made, and its answers were lost"
    elif case.kind not in ("gated", "neighbour"):
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
        assert all(batch.survivors for batch in campaign.batches)


@pytest.mark.parametrize("case", TRAINING, ids=str)
def test_training_goes_on_after_a_kill(play: Play, case: Case) -> None:
    home = play.sites.home(case.who)
    shutil.rmtree(home)
    play.party(case.who, failpoint=case.failpoint).ends(-signal.SIGKILL)
    stored = _models(home)
    party = play.party(case.who)
    party.says("teachers are ready")
    party.send(signal.SIGTERM)
    party.ends(130)
    after = _models(home)
    assert len(after) == 6  # a model and its mark of each
    # Those that were whole are kept as they were; of what was not, nothing is left.
    assert {name: stored[name] for name in stored if name in after} == {
        name: after[name] for name in stored if name in after
    }
    assert not list(home.rglob(".*"))


def _models(home: Path) -> dict[str, tuple[int, int]]:
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (home / "teachers").rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.mark.parametrize("case", ENROLMENT, ids=str)
def test_enrolment_goes_on_after_a_kill(play: Play, case: Case) -> None:
    home = ("--home", play.home)
    bundle, answer = play.folder / "west.json", play.folder / "west.answer"
    party = ("--home", play.sites.home("west"))
    steps = {
        "init": ("aggregator_server", "init", "--port", str(play.port), *home),
        "enroll": ("aggregator_server", "enroll", "west", "--out", bundle, *home),
        "west": (
            "party", "enroll", bundle, "--answer", answer, *party,
            # What moves a new identity key to its place is a step of its own.
            *(("--new-identity",) if case.who == "west" else ()),
        ),
        "admit": ("aggregator_server", "admit", answer, *home),
    }  # fmt: skip
    for step, (module, *arguments) in steps.items():
        if step == case.who:
            play.run(step, module, *arguments, failpoint=case.failpoint).ends(-signal.SIGKILL)
        _again(play, step, module, *arguments)
    shown = play.run("server", "aggregator_server", "parties", "--json", *home)
    shown.ends(0)
    (west,) = json.loads(shown.output)["parties"]
    assert west["state"] == "enrolled"
    identity = (play.sites.home("west") / "identity.key").read_bytes()
    assert len(identity) == 32
    started = play.party("west")
    started.says("teachers are ready")
    started.send(signal.SIGTERM)
    started.ends(130)
    assert len(list((play.sites.home("west") / "enrolments").iterdir())) == 1


def _again(play: Play, step: str, module: str, *arguments: str | Path) -> None:
    """Repeat a killed command; it may answer that it was already carried out."""
    done = play.run(step, module, *arguments)
    until(lambda: done.code is not None, f"{step} ends")
    if step == "init" and done.code == 12:
        assert "is already an identity" in done.text
    else:
        done.ends(0)
