"""The entries of votes and of answers, each with its rule; and all rules of a campaign's ledger.

A sum is unmasked with one list of parties, and each charge is released once. Other kinds:
:mod:`aggregator_server.ledger.campaign_entries`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from aggregator_server.ledger import encoding
from aggregator_server.ledger.campaign_entries import (
    CampaignStep,
    Close,
    Model,
    Open,
    Predictions,
    Roster,
    RoundEnd,
)
from aggregator_server.ledger.label_table import Answered, Source
from aggregator_server.ledger.state import (
    CampaignState,
    Charge,
    ReleasedLabel,
    SumUnmasking,
    VoteBatch,
)
from pate.accounting.composition import total_cost
from pate.accounting.events import Charged  # noqa: TC001 — its reader looks it up
from pate.accounting.filters import PrivacyFilter
from pate.errors import BudgetError, LedgerError, QuorumError, StateError
from pate.exact import in_text
from pate.formats.noisy_counts import NoisyVotes
from pate.mechanisms import MECHANISMS, MatrixMechanism, Mechanism
from pate.mechanisms.contract import MOST_TEACHERS
from pate.storage.hash_chain import Chain, canonical
from pate.storage.ledger import Rules
from pate.votes import Histogram, LooseSum, NoisySum

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pate.mechanisms import Outcome
    from pate.storage.hash_chain import Entry
    from pate.storage.ledger import Row
    from pate.votes import Counts, Total

#: Most queries of one charge, which bounds the waste of an interruption.
MOST_QUERIES: Final = 256

#: Query, label, its source, and the number of events that it used.
Answer: TypeAlias = tuple[int, int | None, Source | None, int]


@dataclass(frozen=True)
class Unmasking(SumUnmasking, CampaignStep):
    """The survivors of a masked sum, before any party is asked to unmask it.

    Parties refuse to unmask any sum of the campaign with another list than the first, or in rounds with
    a party that an earlier list lacks. A server that asked for one would never get its labels.
    """

    kind, phases = "opening", ("voting",)

    def after(self, state: CampaignState) -> CampaignState:
        """Take one list for all sums, in rounds also a shorter one; each sum is of new queries."""
        if not state.spec.sums.masked:
            raise LedgerError("votes that are not masked need no unmasking")
        _check_place(state, self, "the unmasking of", (*state.openings, *state.batches))
        _check_parties(state, self.survivors, "survivors")
        fixed = state.survivors
        fewer = state.spec.in_rounds and fixed is not None and set(self.survivors) < set(fixed)
        if fixed not in (None, self.survivors) and not fewer:
            raise LedgerError(f"the sums of this campaign are unmasked only with {fixed}")
        openings = sorted((*state.openings, self), key=lambda each: each.first)
        return replace(state, openings=tuple(openings))


@dataclass(frozen=True)
class Votes(CampaignStep):
    """The summed votes of a batch, by a hiding commitment to them."""

    kind, phases = "votes", ("voting", "labelling")
    aside = ("salt", "counts")
    first: int
    count: int
    teachers: int
    responders: tuple[str, ...]
    digest: str
    salt: bytes = field(default=b"", metadata=in_text(absent=True))
    counts: bytes = field(default=b"", metadata=in_text(absent=True))

    @classmethod
    def of(cls, state: CampaignState, first: int, total: Total, responders: Sequence[str]) -> Votes:
        """Return the step of summed votes; LedgerError if they are of another kind than the campaign's."""
        count, classes = total.counts.shape
        if classes != (wanted := len(state.classes)):
            raise LedgerError(f"votes for {classes} classes, the campaign has {wanted}")
        spec = state.spec
        kind = NoisySum if spec.sums.distributed else LooseSum if spec.one_release else Histogram
        if not isinstance(total, kind):
            raise LedgerError(
                f"a {type(total).__name__} of votes in a campaign of {kind.__name__}: with noise "
                "shares and without, of teachers and of records, differ"
            )
        counts = encoding.pack_counts(total.counts)
        salt = secrets.token_bytes(encoding.SALT_BYTES)
        digest = encoding.counts_commitment(salt, counts, first, count, classes)
        return cls(first, count, total.teachers, tuple(responders), digest, salt, counts)

    def other_rows(self) -> Iterable[Row]:
        """Return the row of the votes."""
        names = "first", "count", "teachers", "salt", "counts"
        row = {name: getattr(self, name) for name in names}
        yield "batches", {**row, "responders": canonical(list(self.responders))}

    def after(self, state: CampaignState) -> CampaignState:
        """Take votes once, from parties of the roster, and masked ones after their unmasking."""
        _check_place(state, self, "votes for", state.batches)
        if state.spec.one_release and self.count != len(state.places):
            raise LedgerError(
                "votes of one release are cast on all its queries together, in one batch"
            )
        _check_parties(state, self.responders, "responders")
        opened = {(each.first, each.count): each.survivors for each in state.openings}
        if state.spec.sums.masked and opened.get((self.first, self.count)) != self.responders:
            raise LedgerError(
                f"masked votes of {self.responders} on queries {self.first} to "
                f"{self.first + self.count - 1}, and no unmasking of exactly that sum before"
            )
        voting = {party.name: party.teachers for party in state.roster}
        if self.teachers != sum(voting[name] for name in self.responders):
            raise LedgerError(
                f"{self.teachers} teachers voted, but the responders have another number"
            )
        batch = VoteBatch(
            self.first, self.count, self.teachers, self.responders, self.digest, state.head.seq + 1
        )
        batches = tuple(sorted((*state.batches, batch), key=lambda each: each.first))
        state = replace(state, batches=batches)
        return state if state.missing_votes else replace(state, phase="labelling")


