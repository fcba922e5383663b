"""Audit of one campaign with canaries: planted wrong labels that real teachers may have learnt.

A canary is a patient at one party whose records all show a public query and a wrong label. Its
teacher learns them by heart and votes for the wrong label, and the attacker asks of each released
label whether that one vote can be seen in it. With a correct mechanism it hardly ever can, and among
the votes of many teachers not even without noise.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from aggregator_server.campaign.labelling import CappedRelease
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.results.report import LEDGER_FILE
from aggregator_server.results.statement import privacy_statement
from pate.auditing.harness import Audit, Progress
from pate.auditing.intervals import canary_lower_bound, guess_from_labels
from pate.campaign.choices import Parameters
from pate.campaign.roster import RosterParty, SumTerms
from pate.campaign.spec import CampaignSpec, new_campaign_id
from pate.data.values import Dataset, Images, content_hash
from pate.errors import UsageError
from pate.formats.privacy_statement import NEIGHBOURS
from pate.mechanisms import InteractiveGNMax
from pate.noise.exact import SystemNoise
from pate.votes import Histogram
from simulation.audit.campaigns import scratch_folder
from simulation.datasets import deal, digits
from simulation.parties import open_ensemble, party_home

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction
    from pathlib import Path

    from numpy.typing import NDArray

    from aggregator_server.ledger.state import CampaignState
    from pate.campaign.choices import Aggregator
    from pate.votes import Counts

#: Records of one canary: enough for its teacher to learn them.
_RECORDS = 8


@dataclass(frozen=True)
class Planting:
    """One campaign with canaries. Omitted parameters of the mechanism follow from the teachers."""

    aggregator: str  # ``lnmax``, ``gnmax`` or ``confident-gnmax``
    canaries: int  # m, and as many public queries, all covered by the budget
    guesses: int
    parties: int
    teachers: int
    delta: float  # at which epsilon is claimed and bounded
    confidence: float
    # of the mechanism, by the names of the campaign's specification
    parameters: tuple[tuple[str, Fraction], ...] = ()
    # number of parties that an included canary is planted at. The claim is for a patient of one
    # party, so more than 1 is a violation, which an audit should detect
    copies: int = 1

    def __post_init__(self) -> None:
        if self.aggregator == InteractiveGNMax.name:
            raise UsageError(
                f"an audit with canaries has no student between two rounds: audit "
                f"{self.aggregator} as a mechanism or a campaign"
            )
        if not 1 <= self.guesses <= self.canaries or not 1 <= self.copies <= self.parties:
            raise UsageError(
                f"{self.guesses} guesses on {self.canaries} canaries, each at {self.copies} of "
                f"{self.parties} parties, cannot be made"
            )


def audit_canaries(planting: Planting, progress: Progress = lambda *_: None) -> Audit:
    """Run one campaign on scikit-learn's digits, and guess from its labels which canaries were in."""
    dealt = deal(digits(), planting.parties, public=planting.canaries, test=0)
    classes = len(dealt.public.classes)
    # Any wrong label, independent of the coin.
    shifts = [1 + secrets.randbelow(classes - 1) for _ in range(planting.canaries)]
    wrong = (dealt.public.labels + np.array(shifts, np.int64)) % classes
    coins = np.array([secrets.randbits(1) for _ in range(planting.canaries)], np.bool_)
    with scratch_folder() as scratch:
        votes = np.zeros((planting.canaries, classes), np.int64)
        for number, records in enumerate(dealt.parties):
            planted = _planted(records, dealt.public, wrong, _held(coins, number, planting))
            votes += _vote(planted, dealt.public, planting.teachers, party_home(scratch, number))
            progress(number + 1, planting.parties)
        state = _label(planting, dealt.public, votes, scratch)
    right = _right(state, wrong, coins, planting.guesses)
    said = privacy_statement(state)
    return Audit(
        subject=f"{planting.aggregator}: {right} of {planting.guesses} right",
        kind="canary",
        claimed=said.epsilon,
        lower_bound=canary_lower_bound(
            right, planting.guesses, planting.canaries, planting.delta, planting.confidence
        ),
        delta=planting.delta,
        confidence=planting.confidence,
        runs=1,
        queries=planting.canaries,
        unit=said.unit,
        adjacency=NEIGHBOURS[said.unit],
        observer=said.observer,
    )


def _held(coins: NDArray[np.bool_], party: int, planting: Planting) -> NDArray[np.intp]:
    """Return the canaries that are in and go to a party: dealt in turn, by number alone."""
    turn = (party - np.arange(len(coins))) % planting.parties
    return np.flatnonzero(coins & (turn < planting.copies))


def _planted(
    records: Dataset, public: Dataset, wrong: NDArray[np.int64], held: NDArray[np.intp]
) -> Dataset:
    """Return a party's records, each a patient of its own, and canaries, each a patient too."""
    if not isinstance(records.inputs, Images) or not isinstance(public.inputs, Images):
        raise UsageError("canaries are images")
    canaries = np.repeat(held, _RECORDS)
    patients = [f"patient {at}" for at in range(len(records))]
    patients += [f"canary {at}" for at in canaries]
    return Dataset(
        Images(np.concatenate([records.inputs.pixels, public.inputs.pixels[canaries]])),
        np.concatenate([records.labels, wrong[canaries]]),
        records.classes,
        np.array(patients, np.str_),
    )


def _vote(records: Dataset, public: Dataset, teachers: int, home: Path) -> Counts:
    ensemble = open_ensemble(home, records, teachers)
    return ensemble.vote(public.inputs, range(len(public)), public.classes)


def _label(planting: Planting, public: Dataset, votes: Counts, place: Path) -> CampaignState:
    parties: Sequence[RosterParty] = [
        RosterParty(f"party_{at:04d}", f"{at:064x}", planting.teachers, "patient")
        for at in range(planting.parties)
    ]
    spec = CampaignSpec(
        name="audit",
        id=new_campaign_id(),
        aggregator=cast("Aggregator", planting.aggregator),
        parties=len(parties),
        sums=SumTerms(min_parties=len(parties)),
        public_set=content_hash(public.inputs).hex(),
        queries=len(public),
        schema=public.inputs.schema(),
        epsilon=1e6,  # the cap is then the worst cost of all queries
        delta=planting.delta,
        classes=public.classes,
        unit="patient",
        parameters=Parameters(**dict(planting.parameters)),
    )
    with Ledger.create(place / "campaign" / LEDGER_FILE, spec) as ledger:
        ledger.record_roster(parties, public.classes)
        summed = Histogram(votes, planting.parties * planting.teachers)
        ledger.record_votes(0, summed, [party.name for party in parties])
        CappedRelease().label(ledger, SystemNoise())
        return ledger.state()


def _right(
    state: CampaignState, wrong: NDArray[np.int64], coins: NDArray[np.bool_], guesses: int
) -> int:
    """Guess from the public output of the campaign; return the number of right guesses."""
    labels = np.full(len(coins), -1, np.int64)
    for query, label in state.labels.items():
        labels[query] = label.label
    said = guess_from_labels(labels, wrong, guesses)
    return int(((said == 1) & coins).sum() + ((said == -1) & ~coins).sum())
