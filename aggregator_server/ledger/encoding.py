"""Encoding of votes and predictions, and their commitments in the chain."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from pate.errors import LedgerError

if TYPE_CHECKING:
    from pate.votes import Counts

#: Student's class probabilities: (queries, classes) float32.
Probabilities = NDArray[np.float32]

SALT_BYTES: Final = 32


def pack_counts(counts: Counts) -> bytes:
    """Return (count, classes) votes as int32, little endian, row by row.

    Raises:
        LedgerError: if a count does not fit.
    """
    if counts.size and (int(counts.max()) >= 2**31 or int(counts.min()) < -(2**31)):
        raise LedgerError(f"a count of {int(np.abs(counts).max())} votes does not fit the ledger")
    return counts.astype("<i4").tobytes()


def unpack_counts(blob: bytes, count: int, classes: int) -> Counts:
    """Read back what :func:`pack_counts` made.

    Raises:
        LedgerError: if its length is wrong.
    """
    return view_counts(blob, count, classes).astype(np.int64)


def view_counts(blob: bytes, count: int, classes: int) -> NDArray[np.int32]:
    """Return what :func:`pack_counts` made as (count, classes) int32, without a copy.

    Raises:
        LedgerError: if its length is wrong.
    """
    if len(blob) != 4 * count * classes:
        raise LedgerError(f"votes of {len(blob)} bytes, expected {4 * count * classes}")
    return np.frombuffer(blob, dtype="<i4").reshape(count, classes)


def pack_probabilities(probabilities: Probabilities) -> bytes:
    """Return (queries, classes) probabilities as float32, little endian, row by row."""
    return probabilities.astype("<f4").tobytes()


def unpack_probabilities(blob: bytes, rows: int, classes: int) -> Probabilities:
    """Read back what :func:`pack_probabilities` made.

    Raises:
        LedgerError: if its length is wrong.
    """
    if len(blob) != 4 * rows * classes:
        raise LedgerError(f"predictions of {len(blob)} bytes, expected {4 * rows * classes}")
    return np.frombuffer(blob, dtype="<f4").reshape(rows, classes).astype(np.float32)


def counts_commitment(salt: bytes, blob: bytes, first: int, count: int, classes: int) -> str:
    """Return a hiding commitment, hex, to a batch of votes and its place.

    The chain's head is published, and must not reveal votes: with a plain digest anyone could test
    guesses of the votes, outside of any epsilon.

    Args:
        salt: :data:`SALT_BYTES` fresh random bytes, stored with the votes and as private.
        blob: the packed counts.
        first: index of the batch's first query.
        count: number of queries.
        classes: number of classes.

    Raises:
        LedgerError: if the salt has a wrong length.
    """
    if len(salt) != SALT_BYTES:
        raise LedgerError(f"a salt of {len(salt)} bytes, expected {SALT_BYTES}")
    head = f"pate votes v1\0{first} {count} {classes}\0".encode()
    return hashlib.sha256(head + salt + blob).hexdigest()


def probabilities_digest(blob: bytes, round_: int, rows: int, classes: int) -> str:
    """Return the SHA-256 digest, hex, of predictions and their round."""
    head = f"pate predictions v1\0{round_} {rows} {classes}\0".encode()
    return hashlib.sha256(head + blob).hexdigest()