def _check_place(
    state: CampaignState,
    step: Unmasking | Votes,
    what: str,
    taken: tuple[SumUnmasking | VoteBatch, ...],
) -> None:
    """Check that the queries of a batch are voted on now, and that none is in ``taken``."""
    first, end = step.first, step.first + step.count
    if step.count < 1 or first < state.places.start or end > state.places.stop:
        raise LedgerError(f"{what} query {end - 1} of {state.places.stop}, or too early")
    if any(first < each.first + each.count and each.first < end for each in taken):
        raise LedgerError(f"{what} queries {first} to {end - 1} were recorded before")


def _check_parties(state: CampaignState, names: tuple[str, ...], what: str) -> None:
    if names != tuple(party.name for party in state.roster if party.name in set(names)):
        raise LedgerError(f"{what} are not parties in the roster's order: {names}")
    if len(names) < (least := state.spec.sums.min_parties):
        raise QuorumError(f"{len(names)} parties answered; the campaign needs {least}")


@dataclass(frozen=True)
class Charging(CampaignStep):
    """The worst cost of queries, before noise is drawn for them."""

    kind, phases = "charge", ("voting", "labelling")
    round: int
    queries: tuple[int, ...]
    mechanism: Mechanism = field(metadata=in_text(kinds=MECHANISMS.values()))
    events: tuple[Charged, ...]
    cost: Fraction
    noise: Literal["system", "parties"]  # ``parties``: it is already in the votes

    @classmethod
    def of(cls, state: CampaignState, queries: Sequence[int]) -> Charging:
        """Return the step that charges queries of the current round."""
        events, cost = state.charged(len(queries))
        noise: Literal["system", "parties"]
        noise = "parties" if state.spec.sums.distributed else "system"
        mechanism = state.mechanism(state.round)
        return cls(state.round, tuple(queries), mechanism, events, cost, noise)

    def after(self, state: CampaignState) -> CampaignState:
        """Charge free queries at their worst cost, within the budget."""
        if state.rounds_over:
            raise StateError("the last round has ended: nothing more can be charged")
        if self.round != state.round:
            raise LedgerError(f"a charge for round {self.round} in round {state.round}")
        if self.mechanism != state.mechanism(self.round):
            raise LedgerError(f"a charge for another mechanism than the one of round {self.round}")
        if state.spec.interactive and self.round > 1 and self.round not in state.predictions:
            raise StateError(f"round {self.round} has no predictions of the student yet")
        self._check_free(state)
        events, cost = state.charged(len(self.queries))
        if self.events != events:
            raise LedgerError("the events of a charge are not the worst case of its mechanism")
        if self.cost != cost:
            raise LedgerError(f"a charge of {self.cost}, the accountant says {cost}")
        if (self.noise == "parties") != state.spec.sums.distributed:
            raise LedgerError(
                f"noise of {self.noise!r} in a campaign with {state.spec.sums.noise} noise"
            )
        if state.queries_left is not None and len(self.queries) > state.queries_left:
            raise BudgetError(
                f"{len(self.queries)} queries, but only {state.queries_left} more may be asked"
            )
        # A charge without a release stays spent: see Ledger.charge.
        PrivacyFilter(state.limit, min(state.spent, state.limit)).reserve(cost)
        PrivacyFilter(state.cap, state.spent).reserve(cost)
        made = Charge(state.head.seq + 1, self.round, self.queries, events, cost)
        return replace(
            state.without_charge(),
            phase="labelling",
            spent=state.spent + cost,
            open_charge=made,
        )

    def _check_free(self, state: CampaignState) -> None:
        queries, whole = self.queries, state.spec.gate is not None or state.spec.one_release
        # A gated batch, or a matrix, is charged once, whatever its number of queries.
        most = state.spec.queries if whole else MOST_QUERIES
        if not 0 < len(queries) <= most or len(set(queries)) != len(queries):
            raise LedgerError(f"a charge is for 1 to {most} queries, and each once")
        if state.spec.one_release and queries != state.voted.at(state.places):
            raise LedgerError("votes of one release are charged for all their queries together")
        answered = state.answered.get(self.round, Answered())
        for query in queries:
            if query in state.labels:
                raise LedgerError(f"query {query} already has its label: it is never asked again")
            if query in answered:
                raise LedgerError(f"query {query} was already answered in round {self.round}")
            state.batch_of(query)


