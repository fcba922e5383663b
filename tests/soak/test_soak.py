"""A short soak: all ledgers verify after its faults, and its checks detect planted errors."""

from __future__ import annotations

import json
import random
import socket
import sys
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.results.report import LEDGER_FILE
from pate.mechanisms import Outcome
from tests.soak.__main__ import main
from tests.soak.checks import CHECKS, Left
from tests.soak.enrolled import MODES, NAMES, Stage, free_parties_port
from tests.soak.faults import Fault, Havoc, Played
from tests.support.processes.programs import Program, Surroundings, until
from tests.support.server.campaigns import start
from tests.support.world.commands import signals_restored
from tests.support.world.sites import Sites
from tests.support.world.stand import Stand

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Two releases on three queries; the second gave none.
STAND = Stand(
    phase="finished", kinds=("open", "charge", "release"), digests=(b"1", b"2", b"3"),
    labels={4: 0, 5: 1}, answers=((4, 0), (5, 1), (6, None)), vain=0, spent=Fraction(2),
    wasted=Fraction(0),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_campaign_with_faults_over_flower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With this seed the server, a party, a SuperNode and the student are killed, all behind a charge."""
    line = ["soak", "--campaigns", "1", "--seed", "1132", "--out", str(tmp_path / "soak")]
    monkeypatch.setattr(sys, "argv", line)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with signals_restored():
        code = main()
    said = capsys.readouterr().out
    assert code == 0, said
    (played,) = json.loads((tmp_path / "soak" / "soak.json").read_text())["campaigns"]
    assert played["passed"] == list(CHECKS)
    assert played["mode"] == "interactive"
    assert played["late_kills"] >= 3
    assert "campaigns that passed every check" in said
    assert not list((tmp_path / "soak" / "campaigns").iterdir()), "what is in order is not kept"


def test_most_faults_come_after_the_first_charge() -> None:
    """Of 2,000 faults and more, with a fixed seed: early is one of five."""
    chance = random.Random(0)  # noqa: S311 - a simulation
    drawn = [
        fault
        for mode in MODES
        for _ in range(120)
        for fault in Fault.draw(chance, mode, NAMES, MODES[mode].charges)
    ]
    assert len(drawn) > 2000
    late = sum(fault.charges > 0 for fault in drawn) / len(drawn)
    assert 0.76 < late < 0.84
    assert {fault.target for fault in drawn} >= {
        "server", "SuperLink", "party", "SuperNode", "student",
    }  # fmt: skip


@pytest.fixture
def left(tmp_path: Path) -> Left:
    """A campaign of which only its folders are there, and a ledger that says :data:`STAND`."""
    stage = Stage(
        tmp_path / "c",
        Sites(tmp_path / "c", NAMES[:3]),
        public=tmp_path,
        mode="masked",
        patience=1.0,
        chance=random.Random(0),  # noqa: S311 - a simulation
    )
    for part in ("tmp", "elsewhere", "server", "homes"):
        (stage.folder / part).mkdir(parents=True)
    havoc = Havoc(stage, 0.0, Played(1, "masked", 3))
    havoc.stands = [STAND]
    found = Left(stage, havoc)
    vars(stage)["stand"] = lambda: STAND
    return found


def test_what_is_in_order_passes(left: Left) -> None:
    left._labelled_once()
    left._prefixes()
    left._spent_grows()
    left._no_drafts()
    left.stage.doors_closed()
    left.stage.all_gone()


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"answers": (*STAND.answers, (4, 0))}, Left._labelled_once),
        ({"answers": STAND.answers[1:]}, Left._labelled_once),
        ({"digests": (b"1", b"x", b"3")}, Left._prefixes),
        ({"digests": (b"1", b"2")}, Left._prefixes),
        ({"labels": {4: 1, 5: 1}}, Left._prefixes),
        ({"spent": Fraction(1)}, Left._spent_grows),
    ],
)
def test_a_ledger_that_went_back_is_found(
    left: Left, wrong: dict[str, object], rule: Callable[[Left], None]
) -> None:
    end = replace(STAND, **wrong)  # type: ignore[arg-type]
    vars(left.stage)["stand"] = lambda: end
    with pytest.raises(AssertionError):
        rule(left)


def test_a_release_gives_back_what_it_did_not_use(tmp_path: Path) -> None:
    """Of a server that is stopped between a charge and its release, no charge is lost."""
    place = tmp_path / LEDGER_FILE
    with start(place) as ledger:
        stopped = ledger.charge([5, 3])
        before = Stand.of(tmp_path)
        used = [Outcome(0, "teachers", stopped.events), Outcome(None, None, stopped.events[:-1])]
        ledger.release(stopped, used)
        after = Stand.of(tmp_path)
        after.follows(before)
        assert before.spent == 0 < after.spent < stopped.cost
        killed = ledger.charge([7])
    with Ledger.open(place) as ledger:
        ledger.charge([8])
        end = Stand.of(tmp_path)
    end.follows(after)
    assert (end.spent, end.wasted) == (after.spent + killed.cost, killed.cost)


def test_what_is_left_behind_is_found(left: Left) -> None:
    (left.stage.home / ".ledger.db.draft").touch()
    with pytest.raises(AssertionError, match=r"server/\.ledger\.db\.draft"):
        left._no_drafts()
    with socket.create_server(("127.0.0.1", left.stage.port)), pytest.raises(AssertionError):
        left.stage.doors_closed()
    around = Surroundings({"TMPDIR": str(left.stage.temporary)})
    program = Program(left.stage.folder, "sleeper", ["sleep", "60"], around=around)
    try:
        # What a process was started with can be read a moment after it has started, not before.
        until(lambda: left.stage.processes() == [program.pid], "the one process left is found")
    finally:
        program.sweep()
    left.stage.all_gone()


def test_a_restart_finds_other_surroundings(tmp_path: Path) -> None:
    around = Surroundings({"PYTHONHASHSEED": "5"}, tmp_path, 0o027)
    code = "import os; print(os.getcwd(), os.environ['PYTHONHASHSEED'], oct(os.umask(0)))"
    program = Program(tmp_path, "shows", [sys.executable, "-c", code], around=around)
    program.ends(0)
    assert program.output.split() == [str(tmp_path), "5", "0o27"]
    assert free_parties_port() < 32_768
