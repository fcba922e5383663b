"""Audit of whole campaigns: many small ones on neighbouring votes, or one gated batch many times.

Of capped campaigns the target is everything that determines labels after the votes are in: the choice of
queries, charges, noise, releases, and the end of the budget; each has a real ledger. Of a gated campaign
it is what is between its charge and its release; the ledger ensures that there is only one attempt.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from aggregator_server.campaign.labelling import CappedRelease, batch_of, bound_of, labels_behind
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.results.report import LEDGER_FILE
from aggregator_server.results.statement import privacy_statement
from pate.accounting.bounds.theorem6_plus import Table
from pate.accounting.composition import tightest, total_cost
from pate.accounting.conversion import float_up
from pate.accounting.gate import GateParameters
from pate.accounting.units import Neighbours
from pate.auditing.harness import Audit, Claim, Progress, Subject, audit
from pate.auditing.mechanism import differing, gaussian_mu, kinds
from pate.auditing.neighbours import Pair, distinguishing_pairs, in_turn
from pate.campaign.choices import Parameters
from pate.campaign.order import public_ranking
from pate.campaign.roster import RosterParty, SumTerms
from pate.campaign.spec import CampaignSpec, new_campaign_id
from pate.errors import UsageError
from pate.formats.privacy_statement import NEIGHBOURS
from pate.mechanisms import InteractiveGNMax
from pate.noise.exact import SystemNoise
from pate.votes import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from aggregator_server.ledger.state import CampaignState
    from pate.accounting.nearby import Bound
    from pate.auditing.harness import Runs
    from pate.campaign.choices import Aggregator
    from pate.mechanisms import GNMax, Mechanism
    from pate.mechanisms.contract import Votes
    from pate.noise.exact import Noise

#: Where files live in memory, on Linux.
_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made in it, and removed
#: Ratio of the public set to the queries of the budget: the filter ends a campaign.
_SPARE = 4


@dataclass(frozen=True, eq=False)
class _World:
    """A stored campaign with votes, not yet labelled."""

    ledger: Path
    state: CampaignState


class Campaigns:
    """Runs of whole campaigns on neighbouring votes: a ledger for each world is copied and resumed."""

    def __init__(
        self,
        place: Path,
        mechanism: Mechanism,  # of the campaign; for an interactive one that of the second round
        *,
        queries: int,  # covered by the budget: this many answers at full cost
        delta: float,  # at which the campaign promises its epsilon
        spare: int = _SPARE,  # the public set has so many times the queries of the budget
        opener: Callable[[Path], Ledger] = Ledger.open,
    ) -> None:
        self._place = place
        self._mechanism = mechanism
        self._queries = queries
        self._delta = delta
        self._size = spare * queries
        self._opener = opener
        self._worlds: dict[tuple[int, int], _World] = {}
        # Public, and of both worlds: it says in which order queries are asked, which take the rows of a
        # pair by turns.
        self._id = new_campaign_id()
        self._order = public_ranking(self._id, self._size)

    def state(self, pair: Pair, world: int) -> CampaignState:
        """Return the state of a campaign of that world before its first answer."""
        return self._world(pair, world).state

    def sample(self, pair: Pair, world: int, runs: int) -> Runs:
        """Return (runs, kinds + 1) counts of the answers of whole campaigns, kinds by round."""
        return np.stack([self._run(pair, world) for _ in range(runs)])

    def _run(self, pair: Pair, world: int) -> NDArray[np.int64]:
        start = self._world(pair, world)
        spec = start.state.spec
        with tempfile.TemporaryDirectory(dir=self._place) as folder:
            copy = Path(folder) / LEDGER_FILE
            shutil.copyfile(start.ledger, copy)
            with self._opener(copy) as ledger:
                for round_ in range(1, spec.rounds + 1):
                    if round_ > 1:
                        ledger.end_round(wants_predictions=True)
                        ledger.record_predictions(round_, _predictions(pair, self._order))
                    CappedRelease().label(ledger, SystemNoise())
                return _counts(ledger.state(), len(pair.votes), self._order)

    def _world(self, pair: Pair, world: int) -> _World:
        key = (id(pair), world)
        if key not in self._worlds:
            votes = pair.rows(world, self._size)[np.argsort(self._order)]
            ledger = self._place / f"world {len(self._worlds)}" / LEDGER_FILE
            parties = roster(int(votes[0].sum()), self._mechanism.votes_per_unit)
            spec = campaign_spec(
                self._mechanism,
                pair,
                parties,
                queries=self._queries,
                size=self._size,
                delta=self._delta,
                campaign=self._id,
            )
            with Ledger.create(ledger, spec) as made:
                made.record_roster(parties, [f"class {at}" for at in range(votes.shape[1])])
                names = [party.name for party in parties]
                made.record_votes(0, Histogram(votes, int(votes[0].sum())), names)
                self._worlds[key] = _World(ledger, made.state())
        return self._worlds[key]


def audit_campaign(
    mechanism: Mechanism,  # of the campaigns; for an interactive one that of the second round
    *,
    queries: int,  # covered by the budget: this many answers at full cost
    runs: int,  # campaigns that count, in each of two worlds
    delta: float,  # at which epsilon is claimed and bounded
    confidence: float,
    pairs: Sequence[Pair] | None = None,  # neighbours to choose from; default: all of them
    votes: int | None = None,  # k, reached by one unit; default: the mechanism's own
    spare: int = _SPARE,  # the public set has so many times the queries of the budget
    opener: Callable[[Path], Ledger] = Ledger.open,
    progress: Progress = lambda *_: None,  # called with campaigns run and campaigns in all
) -> Audit:
    """Attack whole campaigns of a mechanism; the claim is their privacy statement."""
    reach = mechanism.votes_per_unit if votes is None else votes
    pairs = distinguishing_pairs(mechanism, reach, queries) if pairs is None else pairs
    with scratch_folder() as scratch:
        campaigns = Campaigns(
            scratch, mechanism, queries=queries, delta=delta, spare=spare, opener=opener
        )
        state = campaigns.state(pairs[0], 0)
        subject = Subject(
            name=mechanism.name,
            kind="campaign",
            claim=_claim(state),
            pairs=pairs,
            sample=campaigns.sample,
            queries=queries,
            figures=1,
            step=5,
            unit=state.spec.unit,
            adjacency=NEIGHBOURS[state.spec.unit],
        )
        return audit(subject, runs=runs, confidence=confidence, progress=progress)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a private folder for ledgers that are not kept: in memory where that can be had."""
    memory = _MEMORY if os.access(_MEMORY, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="pate-audit-", dir=memory) as folder:
        yield Path(folder)


