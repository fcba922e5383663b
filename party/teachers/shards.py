"""The assignment of records to teachers, and what else decides a teacher: its seed, and a fingerprint of all.

Each record belongs to one shard, decided by a keyed hash of the record itself, or of its group
(patient) if people have several records. So a record that is added or removed moves no other record
to another shard, which is what limits its influence to one teacher's vote: the sensitivity of the
histogram that the accounting of PATE starts from (Papernot et al. 2017, section 2). Splitting by
position would not work: one more record would shift all later ones.

Two records that are equal in every cell and label get the same hash and so the same teacher, as
intended: such duplicates often belong to one person. The label is that of the party's file, however a
campaign's class list names it; another schema is another reading of the records, with teachers of its own.

The key prevents outsiders from constructing records that share a shard. Shards differ in size like
balls thrown into bins, and with few records a shard may be empty; see
:class:`party.teachers.protocol.Constant` for how its teacher votes.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.data.values import Dataset

_RECORD: Final = b"pate shard rec"
_GROUP: Final = b"pate shard grp"
# 128 bits modulo the number of teachers: the bias is below 2^-100.
_DIGEST_BYTES: Final = 16


class Described(Protocol):
    """What is known of a kind of teachers in a fingerprint."""

    @property
    def name(self) -> str:
        """The kind's name."""

    @property
    def version(self) -> str:
        """A version that changes when teachers of this kind would change."""


def assign_shards(
    dataset: Dataset, teachers: int, key: bytes, *, row_hashes: Sequence[bytes] | None = None
) -> NDArray[np.int64]:
    """Return (n,) the shard of each record, from 0 to k - 1; all records of a group share one.

    The same key gives the same shards. ``row_hashes`` saves computing them again.
    """
    if teachers < 1:
        raise UsageError(f"the number of teachers is {teachers}; it must be 1 or more")
    if dataset.groups is None:
        units = dataset.row_hashes() if row_hashes is None else row_hashes
        person = _RECORD
    else:
        units = [name.encode() for name in dataset.groups.tolist()]
        person = _GROUP
    shards = (
        int.from_bytes(
            hashlib.blake2b(unit, digest_size=_DIGEST_BYTES, key=key, person=person).digest(), "big"
        )
        % teachers
        for unit in units
    )
    return np.fromiter(shards, dtype=np.int64, count=len(units))


def split(
    dataset: Dataset, hashes: Sequence[bytes], teachers: int, key: bytes
) -> list[NDArray[np.int64]]:
    """Return the records of each teacher, in an order of their content: not of their places in a file."""
    shards = assign_shards(dataset, teachers, key, row_hashes=hashes)
    order = np.array(sorted(range(len(hashes)), key=hashes.__getitem__), dtype=np.int64)
    together = order[np.argsort(shards[order], kind="stable")]
    bounds = np.searchsorted(np.sort(shards), np.arange(teachers + 1))
    return [together[start:end] for start, end in itertools.pairwise(bounds.tolist())]


def seed_of(key: bytes, number: int) -> int:
    """Return the 63 bits that decide the randomness of a teacher."""
    return _derive(key, f"teacher {number}")


def idle_column(key: bytes, number: int, classes: int) -> int:
    """Return the column of a teacher without an answer; see :class:`party.teachers.protocol.Constant`."""
    return _derive(key, f"idle {number}") % classes


def fingerprint_of(
    dataset: Dataset, hashes: Sequence[bytes], teachers: int, kind: Described, key: bytes
) -> bytes:
    """Return the SHA-256 digest of everything that determines the teachers."""
    whole = hashlib.sha256(b"pate teachers v1\0")
    settings = [dataset.inputs.schema(), str(teachers), kind.name, kind.version, *dataset.classes]
    settings.append("record" if dataset.groups is None else "patient")
    for text in settings:
        whole.update(hashlib.sha256(text.encode()).digest())
    whole.update(hashlib.blake2b(b"fingerprint", key=key, digest_size=32).digest())
    records = hashes
    if dataset.groups is not None:
        groups = dataset.groups.tolist()
        records = [
            row + hashlib.sha256(group.encode()).digest()
            for row, group in zip(hashes, groups, strict=True)
        ]
    for record in sorted(records):
        whole.update(record)
    return whole.digest()


def _derive(key: bytes, purpose: str) -> int:
    """Return 63 bits that depend only on the key and the purpose."""
    digest = hashlib.blake2b(purpose.encode(), key=key, digest_size=8, person=b"pate teachers")
    return int.from_bytes(digest.digest(), "big") >> 1
