"""Checking a whole ledger: the chain by replay, the other tables against the chain."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from sqlalchemy import select

from aggregator_server.ledger import encoding
from aggregator_server.ledger.chain import Entry, Head
from aggregator_server.ledger.rules import replay
from aggregator_server.ledger.store import layout, tables
from aggregator_server.ledger.store.stores import examine, known_head
from pate.errors import LedgerError, ProtocolError
from pate.mechanisms import (
    DistributedInteractiveGNMax,
    InteractiveGNMax,
    round_predictions,
)
from pate.mechanisms.distributed import DistributedMechanism
from pate.mechanisms.neighbour import DistributedNeighbour
from pate.noise.shares import check_row_totals, largest_noise
from pate.storage.hash_chain import canonical
from pate.votes import check_entries, check_votes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from fractions import Fraction

    from sqlalchemy import Connection

    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.state import CampaignState, VoteBatch
    from aggregator_server.ledger.store.place import Place
    from pate.votes import Counts


#: Entries of the chain that are in memory at a time while it is read.
_AT_A_TIME: Final = 256


@dataclass(frozen=True)
class Verification:
    """What a ledger that holds says in sum.

    Attributes:
        campaign: its id, hex.
        phase: of the campaign.
        head: the last entry.
        labels: number of queries that have one.
        queries_asked: number of answers, labels and no answers.
        composition: how costs add up.
        cap: the budget in it; 0 before the roster.
        spent: charged so far.
        wasted: the part of it that was charged for answers that never came.
        epsilon: what the budget is worth at the campaign's delta: the guarantee.
        simulated: whether seeded noise was used, so that nothing is guaranteed.
    """

    campaign: str
    phase: str
    head: Head
    labels: int
    queries_asked: int
    composition: str
    cap: Fraction
    spent: Fraction
    wasted: Fraction
    epsilon: float
    simulated: bool


def read_campaign(place: Place) -> tuple[CampaignState, list[Entry]]:
    """Return where a campaign stands and all its entries, also while a server writes them.

    The chain is replayed; the rest of the ledger is not looked at, see :func:`verify`.

    Raises:
        LedgerError: if the chain does not hold.
        StateError: if there is no ledger.
        UnreachableError: if the database that it is in does not answer.
    """
    database = examine(place)
    try:
        with database.reading() as connection:
            entries = read_entries(connection)
    finally:
        database.close()
    return replay(entries), entries


def verify(place: Place, expected_head: Head | None = None) -> Verification:
    """Check everything that a ledger says, also while a server writes it.

    The chain is replayed from its first entry by the rules that admit new entries: each link and
    digest, each cost by the accountant, the budget at every step, a charge before each release,
    one label a query. The other tables must agree with the chain, and tables and triggers with
    the migrations.

    Args:
        place: of the ledger.
        expected_head: a head that was kept elsewhere, as in a privacy statement. It must be in
            the chain: without one, entries cut off at the end cannot be told from entries that
            were never written.

    Raises:
        LedgerError: if anything does not hold.
        StateError: if there is no ledger.
        UnreachableError: if the database that it is in does not answer.
    """
    database = examine(place)
    try:
        with database.reading() as connection:
            _check_pages(connection)
            state = audited(connection, expected_head, known_head(place))
    finally:
        database.close()
    return Verification(
        campaign=state.spec.id,
        phase=state.phase,
        head=state.head,
        labels=len(state.labels),
        queries_asked=state.queries_asked,
        composition=state.composition.name,
        cap=state.cap,
        spent=state.spent,
        wasted=state.wasted,
        epsilon=state.epsilon,
        simulated=state.simulated,
    )


def audited(connection: Connection, *heads: Head | None) -> CampaignState:
    """Check all of an open ledger but the pages of its file, and return where the campaign stands.

    Args:
        connection: to read from.
        heads: that must be in the chain; None: none.

    Raises:
        LedgerError: if anything does not hold.
    """
    layout.check(connection)
    wanted = [head for head in heads if head is not None]
    found: set[Head] = set()
    # Closed also where one does not hold: a cursor of a database must not outlive its transaction.
    with closing(each_entry(connection)) as entries:
        state = replay(_noting(entries, wanted, found))
    check_tables(connection, state)
    for head in wanted:
        _check_head(state.head, found, head)
    return state


def read_entries(
    connection: Connection, least: int = 1, kinds: Sequence[str] | None = None
) -> list[Entry]:
    """Return the chain as it stands in the file, unchecked; arguments as for :func:`each_entry`."""
    return list(each_entry(connection, least, kinds))


def each_entry(
    connection: Connection, least: int = 1, kinds: Sequence[str] | None = None
) -> Generator[Entry, None, None]:
    """Yield the entries of the chain as they stand in the file, unchecked, a few at a time.

    Args:
        connection: to read from.
        least: number of the first entry wanted.
        kinds: which kinds; None for all.
    """
    table = tables.entries
    columns = (
        table.c.seq,
        table.c.kind,
        table.c.body,
        table.c.previous,
        table.c.digest,
        table.c.written_at,
    )
    query = select(*columns).where(table.c.seq >= least).order_by(table.c.seq)
    if kinds is not None:
        query = query.where(table.c.kind.in_(kinds))
    with connection.execute(query.execution_options(yield_per=_AT_A_TIME)) as rows:
        for row in rows:
            yield Entry(*row)


def check_tables(connection: Connection, state: CampaignState) -> None:
    """Compare the tables beside the chain with what the chain says.

    Raises:
        LedgerError: for a row too many, missing or changed, or bytes with another digest.
    """
    _check_releases(connection, state)
    _check_batches(connection, state)
    _check_predictions(connection, state)


def _check_releases(connection: Connection, state: CampaignState) -> None:
    table = tables.releases
    columns = (table.c.query, table.c.label, table.c.round, table.c.source, table.c.entry)
    # Row by row, side by side: neither is held a second time.
    wanted = iter(sorted(state.labels))
    for query, *found in connection.execute(select(*columns).order_by(table.c.query)):
        expected = next(wanted, None)
        held = state.labels.get(query)
        if query != expected or held is None:
            odd = query if expected is None else min(query, expected)
            raise LedgerError(f"the releases table and the chain differ: query {odd}")
        if found != [held.label, held.round, held.source, held.entry]:
            raise LedgerError(f"the releases table and the chain differ: query {query}")
    if (odd := next(wanted, None)) is not None:
        raise LedgerError(f"the releases table and the chain differ: query {odd}")


def _check_batches(connection: Connection, state: CampaignState) -> None:
    table = tables.batches
    columns = (
        table.c.first, table.c.count, table.c.teachers, table.c.responders, table.c.entry,
        table.c.salt, table.c.counts,
    )  # fmt: skip
    firsts = connection.execute(select(table.c.first).order_by(table.c.first)).scalars().all()
    if firsts != [batch.first for batch in state.batches]:
        raise LedgerError("the batches table and the chain hold different batches of votes")
    classes = len(state.classes)
    for batch in state.batches:
        one = select(*columns).where(table.c.first == batch.first)
        *described, salt, blob = connection.execute(one).one()
        where = f"votes of queries {batch.first} to {batch.first + batch.count - 1}"
        responders = canonical(list(batch.responders))
        if described != [batch.first, batch.count, batch.teachers, responders, batch.entry]:
            raise LedgerError(f"{where}: the batches table and the chain differ")
        held = encoding.counts_commitment(salt, blob, batch.first, batch.count, classes)
        if held != batch.digest:
            raise LedgerError(f"{where}: the counts were altered, their digest does not hold")
        counts = encoding.unpack_counts(blob, batch.count, classes)
        try:
            if state.spec.sums.distributed:
                _check_noisy(state, counts, batch)
                continue
            if state.spec.records_vote:
                check_entries(counts, least=0, most=batch.teachers)
                continue
            check_votes(counts, teachers=batch.teachers, classes=classes, queries=batch.count)
        except ProtocolError as error:
            raise LedgerError(f"{where}: {error}") from error


def _check_noisy(state: CampaignState, counts: Counts, batch: VoteBatch) -> None:
    """Check sums with noise in them: their totals are no known numbers, and not any numbers."""
    mechanism = state.mechanism(1)
    if not isinstance(mechanism, DistributedMechanism):
        raise LedgerError("noise shares, and a mechanism that knows of none")
    if isinstance(mechanism, DistributedNeighbour):
        reach = largest_noise(mechanism.share, len(batch.responders), counts.size)
        check_entries(counts, least=-reach, most=batch.teachers + reach)
        # One batch has them all, and what was released of it is what the parties sent.
        if state.noisy is not None and not np.array_equal(counts, state.noisy.counts):
            raise LedgerError("the noisy counts released are not those of the votes")
        return
    check_row_totals(counts, batch.teachers, mechanism.share, len(batch.responders))


def _check_predictions(connection: Connection, state: CampaignState) -> None:
    rows = connection.execute(select(tables.predictions)).all()
    if {row.round for row in rows} != set(state.predictions):
        raise LedgerError("the predictions table and the chain hold different rounds")
    size = (state.spec.queries, len(state.classes))
    for row in rows:
        record = state.predictions[row.round]
        digest = encoding.probabilities_digest(row.probabilities, row.round, *size)
        if digest != record.digest or (row.digest.hex(), row.entry) != (digest, record.entry):
            raise LedgerError(f"the predictions for round {row.round} were altered")
        _check_reinforced(state, row.round, encoding.unpack_probabilities(row.probabilities, *size))


def _check_reinforced(state: CampaignState, round_: int, predictions: Probabilities) -> None:
    """Check that the student's labels of a round are the student's: they were charged as such."""
    mechanism = state.mechanism(round_)
    for query, held in state.labels.items():
        if held.round != round_ or held.source != "reinforced":
            continue
        teachers = state.batch_of(query).teachers
        expected = round_predictions(predictions[query : query + 1], teachers)[0]
        if not (
            isinstance(mechanism, InteractiveGNMax | DistributedInteractiveGNMax)
            and mechanism.reinforced(expected) == held.label
        ):
            raise LedgerError(f"the label of query {query} is not what the student was sure of")


def _check_pages(connection: Connection) -> None:
    if layout.is_postgres(connection):
        return  # its server checks what it reads, and all was read
    for pragma in ("integrity_check", "foreign_key_check"):
        said = [str(row[0]) for row in connection.exec_driver_sql(f"PRAGMA {pragma}")]
        if said not in (["ok"], []):
            raise LedgerError(f"the file is damaged: {'; '.join(said[:3])}")


def _noting(entries: Iterable[Entry], wanted: Sequence[Head], found: set[Head]) -> Iterator[Entry]:
    """Pass entries on, and note the heads after those that are wanted."""
    numbers = {head.seq for head in wanted}
    for entry in entries:
        if entry.seq in numbers:
            found.add(entry.head)
        yield entry


def _check_head(last: Head, found: set[Head], expected: Head) -> None:
    if not 0 < expected.seq <= last.seq:
        raise LedgerError(
            f"entry {expected.seq} was in this ledger and is gone: it ends at {last.seq}"
        )
    if expected not in found:
        raise LedgerError(f"entry {expected.seq} is another than the expected {expected}")
