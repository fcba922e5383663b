"""Verification of a whole ledger: the chain by replay, the other tables against the chain."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from aggregator_server.ledger import encoding
from aggregator_server.ledger.release_entries import replay
from aggregator_server.ledger.store.stores import opened
from pate.codes import code_of
from pate.errors import LedgerError, ProtocolError
from pate.mechanisms import (
    DistributedMechanism,
    DistributedNeighbour,
    TeacherRule,
    round_predictions,
)
from pate.noise.shares import check_row_totals
from pate.storage.hash_chain import canonical
from pate.storage.ledger import each_entry, each_row, require_entry
from pate.votes import check_cast, check_votes

if TYPE_CHECKING:
    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.state import CampaignState, VoteBatch
    from aggregator_server.ledger.store.place import Place
    from aggregator_server.ledger.store.stores import Store
    from pate.storage.hash_chain import Entry, Head
    from pate.storage.ledger import Transaction
    from pate.votes import Counts


def read_campaign(place: Place) -> tuple[CampaignState, list[Entry]]:
    """Return the state of a campaign and all its entries, also while a server writes them.

    The chain is replayed; the rest of the ledger is not checked, see :func:`verify`.
    """
    with closing(opened(place, read_only=True)) as store, store.reading() as db:
        entries = list(each_entry(db))
    return replay(entries), entries


def verify(place: Place, *heads: Head | None) -> CampaignState:
    """Verify a whole ledger, also while a server writes it, and return the campaign's state.

    The chain is replayed from its first entry by the rules that admit new entries: each link and
    digest, each cost by the accountant, the budget at every step, a charge before each release, one
    label per query. The other tables must agree with the chain, and tables and triggers with those
    of a new ledger. ``heads`` are known from elsewhere, such as a privacy statement: without one,
    truncation cannot be detected.
    """
    with closing(opened(place, read_only=True)) as store, store.reading() as db:
        return audited(store, db, *heads, pages=True)


def audited(
    store: Store, db: Transaction, *heads: Head | None, pages: bool = False
) -> CampaignState:
    """Verify all of an open ledger, and return the campaign's state."""
    store.check(db, pages=pages)
    state = replay(each_entry(db))
    # The other tables against the chain.
    _check_releases(db, state)
    _check_batches(db, state)
    _check_predictions(db, state)
    for head in filter(None, (*heads, store.newest_known())):
        require_entry(db, head)
    return state


def _check_releases(db: Transaction, state: CampaignState) -> None:
    columns = ("query", "label", "round", "source", "entry")
    # Row by row, without a second copy in memory.
    wanted = iter(sorted(state.labels))
    for query, *found in each_row(db, "releases", columns):
        expected = next(wanted, None)
        recorded = state.labels.get(query)
        if query != expected or recorded is None:
            odd = query if expected is None else min(query, expected)
            raise LedgerError(f"the releases table and the chain differ: query {odd}")
        if found != [recorded.label, recorded.round, recorded.source, recorded.entry]:
            raise LedgerError(f"the releases table and the chain differ: query {query}")
    if (odd := next(wanted, None)) is not None:
        raise LedgerError(f"the releases table and the chain differ: query {odd}")


def _check_batches(db: Transaction, state: CampaignState) -> None:
    firsts = [first for (first,) in each_row(db, "batches", ("first",))]
    if firsts != [batch.first for batch in state.batches]:
        raise LedgerError("the batches table and the chain hold different batches of votes")
    classes = len(state.classes)
    for batch in state.batches:
        *described, salt, blob = db.execute(
            "SELECT first, count, teachers, responders, entry, salt, counts FROM batches "
            "WHERE first = ?",
            (batch.first,),
        ).fetchone()
        where = f"votes of queries {batch.first} to {batch.first + batch.count - 1}"
        responders = canonical(list(batch.responders))
        if described != [batch.first, batch.count, batch.teachers, responders, batch.entry]:
            raise LedgerError(f"{where}: the batches table and the chain differ")
        recorded = encoding.counts_commitment(salt, blob, batch.first, batch.count, classes)
        if recorded != batch.digest:
            raise LedgerError(f"{where}: the counts were altered, their digest does not match")
        counts = encoding.unpack_counts(blob, batch.count, classes)
        try:
            if state.spec.sums.distributed:
                _check_noisy(state, counts, batch)
                continue
            if state.spec.one_release:
                check_cast(counts, code_of(state.spec.code), batch.teachers)
                continue
            check_votes(counts, teachers=batch.teachers, classes=classes, queries=batch.count)
        except ProtocolError as error:
            raise LedgerError(f"{where}: {error}") from error


def _check_noisy(state: CampaignState, counts: Counts, batch: VoteBatch) -> None:
    """Check noisy sums, whose totals are bounded but not known exactly."""
    round_ = state.round_of(batch.first)
    mechanism = state.mechanism(round_)
    if not isinstance(mechanism, DistributedMechanism):
        raise LedgerError("noise shares with a mechanism that does not use them")
    if isinstance(mechanism, DistributedNeighbour):
        reach = mechanism.shares.reach(len(batch.responders), counts.size)
        check_cast(counts, code_of(state.spec.code), batch.teachers, reach=reach)
        # One batch has them all, and its release is what the parties sent.
        released = state.released[round_ - 1 : round_]
        if any(not np.array_equal(counts, each.counts) for each in released):
            raise LedgerError("the noisy counts released are not those of the votes")
        return
    check_row_totals(counts, batch.teachers, mechanism.share, len(batch.responders))


def _check_predictions(db: Transaction, state: CampaignState) -> None:
    rounds = [round_ for (round_,) in each_row(db, "predictions", ("round",))]
    if rounds != sorted(state.predictions):
        raise LedgerError("the predictions table and the chain hold different rounds")
    size = (state.spec.queries, len(state.classes))
    for round_, record in state.predictions.items():
        blob, stored, entry = db.execute(
            "SELECT probabilities, digest, entry FROM predictions WHERE round = ?", (round_,)
        ).fetchone()
        digest = encoding.probabilities_digest(blob, round_, *size)
        if digest != record.digest or (stored.hex(), entry) != (digest, record.entry):
            raise LedgerError(f"the predictions for round {round_} were altered")
        _check_reinforced(state, round_, encoding.unpack_probabilities(blob, *size))


def _check_reinforced(state: CampaignState, round_: int, predictions: Probabilities) -> None:
    """Check that the labels of a round charged as the student's are the student's."""
    mechanism = state.mechanism(round_)
    for query, recorded in state.labels.items():
        if recorded.round != round_ or recorded.source != "reinforced":
            continue
        teachers = state.batch_of(query).teachers
        expected = round_predictions(predictions[query : query + 1], teachers)[0]
        if not (
            isinstance(mechanism, TeacherRule) and mechanism.reinforced(expected) == recorded.label
        ):
            raise LedgerError(
                f"the label of query {query} is not the student's confident prediction"
            )
