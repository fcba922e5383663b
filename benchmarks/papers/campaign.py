"""One campaign of a row: five parties and a server in one process, by the real protocol.

Real voters with their own keys, ledgers and homes; signed messages; masked sums; the server's ledger, which
is verified at the end; noise from the operating system. Only the network is replaced: messages are copied
between threads.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from aggregator_server.ledger import verify
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.results.report import LEDGER_FILE, label_set
from aggregator_server.results.statement import privacy_statement, server_epsilon
from party.identity.keys import shard_key
from party.voting.neighbour import NeighbourVotes
from pate.campaign.settings import spec_of
from pate.formats.labels import LabelRow
from pate.runtime.home import private_directory
from simulation import campaign as simulated
from simulation.party import open_ensemble, open_voter
from student.session import lesson as lesson_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.state import CampaignState
    from benchmarks.papers.row import Options
    from party.teachers import training
    from party.voting.request import Ensemble
    from pate.campaign.spec import CampaignSpec
    from pate.data.values import Dataset, Inputs
    from pate.formats.labels import LabelSet
    from pate.formats.privacy_statement import PrivacyStatement
    from pate.runtime.screen import Screen
    from pate.storage.hash_chain import Entry
    from pate.votes import Counts
    from student.trainers.base import Lesson, Student

#: Trains a student for a round, given a number that varies the seed; 0 is the final training.
Trainer: TypeAlias = Callable[["Lesson", int], "Student"]

#: The voters of a party: its teachers, or its records.
Source: TypeAlias = "Ensemble | NeighbourVotes"


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished campaign from all perspectives together; no real participant sees all of it.

    Attributes:
        state: of the ledger at its end.
        statement: of the guarantee.
        labels: that were released.
        counts: (queries, classes) int64, the server's sums: exact, or noisy if the parties add the noise.
        asked: by round from 1, the queries asked in it, in the order of the public set.
        predictions: by round from 2, the student's (queries, classes) probabilities.
        server_epsilon: towards the server, None without a guarantee.
        charged_epsilon: of the charges of this run, at the campaign's delta; no guarantee.
        seconds: wall clock by stage.
    """

    state: CampaignState
    statement: PrivacyStatement
    labels: LabelSet
    counts: Counts
    asked: Mapping[int, tuple[int, ...]]
    predictions: Mapping[int, Probabilities]
    server_epsilon: float | None
    charged_epsilon: float
    seconds: Mapping[str, float]


def run_campaign(
    parties: Sequence[Dataset],
    public: Inputs,
    options: Options,
    *,
    place: Path,
    screen: Screen,
    train: Trainer | None = None,
) -> Outcome:
    """Train the parties' teachers and run a campaign with them to its end.

    Args:
        parties: the records of each.
        public: the public set.
        options: of the campaign.
        place: folder for the parties' homes; teachers and votes of an earlier campaign over the same records
            are reused.
        screen: for lines and progress.
        train: the student of an interactive campaign, called between its rounds.

    Raises:
        PateError: if the data, the budget or the parties do not allow it.
    """
    if options.aggregator == "neighbour":
        records: list[Source] = [
            NeighbourVotes(
                held, shard_key(private_directory(place / f"party_{number}")), say=screen.say
            )
            for number, held in enumerate(parties)
        ]
        return hold(records, public, options, place=place, screen=screen)
    began = time.monotonic()
    ensembles: list[Source] = [
        ensemble(place / f"party_{number}", records, teachers, screen, model=options.model)
        for number, (records, teachers) in enumerate(
            zip(parties, options.teachers_of(len(parties)), strict=True)
        )
    ]
    seconds = {"teachers": time.monotonic() - began}
    found = hold(ensembles, public, options, place=place, screen=screen, train=train)
    return replace(found, seconds={**seconds, **found.seconds})


