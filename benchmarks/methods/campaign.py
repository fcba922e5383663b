"""One campaign of this project: parties and a server in one process, by the real protocol.

Real voters with their own keys, ledgers and homes; signed messages; masked sums; the server's ledger, which
is verified at the end; noise from the operating system. Only the network is replaced: messages are copied
between threads.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.ledger import verify
from aggregator_server.ledger.encoding import Probabilities
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.state import CampaignState
from aggregator_server.results.report import LEDGER_FILE, label_set
from aggregator_server.results.statement import privacy_statement, server_epsilon
from benchmarks.record import Cost
from benchmarks.rows import Options
from party.identity.keys import shard_key
from party.voting.neighbour import NeighbourVotes
from party.voting.voter import Voter
from party.voting.voters import Ensemble
from pate.accounting.account import Account, Figures, LaplaceSetting, account
from pate.accounting.bounds.laws import DiscreteGaussian
from pate.accounting.bounds.sharp import GaussianSetting
from pate.accounting.units import Neighbours
from pate.campaign.choices import Guess
from pate.campaign.settings import spec_of
from pate.data.values import Dataset, Inputs
from pate.formats.labels import LabelRow, LabelSet
from pate.formats.privacy_statement import PrivacyStatement
from pate.mechanisms import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Mechanism,
    round_predictions,
)  # fmt: skip
from pate.runtime.home import private_directory
from pate.runtime.screen import Screen
from pate.storage.hash_chain import Entry
from pate.votes import Counts
from simulation.parties import open_ensemble, open_voter
from simulation.simulate import carrier_to, run_campaign
from student.lesson import Lesson, Student
from student.session import lesson as lesson_of
from student.session import teachers_of as teachers_in

#: Trains a student for a round, given a number that varies the seed.
Trainer: TypeAlias = Callable[[Lesson, int], Student]
#: The voters of a party: its teachers, or its records.
Source: TypeAlias = Ensemble | NeighbourVotes
#: One changed record changes one vote of every query: the papers' neighbours, and ours.
NEIGHBOURS: Final = Neighbours(1, "change")


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
        charged: epsilon of the charges of this run, at the campaign's delta; no guarantee.
        seconds: wall clock by stage.
        cost: of a party.
    """

    state: CampaignState
    statement: PrivacyStatement
    labels: LabelSet
    counts: Counts
    asked: Mapping[int, tuple[int, ...]]
    predictions: Mapping[int, Probabilities]
    server_epsilon: float | None
    charged: float
    seconds: Mapping[str, float]
    cost: Cost


class _Counted:
    """A voter whose messages are counted."""

    def __init__(self, voter: Voter) -> None:
        self._voter = voter
        self._lock = threading.Lock()
        self.cost = Cost(0, 0, 0, 0.0)

    def handle(self, body: bytes) -> bytes:
        began = time.thread_time()
        reply = self._voter.handle(body)
        spent = time.thread_time() - began
        with self._lock:
            one = self.cost
            self.cost = Cost(
                one.exchanges + 1, one.up + len(reply), one.down + len(body), one.seconds + spent
            )
        return reply


def run(
    sources: Sequence[Source],
    public: Inputs,
    options: Options,
    *,
    place: Path,
    screen: Screen,
    train: Trainer | None = None,
    signing_key: Ed25519PrivateKey | None = None,
    chosen: Any = None,
) -> Outcome:
    """Run a campaign to its end.

    Args:
        sources: of each party.
        public: the public set.
        options: of the campaign.
        place: folder for the parties' homes; votes of an earlier campaign in them are reused.
        screen: for lines and progress.
        train: the student of an interactive campaign, called between its rounds.
        signing_key: the server's, which a series needs; None: a new one.
        chosen: chooses representatives; None: as ``pate-server`` does.
    """
    began = time.monotonic()
    asked = replace(
        options, campaign="row", parties=str(len(sources)), aggregation="masked",
        # A number has the ends of its range instead.
        classes=",".join(sources[0].classes) if options.range is None else None,
    )  # fmt: skip
    spec = spec_of(asked, public, say=screen.say, **({} if chosen is None else {"chosen": chosen}))
    if spec.series is not None and signing_key is not None:
        spec = replace(spec, series_key=signing_key.public_key().public_bytes_raw().hex())
    seconds = {"representatives": time.monotonic() - began} if spec.records_vote else {}
    voters = [_Counted(open_voter(home(place, at), each)) for at, each in enumerate(sources)]
    folder = place / "campaign"
    # Of the campaign before; the parties' homes stay.
    shutil.rmtree(folder, ignore_errors=True)
    began, worked = time.monotonic(), time.process_time()
    with (
        Ledger.create(folder / LEDGER_FILE, spec) as ledger,
        carrier_to(cast("list[Voter]", voters)) as carrier,  # it only calls ``handle``
    ):
        predict = None if train is None else partial(_predict, ledger, public, train)
        run_campaign(
            ledger,
            public,
            carrier,
            screen=screen,
            await_predictions=predict,
            signing_key=signing_key,
            guess=Guess(records=options.expected_records),
        )
        state, counts, entries = ledger.state(), ledger.counts(), ledger.entries()
        told = {at: ledger.predictions(at) for at in range(2, state.round + 1)}
    seconds |= {**stage_seconds(entries), "campaign": time.monotonic() - began}
    cost = Cost.of_parties([voter.cost for voter in voters], time.process_time() - worked)
    verify.verify(folder / LEDGER_FILE, state.head)
    return Outcome(
        state=state, statement=privacy_statement(state), labels=label_set(folder), counts=counts,
        asked={at: tuple(sorted(rows)) for at, rows in state.answered.items()},
        predictions={at: found for at, found in told.items() if found is not None},
        server_epsilon=server_epsilon(state), charged=state.epsilon_of(state.spent), seconds=seconds,
        cost=cost,
    )  # fmt: skip


