"""Teachers vote for a class in one release: whole campaigns, from records to a student, in one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import verify
from aggregator_server.options import CampaignOptions
from aggregator_server.results.report import LEDGER_FILE, label_set
from aggregator_server.results.statement import privacy_statement
from party.identity.keys import shard_key
from party.ledger.ledger import PartyLedger
from party.ledger.verify import agrees, verify_statement
from party.teachers.ensemble import Averaged
from pate.accounting.composition import Gdp
from pate.accounting.events import NoisyArray
from pate.campaign.settings import spec_of
from pate.campaign.spec import CampaignSpec
from pate.codes import GRID, code_of
from pate.data.values import Dataset, Inputs, Table
from pate.errors import UsageError
from pate.formats.labels import LabelSet
from pate.formats.privacy_statement import PrivacyStatement
from pate.planning.forecast import teachers_wanted
from pate.runtime.home import private_directory
from pate.runtime.screen import Screen
from simulation.datasets import DatasetSplit, deal, digits
from simulation.parties import open_ensemble, open_voter, party_home
from simulation.simulate import carrier_to, run_campaign
from student.chances.evidence import chances_of
from student.evaluation.evaluate import Evaluation, LabelledData
from student.lesson import Effort, Lesson, Student
from student.session import graduate, teachers_of
from student.session import lesson as lesson_of
from student.training import train

CLASSES = ("no", "yes")
PARTIES, TEACHERS, QUERIES, RECORDS = 3, 60, 200, 900
TERMS: dict[str, Any] = {
    "campaign": "once", "aggregator": "gnmax", "parties": str(PARTIES),
    "classes": ",".join(CLASSES), "epsilon": 4.0, "delta": 1e-5,
}  # fmt: skip


def records(number: int, seed: int) -> Dataset:
    """A class that is a direction of six columns, and has a third of the records."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(number, 6))
    labels = (values @ [1.0, 1, 0.5, 0, 0, 0] + 0.5 * rng.normal(size=number) > 0.6).astype(
        np.int64
    )
    columns = tuple(np.ascontiguousarray(each) for each in values.T)
    return Dataset(Table(tuple(f"x{at}" for at in range(6)), columns), labels, CLASSES)


PUBLIC = records(QUERIES, 1).inputs


def made(public: Inputs = PUBLIC, **changes: Any) -> CampaignSpec:
    return spec_of(CampaignOptions(**(TERMS | changes)), public)


def ran(
    place: Path,
    teachers: int = TEACHERS,
    model: str = "",
    split: DatasetSplit | None = None,
    **changes: Any,
) -> tuple[LabelSet, Path]:
    """Run a campaign, of a table unless data are given; return its labels and the folder of its ledger."""
    voters, public = [], PUBLIC if split is None else split.public.inputs
    for number in range(PARTIES):
        home = private_directory(party_home(place, number))
        own = records(RECORDS, 10 + number) if split is None else split.parties[number]
        voters.append(
            open_voter(
                home,
                open_ensemble(home, own, teachers, model=model)
                if model
                else Averaged(own, teachers, shard_key(home)),
            )
        )
    folder = place / "campaign"
    with (
        Ledger.create(folder / LEDGER_FILE, made(public, **changes)) as ledger,
        carrier_to(voters) as carrier,
    ):
        run_campaign(ledger, public, carrier, screen=Screen("test"))
    return label_set(folder), folder


def ranks(labels: LabelSet, out: Path) -> float:
    """The area under the curve of the student that learns from the labels."""

    def trainer(lesson: Lesson, _: int) -> Student:
        return train(lesson, model="auto", seed=0, effort=Effort(steps=20))

    test = LabelledData(records(1000, 99), "test", None)
    result = graduate(labels, PUBLIC, trainer, out, facts={}, name="once", test=test).evaluation
    assert result is not None
    assert isinstance(result, Evaluation)
    assert result.scores is not None
    assert result.scores.area is not None
    return result.scores.area.value


