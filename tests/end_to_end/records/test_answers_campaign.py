"""Neighbour votes for classes in their order, over TLS, from records to a student.

Of several labels and of numbers whole simulations are in ``test_simulate.py``.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from pate.data.values import Table
from pate.formats.labels import LabelSet
from pate.formats.privacy_statement import adjacency_of
from tests.student.chances.test_cells import THREE, draw, people
from tests.support.world.commands import Campaign
from tests.support.world.sites import Sites, lenient

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.programs import Program

pytestmark = pytest.mark.slow

NAMES: Final = ("north", "south", "west")
EACH: Final = 600
REPRESENTATIVES: Final = 60
CODE: Final = "nearest ordered"


def written(path: Path, table: Table) -> Path:
    """Write a table as CSV next to ``path``; return the file."""
    made = path.with_suffix(".csv")
    with made.open("w", newline="", encoding="utf-8") as file:
        rows = zip(*(column.tolist() for column in table.columns), strict=True)
        csv.writer(file).writerows([table.names, *rows])
    return made


def columns(count: int, seed: int) -> Table:
    """Return made-up records with their stages."""
    table, chances = people(count, seed)
    said = np.array(THREE)[draw(chances, seed + 90)]
    return Table((*table.names, "stage"), (*table.columns, said))


@dataclass(frozen=True)
class Tables(Sites):
    """Parties with tables of made-up records."""

    def deal(self) -> Tables:
        for at, name in enumerate(self.names):
            self.data(name).mkdir(parents=True)
            written(self.data(name) / "records", columns(EACH, 2 + at))
        return self

    def public(self, first: int = 1, count: int = 300) -> Path:
        return written(self.folder / "public", people(count, first)[0])


@dataclass(frozen=True)
class Told:
    """A campaign that has ended, and its student."""

    campaign: Campaign
    student: Path

    def shown(self, name: str, module: str, *arguments: object) -> str:
        """Return the screen of a command that succeeds, as one line."""
        program = self.campaign.run(name, module, *arguments)
        program.ends(0)
        return flat(program)


def flat(program: Program) -> str:
    return " ".join((program.text + program.output).replace("│", " ").split())


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The campaign, run to its end."""
    folder = tmp_path_factory.mktemp("ordered")
    sites = Tables(folder, NAMES).deal()
    written(folder / "test", columns(400, 50))
    with Campaign(folder / "campaign", sites) as campaign:
        campaign.enrol(lenient(3, 3) + 'answers = ["ordered"]\n')
        public = sites.public()
        server = campaign.serve(
            public, "--aggregator", "neighbour", "--answer", "ordered", "--classes", ",".join(THREE),
            "--epsilon", "4", "--representatives", str(REPRESENTATIVES), "--linger", "120",
            parties=",".join(NAMES),
        )  # fmt: skip
        voting = ("--votes", "neighbour", "--label", "stage")
        parties = [campaign.party(name, *voting) for name in NAMES]
        student = campaign.run(
            "student", "student", "train", "--server", f"127.0.0.1:{campaign.student_port}",
            "--token-file", campaign.home / "student.token", "--public", public, "--steps", "10",
            "--out", folder / "student", "--test", folder / "test.csv", "--label", "stage",
        )  # fmt: skip
        for program in (*parties, student, server):
            program.ends(0)
        campaign.programs = [server, *parties, student]
        return Told(campaign, folder / "student")


def test_every_screen_says_what_was_released(told: Told) -> None:
    home, north = told.campaign.home, told.campaign.sites.home("north")
    status = told.shown("status", "aggregator_server", "status", "--home", home)
    ledger = told.shown("ledger", "party", "ledger", "--home", north)
    server, party, *_, student = map(flat, told.campaign.programs[:5])
    for screen in (status, ledger, server, party):
        assert "noisy counts and no label" not in screen
    assert "it casts one vote, for classes in their order, and changes no other vote" in status
    assert "inputs right" in student


def test_the_ledger_holds_and_a_party_agrees_with_the_statement(told: Told) -> None:
    found = told.campaign.verified()
    assert found["spent"] == found["cap"]
    statement = told.student / "privacy.json"
    said = json.loads(statement.read_text())
    assert said["adjacency"] == adjacency_of("record", records_vote=True, code=CODE)
    assert said["mechanism"][0]["code"] == CODE
    assert said["labels_released"] > 0
    home = told.campaign.sites.home("south")
    told.shown("agrees", "party", "verify", statement, "--home", home)
    # That a record moves one count of the matrix is not so for classes in their order.
    other = told.student.parent / "other.json"
    said["adjacency"] = adjacency_of("record", records_vote=True)
    other.write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")
    told.campaign.run("differs", "party", "verify", other, "--home", home).ends(22)


def test_counts_of_all_records_are_in_the_file_beside_the_labels(told: Told) -> None:
    file = told.student.parent / "labels.json"
    shown = told.shown(
        "export", "aggregator_server", "export", "--out", file, "--home", told.campaign.home
    )
    labels = LabelSet.from_json(file.read_text())
    assert f"{labels.content_in_words} written to" in shown
    assert labels.noisy is not None
    assert labels.rows
    counts = labels.noisy.counts
    # Noise of geometric law: at most eight of its standard deviations, about 1e-5 of all runs.
    allowed = 8 * labels.noisy.sigma * np.sqrt(counts.size)
    assert abs(int(counts.sum()) - EACH * len(NAMES)) < allowed


def test_the_card_says_what_was_voted_for_and_what_was_measured(told: Told) -> None:
    flowing = " ".join((told.student / "README.md").read_text().split())
    assert "It tells 3 classes apart, which have an order: low, middle, high." in flowing
    assert "a clear winner got it as their label" in flowing
    assert "There is no ONNX file" in flowing
    about = json.loads((told.student / "model.json").read_text())
    assert about["answer"] == "ordered"
    assert "learnt_from" not in about["training"]
    measured = json.loads((told.student / "evaluation.json").read_text())
    assert measured["count"] == 400
    again = told.campaign.run(
        "evaluate", "student", "evaluate", "--model", told.student, "--json",
        "--data", told.student.parent / "test.csv", "--out", told.student.parent / "figures",
        "--label", "stage",
    )  # fmt: skip
    again.ends(0)
    assert again.result()["count"] == 400