def home(place: Path, number: int) -> Path:
    """Return the home of a party."""
    return place / f"party_{number}"


def teachers_of(
    parties: Sequence[Dataset], options: Options, place: Path, screen: Screen
) -> list[Source]:
    """Return the parties' teachers, trained, or loaded from their homes."""
    made: list[Source] = []
    numbers = options.teachers_of(len(parties))
    for at, (records, number) in enumerate(zip(parties, numbers, strict=True)):
        with screen.bar(f"party {at}: {len(records)} records, {number} teachers") as progress:
            made.append(
                open_ensemble(
                    home(place, at), records, number,
                    model=options.model, device="auto", progress=progress,
                )
            )  # fmt: skip
    return made


def records_of(parties: Sequence[Dataset], place: Path, screen: Screen) -> list[Source]:
    """Return the parties' records as voters."""
    homes = [private_directory(home(place, at)) for at in range(len(parties))]
    return [
        NeighbourVotes(records, shard_key(each), say=screen.say)
        for records, each in zip(parties, homes, strict=True)
    ]


def _predict(ledger: Ledger, public: Inputs, train: Trainer, round_: int) -> None:
    """Train a student on the labels so far and submit its predictions."""
    state = ledger.state()
    # A label set is for finished campaigns; a student between rounds has the labels so far.
    rows = [
        LabelRow(query, one.label, one.round, one.source) for query, one in state.labels.items()
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
    return lesson_of(public, labels.rows, labels.classes, labels.noisy, teachers_in(labels))


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


# The labels' cost by every bound. Data-dependent bounds are functions of the exact votes. Here records are
# public, and the papers' figures are of the same kind. For private records none of them may be published.


def setting_of(mechanism: Mechanism) -> LaplaceSetting | GaussianSetting | None:
    """Return the accountant's form of a mechanism, None if it works on noisy sums."""
    if isinstance(mechanism, LNMax):
        return LaplaceSetting(gamma=float(1 / mechanism.scale), discrete=True)
    if isinstance(mechanism, GNMax):
        return GaussianSetting(label=DiscreteGaussian(float(mechanism.sigma)))
    if isinstance(mechanism, ConfidentGNMax | InteractiveGNMax):
        return GaussianSetting(
            label=DiscreteGaussian(float(mechanism.sigma2)),
            check=DiscreteGaussian(float(mechanism.sigma1)),
            threshold=float(mechanism.threshold),
        )
    return None


def bounds_of(outcome: Outcome) -> dict[str, tuple[float, float]]:
    """Return epsilon by bound: with the improved conversion or exact, and with the papers' conversion.

    Empty if there is no data-dependent bound for the mechanism, or if exact votes never existed: then the
    campaign's cap is its only figure.
    """
    state = outcome.state
    found: list[Account] = []
    for round_, asked in sorted(outcome.asked.items()):
        mechanism = state.mechanism(round_)
        setting = setting_of(mechanism)
        if setting is None:
            return {}
        if not asked:
            continue
        votes = outcome.counts[list(asked)]
        margins = None
        if mechanism.interactive:
            probabilities = outcome.predictions[round_][list(asked)]
            margins = (votes - round_predictions(probabilities, state.teachers)).max(axis=1)
        found.append(cost_of_votes(votes, setting, state.spec.delta, margins))
    return add_up(found)


def cost_of_votes(
    votes: Counts,
    setting: LaplaceSetting | GaussianSetting,
    delta: float,
    margins: Counts | None = None,
) -> Account:
    """Return the cost of answering every row of ``votes`` once; margins are those of an interactive round."""
    return account(votes, setting, delta=delta, neighbours=NEIGHBOURS, margins=margins)


def add_up(accounts: Sequence[Account]) -> dict[str, tuple[float, float]]:
    """Return the bounds over several rounds: divergences at one order add up."""
    made = {}
    for name in accounts[0].figures if accounts else ():
        figures = [each.figures[name] for each in accounts]
        rdp = np.sum([each.rdp for each in figures], axis=0)
        whole = Figures(rdp, figures[0].orders, figures[0].delta)
        exact = figures[0].exact if len(figures) == 1 else None
        made[name] = (whole.improved if exact is None else exact, whole.classical)
    return cast("dict[str, tuple[float, float]]", made)