def _claim(state: CampaignState) -> Claim:
    said = privacy_statement(state)
    return Claim(
        said.epsilon, said.delta, gaussian_mu(state.currency.name, float_up(2 * state.cap))
    )


def roster(teachers: int, votes: int) -> list[RosterParty]:
    """Return parties with ``teachers`` in all, none with more than a unit's ``votes``; two if that is 1."""
    size = votes if votes > 1 else -(-teachers // 2)
    sizes = [min(size, teachers - start) for start in range(0, teachers, size)]
    return [
        RosterParty(f"party_{at:04d}", f"{at:064x}", each, "record")
        for at, each in enumerate(sizes)
    ]


def campaign_spec(
    mechanism: Mechanism,
    pair: Pair,
    parties: Sequence[RosterParty],
    *,
    queries: int,
    size: int,
    delta: float,
    campaign: str,
) -> CampaignSpec:
    """Return a campaign with that mechanism, and a budget for ``queries`` of its ``size`` queries.

    The first round of an interactive one is Confident-GNMax, with a check that is near the votes.
    """
    composition = tightest(mechanism.worst)
    cost = total_cost(composition, mechanism.worst)
    fields = {
        name: Fraction(getattr(mechanism, name))
        for name in ("scale", "sigma1", "sigma2", "threshold", "confidence")
        if hasattr(mechanism, name)
    }
    if hasattr(mechanism, "sigma"):
        fields["sigma2"] = mechanism.sigma
    interactive = isinstance(mechanism, InteractiveGNMax)
    if interactive:
        fields["interactive_threshold"] = fields["threshold"]
        fields["threshold"] = Fraction(int(pair.votes.max()))
    return CampaignSpec(
        name="audit",
        id=campaign,
        aggregator=cast("Aggregator", mechanism.name),
        parties=len(parties),
        sums=SumTerms(min_parties=len(parties)),
        public_set="00" * 32,
        queries=size,
        schema="audit",
        # The way from a cost to epsilon and back rounds down: so much more, and not another answer.
        epsilon=composition.epsilon(queries * cost, delta) * (1 + 1e-6),
        delta=delta,
        unit="record" if mechanism.votes_per_unit == 1 else "party",
        rounds=2 if interactive else 1,
        parameters=Parameters(**fields),
    )


def _predictions(pair: Pair, order: NDArray[np.int64]) -> NDArray[np.float32]:
    if pair.prediction is None:
        raise UsageError("an interactive campaign needs neighbours with a prediction")
    expected = in_turn(pair.prediction, len(order))[np.argsort(order)]
    shares: NDArray[np.float32] = np.divide(
        expected, expected.sum(axis=1, keepdims=True), dtype=np.float64
    ).astype(np.float32)
    return shares


def _counts(state: CampaignState, sorts: int, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how often each kind of answer was given, by round and row; last :func:`differing`, of all."""
    classes = len(state.classes)
    given = np.full((state.spec.rounds, state.spec.queries), kinds(classes), np.int64)  # not asked
    for round_, queries in state.answered.items():
        given[round_ - 1, list(queries)] = classes
    for query, label in state.labels.items():
        given[label.round - 1, query] = label.label if label.source == "teachers" else classes + 1
    counts = [
        np.bincount(row[sort::sorts], minlength=kinds(classes) + 1)[:-1]
        for row in given[:, order]
        for sort in range(sorts)
    ]
    return np.append(np.concatenate(counts), differing(given[:, order]).sum())


#: The gate's order, and the share of the divergence that its test may cost.
_ORDER, _SHARE = 6.0, 0.3
_STEP: Final = 50


@dataclass(frozen=True)
class Gated:
    """A gate, the mechanism behind it, and a batch that has one probe and many like queries."""

    mechanism: GNMax
    queries: int
    epsilon: float  # of the gate at ``delta``
    delta: float

    def __post_init__(self) -> None:
        if self.queries < 2:
            raise UsageError("a gated batch under audit has two queries or more")

    @cached_property
    def gate(self) -> GateParameters:
        """The gate, as a campaign of that epsilon would have it."""
        return GateParameters.worth(self.epsilon, self.delta, order=_ORDER, share=_SHARE)

    def rows(self, pair: Pair, world: int) -> Votes:
        """Return (queries, classes) votes: the first row of the pair once, then the second."""
        given = pair.neighbour if world else pair.votes
        return np.repeat(given, [1, self.queries - 1], axis=0)

    def distance(self, rows: Votes, mechanism: GNMax | None = None) -> int:
        """Return the distance of the votes from a closed gate, in units."""
        judge = self.mechanism if mechanism is None else mechanism
        batch = batch_of(rows, judge, self.gate.order, _bound(judge))
        return batch.distance_to(self.gate.target, self.gate.order, self.gate.levels - 1)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Neighbours on both sides of the gate, of its coin, and of a tie behind it."""
        reach = self.mechanism.votes_per_unit
        floor = round(12 * self.mechanism.sigma)
        leads = range(0, floor + 2 * reach, 2 * reach)
        at = [self.distance(self.rows(_pair(lead, lead, reach, floor, ""), 0)) for lead in leads]
        coin = [self.gate.opens(distance) for distance in range(self.gate.levels)]
        even = next(level for level, chance in enumerate(coin) if chance >= 0.5)
        clear = leads[-1]
        made = [
            _pair(reach, reach, reach, floor, "closed gate, all winners change"),
            _pair(reach, clear, reach, floor, "open gate, one winner changes"),
        ]
        for level, name in (
            (even, "the gate rather opens or not"),
            (0, "the gate may open or never"),
        ):
            lead = next((lead for lead, d in zip(leads, at, strict=True) if d >= level), None)
            if lead is not None:
                made.append(_pair(lead, lead, reach, floor, name))
        return tuple(made)

    def run(self, noise: Noise, pair: Pair, world: int, runs: int) -> Runs:
        """Return (runs, 5) counts: closed; labels of the probe; labels of the others."""
        rows = self.rows(pair, world)
        batch = batch_of(rows, self.mechanism, self.gate.order, _bound(self.mechanism))
        counts = np.zeros((runs, 5), np.int64)
        for row in counts:
            labels = labels_behind(self.gate, batch, rows, self.mechanism, noise)
            if labels is None:
                row[0] = 1
                continue
            row[1:3] = np.bincount([int(labels[0] or 0)], minlength=2)
            row[3:5] = np.bincount([int(each or 0) for each in labels[1:]], minlength=2)
        return counts


@lru_cache(maxsize=8)
def _bound(mechanism: GNMax) -> Bound:
    return bound_of(mechanism, _ORDER, Table.build)


def _pair(probe: int, others: int, reach: int, floor: int, name: str) -> Pair:
    given = np.array([[floor + lead, floor] for lead in (probe, others)], np.int64)
    return Pair(given, given + np.array([-reach, reach]), None, name)


def audit_gated(
    gated: Gated,  # the target; its claim is that of the gate
    noise: Noise,
    *,
    runs: int,  # batches that count, in each of two worlds
    confidence: float,
    progress: Progress = lambda *_: None,  # called with runs done and runs in all
) -> Audit:
    """Attack a gate and the labels behind it."""
    unit = Neighbours(gated.mechanism.votes_per_unit)
    subject = Subject(
        name=f"gated {gated.mechanism.name}",
        kind="gated",
        claim=Claim(gated.gate.epsilon(gated.delta), gated.delta),
        pairs=gated.pairs,
        sample=partial(gated.run, noise),
        queries=gated.queries,
        step=_STEP,
        unit=f"a unit with {unit.votes} of the votes of a query",
        adjacency=unit.in_words,
    )
    return audit(subject, runs=runs, confidence=confidence, progress=progress)
