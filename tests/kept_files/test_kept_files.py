"""Files of released versions stay readable: ledgers, policies, homes, campaigns and students.

Each archive next to this file is named after the version whose programs left its files there, and was
made by ``make.py``.
"""

from __future__ import annotations

import csv
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from aggregator_server.cli.main import app as server
from party.cli.main import app as party
from pate.runtime.child import free_port
from student.cli import app as student
from tests.kept_files.make import CAMPAIGNS, HOMES, NAMES, PUBLISHED, Programs, does, home_of
from tests.support.world.stand import Stand

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))


@pytest.fixture(
    params=ARCHIVES, ids=lambda archive: archive.name.removesuffix(".tar.xz"), autouse=True
)
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh copy of the files, which is also where we are."""
    folder = tmp_path / "kept"
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    monkeypatch.chdir(folder)
    return folder


def said(of: str) -> Any:
    """What the programs that left the files said of a campaign or a home."""
    return json.loads(Path("said.json").read_text())[of]


def assert_same(now: Any, before: Any) -> None:
    """Check that all that was said is said again, whatever is added."""
    if isinstance(before, dict):
        for key, value in before.items():
            assert_same(now[key], value)
    elif isinstance(before, list):
        for one, other in zip(now, before, strict=True):
            assert_same(one, other)
    elif isinstance(before, float):
        # Each processor adds in its own order.
        assert now == pytest.approx(before, rel=1e-9)
    else:
        assert now == before


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_a_servers_ledger_says_what_it_said(campaign: str) -> None:
    at = ("--home", home_of(campaign), "--campaign", campaign)
    assert_same(json.loads(does(server, "ledger", "verify", "--json", *at)), said(campaign))
    assert does(server, "status", *at)
    assert does(server, "ledger", "show", *at)


@pytest.mark.parametrize("home", HOMES)
def test_a_partys_ledger_says_what_it_said(home: str) -> None:
    assert_same(json.loads(does(party, "ledger", "--json", "--home", home)), said(home))


def test_a_statement_is_verified_by_a_party_and_made_again() -> None:
    assert "ok" in does(party, "verify", "student/privacy.json", "--home", "homes/east")
    of = ("--home", "server", "--campaign", PUBLISHED)
    does(server, "export", "--out", "again.json", *of)
    assert_same(
        json.loads(Path("again.json").read_text()), json.loads(Path("labels.json").read_text())
    )


def test_a_student_predicts_what_it_predicted() -> None:
    does(
        student, "predict", "--model", "student", "--data", "public-gated.csv", "--out", "again.csv"
    )
    again, before = (
        list(csv.reader(Path(name).read_text().splitlines()))
        for name in ("again.csv", "predicted.csv")
    )
    assert again[0] == before[0]
    assert [row[:2] for row in again] == [row[:2] for row in before]
    for row, other in zip(again[1:], before[1:], strict=True):
        assert list(map(float, row[2:])) == pytest.approx(list(map(float, other[2:])), abs=2e-5)


def test_backups_are_restored_by_those_who_signed_them() -> None:
    was = Path("server", PUBLISHED).rename("before")
    does(server, "ledger", "restore", "server-backup", "--home", "server")
    assert Stand.of(Path("server", PUBLISHED)) == Stand.of(was)
    shown = does(party, "ledger", "--home", "homes/east")
    for file in (*Path("homes/east").glob("ledger.*"), *Path("homes/east").glob("noise.db*")):
        file.unlink()
    does(party, "restore", "home-backup", "--home", "homes/east", "--entries-lost")
    assert does(party, "ledger", "--home", "homes/east") == shown


def test_a_stored_model_makes_more_rows_at_no_cost() -> None:
    does(
        party, "synthesize", "--schema", "schema.json", "--rows", "5", "--model", "model.safetensors",
        "--out", "more.parquet", "--home", "hospital",
    )  # fmt: skip
    after = json.loads(does(party, "ledger", "--json", "--home", "hospital"))
    assert after["own_figure"] == said("hospital")["own_figure"]


@pytest.mark.slow
@pytest.mark.parametrize("campaign", [name for name, (_, killed) in CAMPAIGNS.items() if killed])
def test_a_campaign_goes_on_where_it_was_killed(kept: Path, tmp_path: Path, campaign: str) -> None:
    place, port = kept / home_of(campaign) / campaign, free_port()
    before = Stand.of(place)
    with Programs(kept, tmp_path) as programs:
        joined = [programs.join(campaign, name, port) for name in NAMES]
        for each in joined:  # what was voted on is stored: the server may need no votes, and end
            each.says("teachers are ready")
        going = programs.serve(campaign, "resume", "--linger", "0", doors=(port, free_port()))
        for each in (going, *joined):
            each.ends(0)
    after = Stand.of(place)
    after.follows(before)
    assert (after.phase, after.vain) == ("finished", 0)
    assert len(after.labels) > len(before.labels)