def hold(
    sources: Sequence[Source],
    public: Inputs,
    options: Options,
    *,
    place: Path,
    screen: Screen,
    train: Trainer | None = None,
    signing_key: Ed25519PrivateKey | None = None,
) -> Outcome:
    """Run a campaign with a party per ensemble, or set of records; the rest as above.

    ``signing_key`` is the server's, which a series needs; None: a new one.
    """
    began = time.monotonic()
    spec = _spec(public, sources, options, screen)
    seconds = {"representatives": time.monotonic() - began} if spec.records_vote else {}
    voters = [open_voter(place / f"party_{number}", each) for number, each in enumerate(sources)]
    folder = place / "campaign"
    # Of the campaign before; the parties' homes stay.
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    with Ledger.create(folder / LEDGER_FILE, spec) as ledger, simulated.wire_to(voters) as wire:
        taught = None if train is None else partial(_predict, ledger, public, train)
        simulated.run_campaign(
            ledger, public, wire, screen=screen, await_predictions=taught, signing_key=signing_key
        )
        state, counts, entries = ledger.state(), ledger.counts(), ledger.entries()
        rounds = range(2, state.round + 1)
        held = {round_: ledger.predictions(round_) for round_ in rounds}
    seconds |= {**stage_seconds(entries), "campaign": time.monotonic() - began}
    verify.verify(folder / LEDGER_FILE, state.head)
    return Outcome(
        state=state,
        statement=privacy_statement(state),
        labels=label_set(folder),
        counts=counts,
        asked={round_: tuple(sorted(rows)) for round_, rows in state.answered.items()},
        predictions={round_: found for round_, found in held.items() if found is not None},
        server_epsilon=server_epsilon(state),
        charged_epsilon=state.epsilon_of(state.spent),
        seconds=seconds,
    )


def _spec(
    public: Inputs,
    sources: Sequence[Source],
    options: Options,
    screen: Screen,
) -> CampaignSpec:
    asked = replace(
        options,
        campaign="row",
        parties=str(len(sources)),
        # A number has the ends of its range instead.
        classes=",".join(sources[0].classes) if options.range is None else None,
        aggregation="masked",
    )
    return spec_of(asked, public, say=screen.say)


def ensemble(
    home: Path, records: Dataset, teachers: int, screen: Screen, *, model: str = "auto"
) -> training.Ensemble:
    """Return a party's teachers, trained, or loaded from its home."""
    with screen.bar(f"{home.name}: {len(records)} records, {teachers} teachers") as progress:
        return open_ensemble(home, records, teachers, model=model, device="auto", progress=progress)


def _predict(ledger: Ledger, public: Inputs, train: Trainer, round_: int) -> None:
    """Train a student on the labels so far and submit its predictions."""
    state = ledger.state()
    # A label set is for finished campaigns; a student between rounds has the labels so far.
    rows = [
        LabelRow(query, held.label, held.round, held.source) for query, held in state.labels.items()
    ]
    if rows:
        student = train(lesson_of(public, rows, state.classes), round_)
        probabilities = student.predict_probabilities(public)
    else:  # no predictions without labels
        shape = (len(public), len(state.classes))
        probabilities = np.full(shape, 1 / shape[1], dtype=np.float32)
    ledger.record_predictions(round_, probabilities)


def lesson(labels: LabelSet, public: Inputs) -> Lesson:
    """Return the labels, and any released noisy votes, as input of a trainer."""
    return lesson_of(public, labels.rows, labels.classes, labels.noisy)


def stage_seconds(entries: Sequence[Entry]) -> dict[str, float]:
    """Return the seconds between the steps of a campaign, by activity.

    ``join``: until the roster was complete; ``votes``: until the last sum was in; ``predictions``:
    the student's trainings between rounds; ``labels``: the rest of the rounds.
    """
    stages = dict.fromkeys(("join", "votes", "labels", "predictions"), 0.0)
    names = {"roster": "join", "opening": "votes", "votes": "votes", "predictions": "predictions"}
    stamps = [datetime.fromisoformat(entry.written_at) for entry in entries]
    for before, after, entry in zip(stamps, stamps[1:], entries[1:], strict=False):
        stages[names.get(entry.kind, "labels")] += (after - before).total_seconds()
    return stages
