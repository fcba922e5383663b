"""Summed votes and the student's predictions: as stored, their commitments in the chain, and read."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from pate.errors import LedgerError
from pate.storage.ledger import each_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggregator_server.ledger.state import CampaignState
    from aggregator_server.ledger.store.stores import Store
    from pate.votes import Counts

#: Student's class probabilities: (queries, classes) float32.
Probabilities = NDArray[np.float32]

SALT_BYTES: Final = 32


def pack_counts(counts: Counts) -> bytes:
    """Return (count, classes) votes as int32, little endian, row by row."""
    if counts.size and (int(counts.max()) >= 2**31 or int(counts.min()) < -(2**31)):
        raise LedgerError(f"a count of {int(np.abs(counts).max())} votes does not fit the ledger")
    return counts.astype("<i4").tobytes()


def unpack_counts(blob: bytes, count: int, classes: int) -> Counts:
    """Read back what :func:`pack_counts` made."""
    return view_counts(blob, count, classes).astype(np.int64)


def view_counts(blob: bytes, count: int, classes: int) -> NDArray[np.int32]:
    """Return what :func:`pack_counts` made as (count, classes) int32, without a copy."""
    if len(blob) != 4 * count * classes:
        raise LedgerError(f"votes of {len(blob)} bytes, expected {4 * count * classes}")
    return np.frombuffer(blob, dtype="<i4").reshape(count, classes)


def pack_probabilities(probabilities: Probabilities) -> bytes:
    """Return (queries, classes) probabilities as float32, little endian, row by row."""
    return probabilities.astype("<f4").tobytes()


def unpack_probabilities(blob: bytes, rows: int, classes: int) -> Probabilities:
    """Read back what :func:`pack_probabilities` made."""
    if len(blob) != 4 * rows * classes:
        raise LedgerError(f"predictions of {len(blob)} bytes, expected {4 * rows * classes}")
    return np.frombuffer(blob, dtype="<f4").reshape(rows, classes).astype(np.float32)


def counts_commitment(salt: bytes, blob: bytes, first: int, count: int, classes: int) -> str:
    """Return a hiding commitment, hex, to a batch of votes and its place.

    The chain's head is published, and must not reveal votes: with a plain digest anyone could test
    guesses of the votes, outside of any epsilon.
    """
    if len(salt) != SALT_BYTES:
        raise LedgerError(f"a salt of {len(salt)} bytes, expected {SALT_BYTES}")
    head = f"pate votes v1\0{first} {count} {classes}\0".encode()
    return hashlib.sha256(head + salt + blob).hexdigest()


def probabilities_digest(blob: bytes, round_: int, rows: int, classes: int) -> str:
    """Return the SHA-256 digest, hex, of predictions and their round."""
    head = f"pate predictions v1\0{round_} {rows} {classes}\0".encode()
    return hashlib.sha256(head + blob).hexdigest()


def all_counts(store: Store, state: CampaignState) -> Counts:
    """Return all summed votes: (queries, classes) int64, zeros where there are none.

    Where records vote in rounds they are those of the last one.
    """
    whole = np.zeros((state.spec.queries, len(state.classes)), dtype=np.int64)
    with store.reading() as db:
        for first, count, blob in each_row(db, "batches", ("first", "count", "counts")):
            votes = unpack_counts(blob, count, len(state.classes))
            whole[list(state.voted.at(range(first, first + count)))] = votes
    return whole


def counts_of(store: Store, state: CampaignState, queries: Sequence[int]) -> Counts:
    """Return the summed votes of some queries, (queries, classes) int64, in rounds of the current one.

    Each batch with one of them is read once, and one is in memory at a time.
    """
    found = np.empty((len(queries), len(state.classes)), dtype=np.int64)
    places = [state.voted.place_of(query) for query in queries]
    start = state.places.start
    at = np.array([-1 if place is None else start + place for place in places], dtype=np.int64)
    firsts = np.array([batch.first for batch in state.batches], dtype=np.int64)
    ends = firsts + [batch.count for batch in state.batches]
    of = np.searchsorted(firsts, at, side="right") - 1
    if bool(np.any((at < 0) | (of < 0))) or bool(np.any(at >= ends[of])):
        raise LedgerError("there are no votes in the ledger on some of these queries")
    with store.reading() as db:
        for each in np.unique(of).tolist():
            batch = state.batches[each]
            (blob,) = db.execute(
                "SELECT counts FROM batches WHERE first = ?", (batch.first,)
            ).fetchone()
            rows = np.flatnonzero(of == each)
            votes = view_counts(blob, batch.count, len(state.classes))
            found[rows] = votes[at[rows] - batch.first]
    return found


def predictions_for(store: Store, state: CampaignState, round_: int) -> Probabilities | None:
    """Return the student's predictions for a round, or None: (queries, classes) float32."""
    with store.reading() as db:
        row = db.execute(
            "SELECT probabilities FROM predictions WHERE round = ?", (round_,)
        ).fetchone()
    if row is None:
        return None
    return unpack_probabilities(row[0], state.spec.queries, len(state.classes))
