"""Files of earlier versions stay readable: ledgers, policies, homes, campaigns and students.

Each archive next to this file is named after the commit whose programs left its files there, and
made by ``make.py``.
"""

from __future__ import annotations

import csv
import json
import sys
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from aggregator_server.cli.main import app as server
from party.cli.main import app as party
from pate.errors import DataError
from pate.runtime.child import free_port
from simulation.programs import Program
from student.cli import app as student
from tests.support.world.stand import Stand

if TYPE_CHECKING:
    import typer

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))
NAMES = ("east", "north", "west")
TEACHERS = 2
#: A statement is worded anew: what is public may be said with more words or fewer.
WORDS = {"adjacency"}


@pytest.fixture(params=ARCHIVES, ids=lambda archive: archive.name.partition(".")[0])
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh copy of the old files, which is also where we are."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def does(app: typer.Typer, *arguments: str) -> str:
    """Run a command; return what it printed."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def refuses(app: typer.Typer, *arguments: str, saying: str) -> None:
    """Run a command that must refuse what it is given, in one line."""
    done = CliRunner().invoke(app, list(arguments))
    assert isinstance(done.exception, DataError), done.output
    (line,) = str(done.exception).splitlines()
    assert saying in line


def resumed(campaign: str) -> Stand:
    """Go on with a campaign, with all its parties or with those that it needs; return its end."""
    port, on_tables = str(free_port()), campaign == "table"
    home, homes = ("table-server", "table-homes") if on_tables else ("server", "homes")
    data = ("--model", "logistic", "--label", "class") if on_tables else ("--model", "linear")
    with ExitStack() as stack:

        def starts(name: str, *arguments: str) -> Program:
            program = Program(Path(), name, [sys.executable, "-m", *arguments])
            stack.callback(program.sweep)
            return program

        going = starts(
            "server", "aggregator_server", "resume", "--home", home, "--campaign", campaign, "--port", port,
            "--student-port", str(free_port()), "--no-page", "--linger", "0",
        )  # fmt: skip
        joined = [
            starts(
                name, "party", "start", "--data", f"{'tables' if on_tables else 'data'}/{name}", *data,
                "--teachers", str(TEACHERS), "--home", f"{homes}/{name}", "--server", f"127.0.0.1:{port}",
            )
            for name in NAMES
        ]  # fmt: skip
        going.ends(0)
        for each in joined:
            each.ends(0)
    return Stand.of(Path(home, campaign))


def assert_same_but_figures(now: object, before: object) -> None:
    """Check that all that was reported is reported again, whatever is added."""
    if isinstance(before, dict):
        assert isinstance(now, dict)
        for key in before.keys() - {"own_figure"}:
            assert_same_but_figures(now[key], before[key])
    elif isinstance(before, list):
        assert isinstance(now, list)
        for one, other in zip(now, before, strict=True):
            assert_same_but_figures(one, other)
    else:
        assert now == before


def told(of: str) -> dict[str, object]:
    """What the old programs said of a campaign, or of a party's home."""
    found = json.loads(Path("told.json").read_text())[of]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("campaign", ["over", "gated", "neighbour", "halfway", "early", "table"])
def test_a_servers_ledger_holds_and_says_what_it_said(old: Path, campaign: str) -> None:
    home = "table-server" if campaign == "table" else "server"
    at = ("--home", home, "--campaign", campaign)
    verified = json.loads(does(server, "ledger", "verify", "--json", *at))
    before = told(campaign)
    # A cap of the whole budget is the budget: it said less, by what a bisection leaves.
    said = before["epsilon"]
    assert isinstance(said, float)
    assert said <= verified["epsilon"] <= said * (1 + 1e-8)
    unlike = {*WORDS, "epsilon"}
    assert {key: verified.get(key) for key in before if key not in unlike} == {
        key: value for key, value in before.items() if key not in unlike
    }
    assert does(server, "status", *at)
    assert does(server, "ledger", "show", *at)


@pytest.mark.parametrize("home", [*(f"homes/{name}" for name in NAMES), "hospital"])
def test_a_partys_ledger_holds_and_says_what_it_said(old: Path, home: str) -> None:
    shown, before = json.loads(does(party, "ledger", "--json", "--home", home)), told(home)
    # Its accountant is today's: what the same votes come to may be another figure, and is one.
    assert_same_but_figures(shown, before)
    assert shown["own_figure"]["epsilon"] > 0


def test_a_statement_is_verified_by_a_party(old: Path) -> None:
    assert "ok" in does(party, "verify", "student/privacy.json", "--home", "homes/east")
    # The one that is written anew from the old ledger, too.
    does(server, "export", "--out", "again.json", "--home", "server", "--campaign", "over")
    again = json.loads(Path("again.json").read_text())
    Path("privacy.json").write_text(again.pop("privacy"))
    assert "ok" in does(party, "verify", "privacy.json", "--home", "homes/north")
    was = json.loads(Path("labels.json").read_text())
    del was["privacy"]
    assert again == was


def test_a_student_predicts_what_it_predicted(old: Path) -> None:
    does(
        student, "predict", "--model", "student", "--data", "public-gated.npz", "--out", "again.csv"
    )
    again, before = (
        list(csv.reader(Path(name).read_text().splitlines()))
        for name in ("again.csv", "predicted.csv")
    )
    assert [row[:2] for row in again] == [row[:2] for row in before]
    assert again[0] == before[0]
    # Six decimals of linear algebra, whose sums each processor adds in its own order.
    for row, other in zip(again[1:], before[1:], strict=True):
        assert list(map(float, row[2:])) == pytest.approx(list(map(float, other[2:])), abs=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("campaign", ["halfway", "early", "table"])
def test_a_campaign_goes_on_where_it_was_killed(old: Path, campaign: str) -> None:
    home = "table-server" if campaign == "table" else "server"
    before = Stand.of(old / home / campaign)
    if campaign != "table":
        # Certificates of servers last a year, what the parties pinned lasts ten.
        does(server, "rotate", "--home", home)
    after = resumed(campaign)
    after.follows(before)
    assert (after.phase, after.vain) == ("finished", 0)
    assert len(after.labels) > len(before.labels)


def test_backups_that_nobody_signed_are_restored_if_one_says_so(old: Path) -> None:
    was = Path("server/over").rename("over-before")
    restores = ["ledger", "restore", "server-backup", "--home", "server"]
    refuses(server, *restores, saying="--unsigned")
    does(server, *restores, "--unsigned")
    assert Stand.of(Path("server/over")) == Stand.of(was)
    shown = does(party, "ledger", "--home", "homes/east")
    for kept in Path("homes/east").glob("ledger.*"):
        kept.unlink()
    Path("homes/east/noise.db").unlink()
    restores = ["restore", "home-backup", "--home", "homes/east", "--entries-lost"]
    refuses(party, *restores, saying="--unsigned")
    does(party, *restores, "--unsigned")
    assert does(party, "ledger", "--home", "homes/east") == shown


def test_a_kept_model_makes_more_rows_at_no_cost(old: Path) -> None:
    before = json.loads(does(party, "ledger", "--json", "--home", "hospital"))
    does(
        party, "synthesize", "--schema", "schema.json", "--rows", "5", "--model", "model.npz",
        "--out", "more.parquet", "--home", "hospital",
    )  # fmt: skip
    after = json.loads(does(party, "ledger", "--json", "--home", "hospital"))
    assert after["own_figure"] == before["own_figure"]
