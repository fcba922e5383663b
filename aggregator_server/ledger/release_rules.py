"""Ledger rules for answers: each charge is released once, at its cost.

A part of :mod:`aggregator_server.ledger.rules`.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from aggregator_server.ledger.json_fields import Fields
from aggregator_server.ledger.label_table import Answered, Labels
from aggregator_server.ledger.state import CampaignState, Charge, ReleasedLabel, Source
from pate.accounting.budget import PrivacyFilter
from pate.accounting.composition import total_cost
from pate.errors import LedgerError
from pate.formats.noisy_counts import NoisyVotes
from pate.mechanisms import MatrixMechanism
from pate.mechanisms.contract import MOST_TEACHERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pate.storage.hash_chain import Entry, Json


def release(state: CampaignState, entry: Entry, body: dict[str, Json]) -> CampaignState:
    """Return the state after the answers to the open charge.

    Raises:
        LedgerError: if there is no such charge, they do not match it, or their cost is not the
            accountant's.
    """
    gated, matrix = state.spec.gate is not None, state.spec.one_release
    # With noise shares a query costs the same with and without a label: its sum was seen.
    whole = gated or matrix or state.spec.sums.distributed
    together = gated or matrix
    fields = Fields(body, "charge round answers cost" + " gate" * gated + " noisy" * matrix)
    charge = state.open_charge
    if charge is None or charge.entry != fields.integer("charge", 1):
        raise LedgerError(f"a release for entry {body['charge']}, which is not an open charge")
    if charge.round != fields.integer("round", 1):
        raise LedgerError(
            f"a release in round {body['round']} for a charge of round {charge.round}"
        )
    fresh: dict[int, ReleasedLabel] = {}
    answered, used = [], charge.cost if together else Fraction(0)
    gate = _gate(fields.text("gate")) if gated else None
    for answer in fields.many("answers"):
        query, label, source, events = _answer(answer, charge, len(state.classes), whole=whole)
        if source == "reinforced" and not state.mechanism(charge.round).interactive:
            raise LedgerError(f"query {query} has a student's label, but no student was asked")
        if (source == "records") != (state.spec.records_vote and label is not None):
            raise LedgerError(f"query {query} has a label from {source}")
        answered.append(query)
        if not together:
            used += total_cost(state.currency, charge.events[:events])
        if label is not None:
            if gate == "closed":
                raise LedgerError(f"query {query} got a label although the gate was closed")
            if query in state.labels or query in fresh:
                raise LedgerError(f"query {query} already has its label")
            fresh[query] = ReleasedLabel(label, charge.round, cast("Source", source), entry.seq)
    if tuple(answered) != charge.queries:
        raise LedgerError("a release answers other queries than were charged")
    noisy = (_noisy(state, charge, fields.many("noisy"), fresh),) if matrix else ()
    if fields.fraction("cost") != used:
        raise LedgerError(f"a release used {fields.text('cost')}, the accountant says {used}")
    budget = PrivacyFilter(state.cap, state.spent - charge.cost)
    budget.settle(budget.reserve(charge.cost), used)
    labels, before = state.labels, state.answered.get(charge.round)
    # Both share memory with those of the earlier state; see the module.
    labels = labels if isinstance(labels, Labels) else Labels().grown(labels.items())
    before = before if isinstance(before, Answered) else Answered().grown(before or ())
    return replace(
        state,
        spent=budget.spent,
        labels=labels.grown(fresh.items()),
        answered={**state.answered, charge.round: before.grown(answered)},
        gate=gate,
        released=state.released + noisy,
        open_charge=None,
    )


def _noisy(
    state: CampaignState, charge: Charge, noisy: list[Json], labels: Mapping[int, ReleasedLabel]
) -> NoisyVotes:
    """Return the noisy counts of a released matrix, after checking its labels against them."""
    mechanism = state.mechanism(charge.round)
    counts = _noisy_counts(noisy, len(charge.queries), len(state.classes))
    if not isinstance(mechanism, MatrixMechanism):
        raise LedgerError("noisy counts for a mechanism that releases none")
    for query, label in zip(charge.queries, mechanism.labels(counts), strict=True):
        held = labels.get(query)
        if label != (None if held is None else held.label):
            raise LedgerError(f"query {query} has another label than its noisy counts give")
    adding = len(state.batch_of(charge.queries[0]).responders) if mechanism.noise_inside else 1
    spread = mechanism.shares.spread(adding)
    queries = np.array(charge.queries, dtype=np.int64)
    return NoisyVotes(queries, counts, spread, mechanism.code)


def _gate(text: str) -> Literal["open", "closed"]:
    if text not in ("open", "closed"):
        raise LedgerError(f"a gate must be open or closed, got {text!r}")
    return cast("Literal['open', 'closed']", text)


def _answer(
    answer: Json, charge: Charge, classes: int, *, whole: bool
) -> tuple[int, int | None, str | None, int]:
    """Return query, label, source and number of events of one answer, checked.

    ``whole``: every answer uses its whole charge.
    """
    most = len(charge.events)
    least = most if whole else 1
    if isinstance(answer, list) and any(isinstance(value, bool) for value in answer):
        answer = None  # in Python, True is the integer 1
    match answer:
        case [int(query), None, None, int(events)] if least <= events < most + whole:
            return query, None, None, events
        case [int(query), int(label), "reinforced", int(events)] if (
            least <= events < most + whole and 0 <= label < classes
        ):
            return query, label, "reinforced", events
        # The teachers' or records' label uses its whole charge.
        case [int(query), int(label), ("teachers" | "records") as source, int(events)] if (
            events == most and 0 <= label < classes
        ):
            return query, label, source, events
    raise LedgerError(f"not an answer to a charge of {len(charge.events)} events: {answer!r}")


def _noisy_counts(rows: list[Json], queries: int, classes: int) -> NDArray[np.int64]:
    """Return released noisy counts, (queries, classes) int64.

    Raises:
        LedgerError: for another shape, or impossible noisy counts.
    """
    if len(rows) != queries:
        raise LedgerError(f"noisy counts of {len(rows)} queries, but {queries} were charged")
    for row in rows:
        if not isinstance(row, list) or len(row) != classes:
            raise LedgerError(f"a row of noisy counts does not have {classes} classes")
        if not all(type(count) is int and abs(count) <= MOST_TEACHERS for count in row):
            raise LedgerError("a noisy count is not a whole number of plausible size")
    return np.array(rows, dtype=np.int64).reshape(queries, classes)
