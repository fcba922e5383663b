"""Synthetic queries from end to end: killed at every step, and asked in a campaign.

What is killed is the real command in a process of its own, with its real files.
"""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.methods import campaign
from benchmarks.rows import Options
from party.cli import main
from party.ledger.accountant import cumulative_epsilon
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.synthesis.files import read
from pate.accounting.filters import Delta
from pate.data.read import read_dataset, read_inputs
from pate.runtime.screen import Screen
from tests.support.world.forked import Command

if TYPE_CHECKING:
    from pathlib import Path

NAMES: Final = ("party_0", "party_1", "party_2")
ROWS: Final = 300
#: Where the command is killed, and at which pass; whether the cost is in the ledger then, and
#: whether the file of rows is in its place.
KILLS: Final = (
    ("party-entry-written", 1, False, False),  # the bound of its policy
    ("party-entry-written", 2, False, False),
    ("party-synthesis-reserved", 1, True, False),
    ("file-drafted", 2, True, False),  # of the model; the first is the key of a new home
    ("file-drafted", 3, True, False),  # of the rows
    ("party-synthesis-written", 1, True, True),
    ("party-entry-written", 3, True, True),
)
FAILPOINTS: Final = frozenset(name for name, *_ in KILLS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hospitals' tables, and the schema that they agreed on."""
    place = tmp_path_factory.mktemp("synthetic")
    rng = np.random.default_rng(3)
    for name in NAMES:
        age = rng.integers(20, 80, ROWS)
        dose = rng.integers(0, 5, ROWS)
        ill = np.where(age + 5 * dose + rng.normal(0, 5, ROWS) > 60, "yes", "no")
        lines = [f"{a},{d},{i}" for a, d, i in zip(age, dose, ill, strict=True)]
        (place / f"{name}.csv").write_text("\n".join(["age,dose,ill", *lines]) + "\n")
    schema = {
        "format": "pate-synthesis-schema/1",
        "min_rows": 250,
        "label": "ill",
        "columns": [
            {"name": "age", "kind": "number", "integer": True, "edges": [*range(20, 81, 4)]},
            {"name": "dose", "kind": "number", "integer": True, "edges": [0, 1, 2, 3, 4, 5]},
            {"name": "ill", "kind": "category", "codes": ["no", "yes"]},
        ],
    }
    (place / "schema.json").write_text(json.dumps(schema))
    return place


def command(folder: Path, home: Path, out: Path, *options: str) -> list[str]:
    return [
        "synthesize", "--data", str(folder / "party_0.csv"), "--schema",
        str(folder / "schema.json"), "--rows", "30", "--epsilon", "1", "--home", str(home),
        "--out", str(out), "--json", *options,
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "times", "paid", "written"), KILLS)
def test_a_kill_costs_what_was_reserved_and_no_more(
    folder: Path, tmp_path: Path, name: str, times: int, paid: bool, written: bool
) -> None:
    home, out, model = tmp_path / "home", tmp_path / "out.parquet", tmp_path / "model.safetensors"
    line = command(folder, home, out, "--model-out", str(model))
    Command(tmp_path, "killed", "party", *line, failpoint=f"{name}:{times}").ends(-signal.SIGKILL)
    ledger = PartyLedger(home / LEDGER_FILE, read_only=True)
    assert [each.spent_at for each in ledger.syntheses()] == [None] * paid
    assert (ledger.cumulative_epsilon(Delta(1e-5)).epsilon > 0) == paid
    assert out.exists() == written
    if written:
        assert len(read_inputs(out)) == 30  # it is whole
    again = tmp_path / "again.parquet"
    done = CliRunner().invoke(main.app, command(folder, home, again), catch_exceptions=False)
    assert done.exit_code == 0
    after = PartyLedger(home / LEDGER_FILE, read_only=True)
    after.verify()
    assert [each.spent_at is None for each in after.syntheses()] == [True] * paid + [False]
    assert after.cumulative_epsilon(Delta(1e-5)) == cumulative_epsilon(
        [], Delta(1e-5), [each.synthesis for each in after.syntheses()]
    )
    assert len(after.syntheses()) == 1 + paid


def test_what_a_kill_leaves_behind_is_swept(folder: Path, tmp_path: Path) -> None:
    """The same command again finds the draft of its file and removes it."""
    home, out = tmp_path / "home", tmp_path / "out.parquet"
    line = command(folder, home, out)
    Command(tmp_path, "killed", "party", *line, failpoint="file-drafted:2").ends(-signal.SIGKILL)
    assert len(list(tmp_path.glob(".out.parquet.*"))) == 1
    assert CliRunner().invoke(main.app, line, catch_exceptions=False).exit_code == 0
    assert not list(tmp_path.glob(".out.parquet.*"))


def test_a_campaign_over_synthetic_queries(folder: Path, tmp_path: Path) -> None:
    """One party's rows are the public set; its ledger states rows and votes as one figure."""
    home, out = tmp_path / "party_0", tmp_path / "public.parquet"
    made = CliRunner().invoke(main.app, command(folder, home, out), catch_exceptions=False)
    assert made.exit_code == 0
    public = read_inputs(out)
    parties = [read_dataset(folder / f"{name}.csv", label="ill") for name in NAMES]
    options = Options(
        aggregator="gnmax", epsilon=50.0, delta=1e-5, teachers=20, model="logistic",
        sigma2="4", max_queries=30,
    )  # fmt: skip
    screen = Screen("test")
    sources = campaign.teachers_of(parties, options, tmp_path, screen)
    outcome = campaign.run(sources, public, options, place=tmp_path, screen=screen)
    assert len(outcome.labels.rows) == len(public) == 30
    shown = {name: _ledger(tmp_path / name) for name in NAMES}
    assert [len(shown[name]["synthetic_rows"]) for name in NAMES] == [1, 0, 0]
    first, *others = (shown[name]["own_figure"]["epsilon"] for name in NAMES)
    ledger = PartyLedger(home / LEDGER_FILE, read_only=True)
    (rows,) = ledger.syntheses()
    assert first == cumulative_epsilon(ledger.totals(), Delta(1e-5), [rows.synthesis]).epsilon
    assert first < others[0] + 1, "the costs are added up before they are converted, or GDP and all"
    assert others == [others[0]] * 2
    assert first > others[0]
    _, about = read(out)
    assert about.sources[0].rows == 30


def _ledger(home: Path) -> dict[str, Any]:
    shown = CliRunner().invoke(main.app, ["ledger", "--home", str(home), "--json"])
    found: dict[str, Any] = json.loads(shown.stdout)
    return found