@dataclass(frozen=True)
class Release(CampaignStep):
    """The answers to a charge: its one release, at its cost.

    ``gate`` is the result of the test of a gated batch, ``noisy`` are the released counts of a
    matrix.
    """

    kind, phases = "release", ("labelling",)
    charge: int
    round: int
    answers: tuple[Answer, ...]
    cost: Fraction
    gate: Literal["open", "closed"] | None = field(default=None, metadata=in_text(omitted=True))
    noisy: tuple[tuple[int, ...], ...] | None = field(default=None, metadata=in_text(omitted=True))

    @classmethod
    def of(
        cls,
        state: CampaignState,
        charged: Charge,
        outcomes: Sequence[Outcome],
        *,
        gate: Literal["open", "closed"] | None,
        noisy: Counts | None,
    ) -> Release:
        """Return the step of the answers to a charge; LedgerError for events that were not charged.

        Answers behind a gate, or with their noisy counts, have one common charge.
        """
        if any(each.events != charged.events[: len(each.events)] for each in outcomes):
            raise LedgerError("an answer has events that were not charged")
        cost = charged.cost
        if gate is None and noisy is None:
            of_each = partial(total_cost, state.currency)
            cost = sum((of_each(each.events) for each in outcomes), Fraction(0))
        pairs = zip(charged.queries, outcomes, strict=True)
        answers = tuple((query, e.label, e.source, len(e.events)) for query, e in pairs)
        rows = None if noisy is None else tuple(map(tuple, noisy.tolist()))
        return cls(charged.entry, charged.round, answers, cost, gate, rows)

    def other_rows(self) -> Iterable[Row]:
        """Return a row for each label."""
        for query, label, source, _ in self.answers:
            if label is not None:
                row = {"query": query, "label": label, "round": self.round, "source": source}
                yield "releases", row

    def after(self, state: CampaignState) -> CampaignState:
        """Answer just what the open charge is for, and give back what was not used."""
        spec, charge = state.spec, state.open_charge
        if (self.gate is None, self.noisy is None) != (spec.gate is None, not spec.one_release):
            raise LedgerError("a gate or noisy counts in a campaign without, or none in one with")
        if charge is None or charge.entry != self.charge:
            raise LedgerError(f"a release for entry {self.charge}, which is not an open charge")
        if charge.round != self.round:
            raise LedgerError(
                f"a release in round {self.round} for a charge of round {charge.round}"
            )
        if tuple(query for query, *_ in self.answers) != charge.queries:
            raise LedgerError("a release answers other queries than were charged")
        fresh = self._labels(state, charge)
        noisy = () if self.noisy is None else (self._noisy(state, charge, fresh),)
        used = charge.cost
        if self.gate is None and self.noisy is None:
            used = sum(
                (total_cost(state.currency, charge.events[:each]) for *_, each in self.answers),
                Fraction(0),
            )
        if self.cost != used:
            raise LedgerError(f"a release used {self.cost}, the accountant says {used}")
        budget = PrivacyFilter(state.cap, state.spent - charge.cost)
        budget.settle(budget.reserve(charge.cost), used)
        # Labels and answers share memory with those of the earlier state.
        before = state.answered.get(charge.round, Answered())
        return replace(
            state,
            spent=budget.spent,
            labels=state.labels.grown(fresh.items()),
            answered={**state.answered, charge.round: before.grown(charge.queries)},
            gate=self.gate,
            released=state.released + noisy,
            open_charge=None,
        )

    def _labels(self, state: CampaignState, charge: Charge) -> dict[int, ReleasedLabel]:
        """Return the labels by query, each answer checked."""
        spec, most = state.spec, len(charge.events)
        # With noise shares a query costs the same with and without a label: its sum was seen.
        whole = spec.gate is not None or spec.one_release or spec.sums.distributed
        fresh: dict[int, ReleasedLabel] = {}
        for query, label, source, events in self.answers:
            # The teachers' or records' label uses its whole charge, one only tested not: it has none.
            least, end = most if whole else 1, most + whole
            if source in ("teachers", "records"):
                least, end = most, most + 1
            if (
                (label is None) != (source is None)
                or not least <= events < end
                or not 0 <= (label or 0) < len(state.classes)
            ):
                answer = query, label, source, events
                raise LedgerError(f"not an answer to a charge of {most} events: {answer}")
            if source == "reinforced" and not state.mechanism(charge.round).interactive:
                raise LedgerError(f"query {query} has a student's label, but no student was asked")
            if (source == "records") != (spec.records_vote and label is not None):
                raise LedgerError(f"query {query} has a label from {source}")
            if label is None or source is None:
                continue
            if self.gate == "closed":
                raise LedgerError(f"query {query} got a label although the gate was closed")
            if query in state.labels or query in fresh:
                raise LedgerError(f"query {query} already has its label")
            fresh[query] = ReleasedLabel(label, charge.round, source, state.head.seq + 1)
        return fresh

    def _noisy(
        self, state: CampaignState, charge: Charge, labels: Mapping[int, ReleasedLabel]
    ) -> NoisyVotes:
        """Return the noisy counts of a released matrix, after checking its labels against them."""
        rows, classes = self.noisy or (), len(state.classes)
        if len(rows) != len(charge.queries):
            raise LedgerError(
                f"noisy counts of {len(rows)} queries, but {len(charge.queries)} were charged"
            )
        if any(len(row) != classes for row in rows):
            raise LedgerError(f"a row of noisy counts does not have {classes} classes")
        if any(abs(count) > MOST_TEACHERS for row in rows for count in row):
            raise LedgerError("a noisy count is not a whole number of plausible size")
        counts = np.array(rows, dtype=np.int64).reshape(len(rows), classes)
        mechanism = state.mechanism(charge.round)
        if not isinstance(mechanism, MatrixMechanism):
            raise LedgerError("noisy counts for a mechanism that releases none")
        for query, label in zip(charge.queries, mechanism.labels(counts), strict=True):
            given = labels.get(query)
            if label != (None if given is None else given.label):
                raise LedgerError(f"query {query} has another label than its noisy counts give")
        adding = len(state.batch_of(charge.queries[0]).responders) if mechanism.noise_inside else 1
        queries = np.array(charge.queries, dtype=np.int64)
        return NoisyVotes(queries, counts, mechanism.shares.spread(adding), mechanism.code)


CHAIN: Final = Chain(b"pate ledger entry v2\0", b"pate ledger v2")
RULES: Final[Rules[Any]] = Rules(
    CHAIN,
    Open, Roster, Unmasking, Votes, Charging, Release, RoundEnd, Predictions, Model, Close,
)  # fmt: skip


def replay(entries: Iterable[Entry]) -> CampaignState:
    """Return the state after all entries of a ledger; LedgerError if one is invalid, or none is there."""
    state: CampaignState | None
    state, _ = RULES.replay(None, entries)
    if state is None:
        raise LedgerError("the ledger is empty")
    return state
