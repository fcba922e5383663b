"""Teachers vote for several labels: a whole campaign, from records to a student, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import verify
from aggregator_server.options import CampaignOptions
from aggregator_server.results.report import LEDGER_FILE, label_set
from aggregator_server.results.statement import privacy_statement
from party.ledger.ledger import PartyLedger
from party.ledger.verify import agrees, verify_statement
from party.teachers.ensemble import Ensemble
from pate.accounting.composition import Gdp
from pate.accounting.events import NoisyArray
from pate.campaign.settings import spec_of
from pate.campaign.spec import CampaignSpec
from pate.data.values import Dataset, Table
from pate.formats.labels import LabelSet
from pate.formats.mechanism_words import mechanism_in_words
from pate.formats.privacy_statement import PrivacyStatement, adjacency_of
from pate.runtime.screen import Screen
from simulation.parties import open_ensemble, open_voter, party_home
from simulation.simulate import carrier_to, run_campaign
from student.evaluation.evaluate import LabelledData
from student.lesson import Effort, Lesson, Student
from student.session import graduate
from student.training import train

LABELS = ("asthma", "cough", "fever", "gout")
PARTIES, TEACHERS, QUERIES = 3, 40, 250
TERMS: dict[str, Any] = {
    "campaign": "several", "aggregator": "gnmax", "parties": str(PARTIES), "answer": "labels-2",
    "classes": ",".join(LABELS), "epsilon": 4.0, "delta": 1e-5, "max_queries": 200,
}  # fmt: skip


def records(number: int, seed: int) -> Dataset:
    """Each label is a direction of its own among six columns, half of the records have it."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(number, 6))
    directions = np.random.default_rng(0).normal(size=(6, len(LABELS)))
    answers = values @ directions + 0.5 * rng.normal(size=(number, len(LABELS))) > 0.8
    columns = tuple(np.ascontiguousarray(each) for each in values.T)
    table = Table(tuple(f"x{at}" for at in range(6)), columns)
    return Dataset(table, np.zeros(number, dtype=np.int64), LABELS, None, answers)


PUBLIC = records(QUERIES, 1).inputs


def made(**changes: Any) -> CampaignSpec:
    return spec_of(CampaignOptions(**(TERMS | changes)), PUBLIC)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[Ensemble]:
    """The teachers of each party, for all campaigns."""
    place = tmp_path_factory.mktemp("trained")
    return [
        open_ensemble(
            party_home(place, number), records(1600, 10 + number), TEACHERS, model="linear"
        )
        for number in range(PARTIES)
    ]


def ran(place: Path, trained: list[Ensemble], **changes: Any) -> tuple[LabelSet, Path]:
    """Run a campaign; return its labels and the folder of its ledger."""
    voters = [open_voter(party_home(place, at), own) for at, own in enumerate(trained)]
    spec = made(**changes)
    folder = place / "campaign"
    with Ledger.create(folder / LEDGER_FILE, spec) as ledger, carrier_to(voters) as carrier:
        run_campaign(ledger, PUBLIC, carrier, screen=Screen("test"))
    return label_set(folder), folder


@pytest.mark.parametrize(
    "changes",
    [
        {"aggregation": "plain"},
        {"aggregation": "masked"},
        {"aggregation": "masked", "noise": "central"},
    ],
)
def test_teachers_label_and_a_student_learns(
    tmp_path: Path, trained: list[Ensemble], changes: dict[str, Any]
) -> None:
    labels, folder = ran(tmp_path, trained, **changes)
    verify(folder / LEDGER_FILE)
    noisy = labels.noisy
    assert noisy is not None
    assert noisy.code == "each-200 labels-2-of-4"
    assert noisy.counts.shape == (200, 4)
    with Ledger.open(folder / LEDGER_FILE) as ledger:
        state = ledger.state()
    statement = privacy_statement(state)
    (mechanism,) = state.mechanisms
    (event,) = mechanism.worst
    assert isinstance(event, NoisyArray)
    assert event.change == (200 * 4, 200 * 4)
    # One charge for all queries and labels.
    assert state.spent == state.cap == Gdp().cost(event)
    assert 3.9 < statement.epsilon <= 4
    assert (statement.unit, statement.teachers) == ("record", PARTIES * TEACHERS)
    assert statement.adjacency == adjacency_of("record", records_vote=False)
    assert statement.queries_asked == 200
    words = mechanism_in_words(statement.mechanism)
    assert words.startswith("teachers' votes: all counts leave once (noise of sigma")
    assert words.endswith(
        "; teachers that one unit changes: 1, 200 queries in one release, for up to 2 of 4 labels"
    )
    assert "noisy counts" in statement.statements[0].meaning
    assert (statement.statements[1].epsilon is not None) == (state.spec.sums.distributed)
    # A query may have several labels, so it gets no single one.
    assert not labels.rows
    assert labels.content_in_words == "noisy counts of 200 queries"
    # Each party's ledger agrees with the statement.
    own = PartyLedger(party_home(tmp_path, 0) / "ledger.db")
    checks = verify_statement(
        PrivacyStatement.from_json(labels.privacy), own.find(labels.campaign.hex())
    )
    assert agrees(checks), checks

    if changes.get("noise") == "central" or changes["aggregation"] == "plain":
        return  # one student is enough

    def trainer(lesson: Lesson, _: int) -> Student:
        return train(lesson, model="auto", seed=0, effort=Effort(steps=10))

    out = tmp_path / "student"
    test = LabelledData(records(1000, 99), "test", None)
    published = graduate(labels, PUBLIC, trainer, out, facts={}, name="several", test=test)
    result = published.evaluation
    assert result is not None
    found = result.to_json()["macro_auc"]
    assert isinstance(found, dict)
    assert found["value"] > 0.8
    card = (out / "README.md").read_text()
    assert (
        "It predicts each of 4 labels, of which an input may have any number: asthma, cough, fever, gout."
        in card
    )
    assert "for several labels: several data" in card
