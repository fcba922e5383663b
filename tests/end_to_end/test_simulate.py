"""``pate simulate`` as its user starts it, and synthetic queries from end to end."""

from __future__ import annotations

import json
import re
import signal
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from typer.testing import CliRunner

from aggregator_server.results.report import LEDGER_FILE, describe, verify
from benchmarks.methods import campaign
from benchmarks.rows import Options
from party.cli import main
from party.ledger.accountant import cumulative_epsilon
from party.ledger.ledger import LEDGER_FILE as PARTY_LEDGER_FILE
from party.ledger.ledger import PartyLedger
from party.synthesis.files import read
from pate.accounting.filters import Delta
from pate.data.read import read_dataset, read_inputs
from pate.masking.context import check_threshold
from pate.masking.graph import degree_for
from pate.runtime.screen import Screen
from simulation.simulate import quorum
from tests.support.processes.programs import Program
from tests.support.world.forked import Command

if TYPE_CHECKING:
    from pathlib import Path


#: A simulation takes half a minute on two idle cores; this is for a machine that does much else.
DEADLINE_S = 400.0
KEYS = {
    "parties", "teachers", "labels_asked", "labels_answered", "label_accuracy", "student_accuracy",
    "nonprivate_accuracy", "majority_accuracy", "epsilon", "delta", "unit", "adjacency", "observer",
    "mechanism", "seconds", "files", "student_scores", "student_figures",
}  # fmt: skip


def words(folder: Path, *options: str) -> list[str]:
    return ["simulate", "--json", "--out", str(folder / "out"), *options]


def simulate(folder: Path, *options: str) -> Program:
    line = [sys.executable, "-m", "simulation", *words(folder, *options)]
    return Program(folder, "simulate", line)


def forked(folder: Path, *options: str) -> Program:
    """Simulate as a command that is forked: imports would take most of its time."""
    return Command(folder, "simulate", "simulation", *words(folder, *options), flower=True)


def outcome(folder: Path, program: Program) -> dict[str, Any]:
    """The report of a simulation that ends well, compared with the ledger that it leaves."""
    try:
        program.ends(0, deadline_s=DEADLINE_S)
    finally:
        program.sweep()
    report = program.result()
    assert set(report) == KEYS
    assert report["files"] == {
        "ledger": str(folder / "out" / "campaign" / LEDGER_FILE),
        "picture": str(folder / "out" / "campaign.png"),
    }
    assert (folder / "out" / "campaign.png").read_bytes().startswith(b"\x89PNG")
    ledger = verify(folder / "out" / "campaign", None)
    assert ledger["phase"] == "finished"
    assert ledger["labels_released"] == report["labels_answered"]
    assert ledger["queries_asked"] == report["labels_asked"]
    assert 0 < Fraction(str(ledger["spent"])) <= Fraction(str(ledger["cap"]))
    return report


@pytest.mark.slow
def test_fifty_parties_teach_a_student(tmp_path: Path) -> None:
    program = forked(tmp_path, "--parties", "50")
    report = outcome(tmp_path, program)
    assert (report["parties"], report["teachers"]) == (50, 100)
    assert report["labels_answered"] > 0
    assert report["epsilon"] <= 8.0
    assert report["delta"] == 1e-4
    # Ten classes: the commonest is an eighth of the records, and a student has seen 0.9 and more.
    assert report["majority_accuracy"] < 0.2
    assert report["student_accuracy"] > 0.6
    # Many parties are counted, a few of them named.
    assert "joined" not in program.text
    assert re.search(r"votes on 539 queries from (party_\d{4}, ){8}… \(50 in all\)", program.text)
    assert max(map(len, program.lines)) < 300


def test_parties_in_processes_of_their_own_give_the_same_kind_of_campaign(tmp_path: Path) -> None:
    program = simulate(
        tmp_path, "--parties", "5", "--processes", "2", "--queries", "120", "--no-student",
        "--min-parties", "5", "--colluders", "1",
    )  # fmt: skip
    report = outcome(tmp_path, program)
    assert (report["parties"], report["teachers"]) == (5, 10)
    assert "votes on 120 queries from" in program.text
    assert re.search(r"images made of copies of the 1797 digits", program.text)
    assert re.search(r"process took \d+ s of processor, and \d+ MB of memory", program.text)
    assert (tmp_path / "out" / "parties.log").read_text() == ""


def test_many_parties_mask_with_some_and_few_with_all() -> None:
    assert quorum(128) == (None, None)
    assert quorum(1000) == (900, 50)
    assert quorum(129) == (117, 6)
    assert quorum(1000, colluders=10) == (900, 10)
    assert quorum(1000, min_parties=667) == (667, 50)
    assert quorum(50, 30, 5) == (30, 5)
    for parties in (129, 200, 500, 1000):
        least, colluders = quorum(parties)
        assert least is not None
        assert colluders is not None
        check_threshold(parties, least, colluders)
    assert degree_for(1000, 900, 50).neighbours == 140