@pytest.mark.parametrize(
    ("release", "changes", "code", "change"),
    [
        ("counts", {}, "each-200", (2 * 200, 2 * 200)),
        ("balanced", {"noise": "central"}, "each-200 balanced", (2 * 200, 2 * 200)),
        ("axes-12", {}, "axes-12", ((2 * GRID) ** 2, 2**20)),
        ("axes-12", {"aggregation": "plain"}, "axes-12", ((2 * GRID) ** 2, 2**20)),
        ("axes-12", {"unit": "party", "epsilon": 8.0}, "axes-12", (GRID**2, 2**20)),
    ],
)
def test_teachers_vote_at_once_and_a_student_learns(
    tmp_path: Path, release: str, changes: dict[str, Any], code: str, change: tuple[int, int]
) -> None:
    by_party = changes.get("unit") == "party"
    labels, folder = ran(tmp_path, teachers=1 if by_party else TEACHERS, release=release, **changes)
    verify(folder / LEDGER_FILE)
    noisy = labels.noisy
    assert noisy is not None
    assert noisy.code == code
    with Ledger.open(folder / LEDGER_FILE) as ledger:
        state = ledger.state()
    (mechanism,) = state.mechanisms
    (event,) = mechanism.worst
    assert isinstance(event, NoisyArray)
    assert event.change == change
    assert state.spent == state.cap == Gdp().cost(event)
    statement = privacy_statement(state)
    among = "all data of one party added or removed" if by_party else "one record added or removed"
    assert statement.adjacency.startswith(among)
    own = PartyLedger(party_home(tmp_path, 0) / "ledger.db")
    checks = verify_statement(
        PrivacyStatement.from_json(labels.privacy), own.find(labels.campaign.hex())
    )
    assert agrees(checks), checks
    assert all(row.source == "teachers" for row in labels.rows)
    if release.startswith("axes"):
        assert not labels.rows
    # Three parties as units have noise of 1.4 times what each says: that their student ranks is luck.
    if not by_party and changes.get("aggregation") != "plain":
        assert ranks(labels, tmp_path / "student") > 0.8


def test_arrays_of_any_kind_of_teachers(tmp_path: Path) -> None:
    labels, _ = ran(tmp_path, model="linear", teachers=20, release="axes-8", epsilon=8.0)
    assert ranks(labels, tmp_path / "student") > 0.75


def test_a_student_of_images_learns_from_arrays(tmp_path: Path) -> None:
    import torch

    split = deal(digits(), PARTIES, public=400, test=300)
    classes = ",".join(split.public.classes)
    labels, folder = ran(tmp_path, split=split, release="axes-16", classes=classes, epsilon=8.0)
    verify(folder / LEDGER_FILE)
    assert not labels.rows
    lesson = lesson_of(
        split.public.inputs, labels.rows, labels.classes, labels.noisy, teachers_of(labels)
    )
    (told,) = chances_of(lesson, None, seed=0)
    assert (told.matrix.argmax(axis=1) == split.public.labels).mean() > 0.7
    torch.set_num_threads(1)
    student = train(lesson, seed=0, device="cpu", effort=Effort(steps=80))
    assert (student.predict(split.test.inputs) == split.test.labels).mean() > 0.7


def test_the_rule_states_directions_and_teachers() -> None:
    few, many = (made(release="arrays", epsilon=1.0, expected_records=n) for n in (300, 30_000))
    assert (few.code, many.code) == ("axes-4", "axes-20")  # of 200 public rows a tenth
    assert teachers_wanted(few) < teachers_wanted(many)
    party = made(release="arrays", epsilon=1.0, unit="party")
    assert teachers_wanted(party) == 1
    spec = made(release="counts")
    assert spec.from_dict(spec.to_dict()) == spec
    with pytest.raises(UsageError, match="do not vote by the code each-200"):
        replace(made(release="counts"), aggregator="confident-gnmax")
    for bad in ("axes", "axes-1", "each-5", "nearest", "dense-8", "labels-2"):
        with pytest.raises(UsageError):
            made(release=bad)
    with pytest.raises(UsageError, match="leave max_queries out"):
        made(release="axes-8", max_queries=10)
    with pytest.raises(UsageError, match="public inputs"):
        made(release="axes-201")


def test_one_record_changes_one_array(tmp_path: Path) -> None:
    """By the same key: with a record more, the sum moves by no more than one teacher's array."""
    key, own = b"k" * 32, records(60, 5)
    rows = [at * QUERIES // 8 for at in range(8)]
    spec = {text: made(release=text).code for text in ("axes-8", "balanced", "counts")}
    for release, text in spec.items():
        code = code_of(text)
        asked = rows if release == "axes-8" else list(range(QUERIES))
        before = Averaged(own.take(range(59)), 10, key).vote(PUBLIC, asked, CLASSES, code)
        after = Averaged(own, 10, key).vote(PUBLIC, asked, CLASSES, code)
        moved = int(np.square(after - before).sum())
        assert (moved > 0) >= code.in_directions  # a vote for a class may stay
        assert moved <= code.change(1).squared
        # In another order nothing moves.
        other = Averaged(own.take(range(59, -1, -1)), 10, key)
        assert np.array_equal(other.vote(PUBLIC, asked, CLASSES, code), after)
