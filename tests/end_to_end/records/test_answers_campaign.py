"""Neighbour votes for several labels, numbers and ordered classes, over TLS, from records to a student."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from aggregator_server.results.report import describe
from pate.codes import code_of
from pate.data.values import Table
from pate.formats.labels import LabelSet
from pate.formats.privacy_statement import adjacency_of
from tests.student.chances.test_cells import THREE, draw, people
from tests.student.fit.test_several import LABELS, days, records
from tests.support.world.commands import Campaign
from tests.support.world.sites import Sites, lenient

if TYPE_CHECKING:
    from pathlib import Path

    from pate.data.values import Dataset
    from simulation.programs import Program

pytestmark = pytest.mark.slow

NAMES: Final = ("north", "south", "west")
EACH: Final = 600
POLICY: Final = lenient(3, 3) + 'answers = ["labels", "number", "ordered"]\n'


def written(path: Path, table: Table) -> Path:
    """Write a table as CSV next to ``path``; return the file."""
    made = path.with_suffix(".csv")
    with made.open("w", newline="", encoding="utf-8") as file:
        rows = zip(*(column.tolist() for column in table.columns), strict=True)
        csv.writer(file).writerows([table.names, *rows])
    return made


def columns(answer: str, count: int, seed: int) -> Table:
    """Return made-up records with the columns of an answer."""
    if answer == "ordered":
        table, chances = people(count, seed)
        said = np.array(THREE)[draw(chances, seed + 90)]
        return Table((*table.names, "stage"), (*table.columns, said))
    data: Dataset = days(count, seed) if answer == "number" else records(count, seed)
    held = data.inputs
    assert isinstance(held, Table)
    assert data.answers is not None
    values = data.answers.astype(np.float64).reshape(count, -1)
    names = ("days",) if answer == "number" else LABELS
    return Table((*held.names, *names), (*held.columns, *values.T))


#: Of a number: the points of its range, and the directions in which records vote.
POINTS: Final = [str(day) for day in range(13)]
DIRECTIONS: Final = 24
#: Options of the server, of each party and of the student, by answer.
OPTIONS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "labels-2": ((), ("--labels", ",".join(LABELS)), ()),
    "number": (
        ("--range", ",".join(POINTS), "--code", f"dense-{DIRECTIONS}"),
        ("--number", "days"), ("--label", "days"),
    ),
    "ordered": (("--classes", ",".join(THREE)), ("--label", "stage"), ("--label", "stage")),
}  # fmt: skip
CODE: Final = {
    "labels-2": "nearest labels-2",
    "number": f"dense-{DIRECTIONS} number",
    "ordered": "nearest ordered",
}
#: What the model card says, and each last line of a screen.
CARD: Final = {
    "labels-2": "each of their records vote once, for its labels, at most 2 of them",
    "number": "vote once, for its number, divided between two points of a range",
    "ordered": "It tells 3 classes apart, which have an order: low, middle, high.",
}
VOTES: Final = {
    "labels-2": "it casts one vote, for up to 2 labels, and changes no other vote",
    "number": "it casts one vote, counted in 24 directions, divided between two points of a range",
    "ordered": "it casts one vote, for classes in their order, and changes no other vote",
}
FIGURE: Final = {
    "labels-2": "macro AUC",
    "number": "mean absolute error",
    "ordered": "inputs right",
}


@dataclass(frozen=True)
class Tables(Sites):
    """Parties with tables of made-up records."""

    answer: str = "number"

    def deal(self) -> Tables:
        for at, name in enumerate(self.names):
            self.data(name).mkdir(parents=True)
            written(self.data(name) / "records", columns(self.answer, EACH, 2 + at))
        return self

    def public(self, first: int = 1, count: int = 300) -> Path:
        return written(self.folder / "public", people(count, first)[0])


@dataclass(frozen=True)
class Told:
    """A campaign that has ended, and its student."""

    answer: str
    campaign: Campaign
    student: Path

    def shown(self, name: str, module: str, *arguments: object) -> str:
        """Return the screen of a command that succeeds, as one line."""
        program = self.campaign.run(name, module, *arguments)
        program.ends(0)
        return flat(program)


def number(answer: str) -> str:
    """Return the number of representatives or directions."""
    return str(DIRECTIONS if answer == "number" else 60)


def flat(program: Program) -> str:
    return " ".join((program.text + program.output).replace("│", " ").split())


def ended(folder: Path, answer: str) -> Told:
    """Run a campaign to its end."""
    sites = Tables(folder, NAMES, answer=answer).deal()
    written(folder / "test", columns(answer, 400, 50))
    served, voted, measured = OPTIONS[answer]
    with Campaign(folder / "campaign", sites) as campaign:
        campaign.enrol(POLICY)
        public = sites.public()
        server = campaign.serve(
            public, "--aggregator", "neighbour", "--answer", answer, *served, "--epsilon", "4",
            "--representatives", number(answer), "--linger", "120", parties=",".join(NAMES),
        )  # fmt: skip
        parties = [campaign.party(name, "--votes", "neighbour", *voted) for name in NAMES]
        student = campaign.run(
            "student", "student", "train", "--server", f"127.0.0.1:{campaign.student_port}",
            "--token-file", campaign.home / "student.token", "--public", public, "--steps", "10",
            "--out", folder / "student", "--test", folder / "test.csv", *measured,
        )  # fmt: skip
        for program in (*parties, student, server):
            program.ends(0)
        campaign.programs = [server, *parties, student]
        return Told(answer, campaign, folder / "student")


@pytest.fixture(scope="module", params=OPTIONS)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The campaign of an answer."""
    return ended(tmp_path_factory.mktemp(request.param), request.param)