def records(folder: Path) -> tuple[str, ...]:
    """Write made-up records; return the option that names them."""
    rows = ["x,y,hot,wet,days"]
    for x, y in np.random.default_rng(6).normal(size=(900, 2)).tolist():
        days = min(max(7 + 3 * x, 0), 14)
        rows.append(f"{x:.3f},{y:.3f},{'ny'[x + y > 0]},{int(y > 0)},{days:.2f}")
    (folder / "records.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return ("--data", str(folder / "records.csv"))


@pytest.mark.slow
def test_a_student_that_answers_questions_is_asked_each_round(tmp_path: Path) -> None:
    program = forked(
        tmp_path, "--parties", "6", "--teachers", "5", "--epsilon", "100",
        "--aggregator", "interactive-gnmax", *records(tmp_path), "--label", "hot",
    )  # fmt: skip
    report = outcome(tmp_path, program)
    assert report["mechanism"] == "interactive-gnmax"
    assert report["student_accuracy"] > report["majority_accuracy"] + 0.2
    assert "round 2: predictions submitted" in program.text
    # What the student was sure of needs no new label: some of round 2 are its own, reinforced.
    assert re.search(r"round 2: .* [1-9]\d* of them reinforced", program.text)
    for number in range(6):
        assert f"party_{number:04d} joined: 5 teachers" in program.text


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "noise"), [("lnmax", "central"), ("gnmax", "distributed")])
def test_labels_come_without_a_student_too(mechanism: str, noise: str, tmp_path: Path) -> None:
    program = forked(
        tmp_path, "--parties", "6", "--teachers", "5", "--epsilon", "100",
        "--aggregator", mechanism, "--noise", noise, "--no-student",
    )  # fmt: skip
    report = outcome(tmp_path, program)
    assert report["mechanism"] == mechanism
    assert report["student_accuracy"] is None
    assert not (tmp_path / "out" / "student").exists()
    # Neither has a threshold: every query that the budget pays for gets its label.
    assert report["labels_answered"] == report["labels_asked"] > 100
    assert report["label_accuracy"] > 0.7
    # Towards a server that draws the noise nothing is promised, else no more than to the public.
    stated = describe(tmp_path / "out" / "campaign")
    if noise == "central":
        assert stated["epsilon_server"] is None
    else:
        assert 0 < stated["epsilon_server"] <= stated["epsilon"]  # type: ignore[operator]
        assert "noise shares of 4 of 6 parties are counted, standard deviation" in program.text


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    program = simulate(tmp_path, "--aggregator", "interactive-gnmax", "--no-student")
    program.ends(2)
    assert ["leave --no-student out" in line for line in program.lines] == [True]
    assert not (tmp_path / "out").exists()


HOT = ("--label", "hot", "--teachers", "20")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((*HOT, "--aggregator", "neighbour", "--code", "dense-8", "--rounds", "2"), "round 3 of 3: "),
        ((*HOT, "--aggregator", "gnmax", "--release", "arrays"), "an answer to the whole public set"),
        (
            (
                "--label", "hot", "--teachers", "1", "--aggregator", "gnmax", "--release", "arrays",
                "--unit", "party", "--parties", "20",
            ),
            "teachers that one unit changes: 1",
        ),
        (
            (
                "--aggregator", "neighbour", "--labels", "hot,wet", "--answer", "labels-2",
                "--code", "dense-8",
            ),
            "macro AUC 0.",
        ),
        (
            (
                "--aggregator", "neighbour", "--number", "days", "--answer", "number", "--range", "0,14",
            ),
            "mean absolute error ",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_all_in_one_release_is_simulated(
    tmp_path: Path, options: tuple[str, ...], line: str
) -> None:
    """Rounds, arrays, several labels, a number: there is no label, and the student learns all the same."""
    program = forked(tmp_path, "--parties", "3", "--epsilon", "8", *records(tmp_path), *options)
    report = outcome(tmp_path, program)
    if "hot" in options:
        assert line in program.text
        assert report["student_accuracy"] > report["majority_accuracy"] + 0.2
    else:
        assert report["student_scores"].startswith(line)
        assert (report["student_accuracy"], report["majority_accuracy"]) == (None, None)
    assert (report["labels_answered"], report["label_accuracy"]) == (0, None)
    assert report["unit"] == ("party" if "--unit" in options else "record")
    assert 7.9 < report["epsilon"] <= 8.0


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
    ledger = PartyLedger(home / PARTY_LEDGER_FILE, read_only=True)
    assert [each.spent_at for each in ledger.syntheses()] == [None] * paid
    assert (ledger.cumulative_epsilon(Delta(1e-5)).epsilon > 0) == paid
    assert out.exists() == written
    if written:
        assert len(read_inputs(out)) == 30  # it is whole
    again = tmp_path / "again.parquet"
    done = CliRunner().invoke(main.app, command(folder, home, again), catch_exceptions=False)
    assert done.exit_code == 0
    after = PartyLedger(home / PARTY_LEDGER_FILE, read_only=True)
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
    ledger = PartyLedger(home / PARTY_LEDGER_FILE, read_only=True)
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