def test_every_screen_says_what_was_released(told: Told) -> None:
    home, north = told.campaign.home, told.campaign.sites.home("north")
    status = told.shown("status", "aggregator_server", "status", "--home", home)
    ledger = told.shown("ledger", "party", "ledger", "--home", north)
    server, party, *_, student = map(flat, told.campaign.programs[:5])
    counts_only = told.answer != "ordered"
    for screen in (status, ledger, server, party):
        assert ("noisy counts and no label" in screen) == counts_only
        assert "13 labels" not in screen
    assert VOTES[told.answer] in status
    assert FIGURE[told.answer] in student
    learnt = {
        "labels-2": "noisy counts of 60 representatives",
        "number": "noisy sums in 24 directions",
    }.get(told.answer)
    for doing in ("learnt from", "training the final student on"):
        assert learnt is None or f"{doing} {learnt}" in student


def test_the_ledger_holds_and_a_party_agrees_with_the_statement(told: Told) -> None:
    found = told.campaign.verified()
    assert found["spent"] == found["cap"]
    statement = told.student / "privacy.json"
    said = json.loads(statement.read_text())
    code = CODE[told.answer]
    assert said["adjacency"] == adjacency_of("record", records_vote=True, code=code)
    assert said["mechanism"][0]["code"] == code
    assert (said["labels_released"] > 0) == (told.answer == "ordered")
    home = told.campaign.sites.home("south")
    told.shown("agrees", "party", "verify", statement, "--home", home)
    # That a record moves one count of the matrix is not so for these answers.
    other = told.student.parent / "other.json"
    said["adjacency"] = adjacency_of("record", records_vote=True)
    other.write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")
    told.campaign.run("differs", "party", "verify", other, "--home", home).ends(22)


def test_counts_of_all_records_are_in_the_file_and_labels_of_classes_only(told: Told) -> None:
    file = told.student.parent / "labels.json"
    shown = told.shown(
        "export", "aggregator_server", "export", "--out", file, "--home", told.campaign.home
    )
    labels = LabelSet.from_json(file.read_text())
    assert f"{labels.content_in_words} written to" in shown
    assert labels.noisy is not None
    assert bool(labels.rows) == (told.answer == "ordered")
    if told.answer == "number":  # sums of features, whose total says nothing
        check_number(told, labels)
        return
    counts = labels.noisy.counts.astype(np.float64)
    if told.answer == "labels-2":
        # A record is in `none` and in half of each of its labels, once in all.
        none = labels.classes.index("none")
        weights = [1 if at == none else 1 / 2 for at in range(len(labels.classes))]
        grid = 2
    else:
        weights, grid = [1] * len(labels.classes), 1
    total = float((counts * weights).sum()) / grid
    # Noise of geometric law: at most eight of its standard deviations, about 1e-5 of all runs.
    allowed = 8 * labels.noisy.sigma / grid * np.sqrt(counts.size)
    assert abs(total - EACH * len(NAMES)) < allowed


def check_number(told: Told, labels: LabelSet) -> None:
    """Check votes in directions for the points next to a number, and a student's medians."""
    assert labels.noisy is not None
    assert labels.noisy.dense
    found = describe(told.campaign.place)
    assert (found["aggregation"], found["noise"]) == ("masked", "distributed")
    assert found["answer"] == "number"
    assert found["queries_asked"] == DIRECTIONS
    about = json.loads((told.student / "model.json").read_text())
    assert about["classes"] == POINTS
    assert code_of(CODE["number"]).in_words in flat(told.campaign.programs[0])
    measured = json.loads((told.student / "evaluation.json").read_text())
    error = measured["mean_absolute_error"]
    # Of the made-up days nothing predicts better than about 0.8, and always one number errs by 2.2.
    assert error["interval"][1] < 0.6 * measured["mean_absolute_error_of_median"]


def test_the_card_says_what_was_voted_for_and_what_was_measured(told: Told) -> None:
    card = (told.student / "README.md").read_text()
    flowing = " ".join(card.split())
    assert CARD[told.answer] in flowing
    assert ("a clear winner got it as their label" in flowing) == (told.answer == "ordered")
    assert "There is no ONNX file" in flowing
    measured = json.loads((told.student / "evaluation.json").read_text())
    assert measured["count"] == 400
    about = json.loads((told.student / "model.json").read_text())
    assert about["answer"] == told.answer
    assert ("learnt_from" in about["training"]) == (told.answer != "ordered")
    test = told.student.parent / "test.csv"
    again = told.campaign.run(
        "evaluate", "student", "evaluate", "--model", told.student, "--data", test, "--json",
        "--out", told.student.parent / "figures", *OPTIONS[told.answer][2],
    )  # fmt: skip
    again.ends(0)
    assert again.result()["count"] == 400
