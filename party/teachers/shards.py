"""The assignment of records to teachers.

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
:class:`party.teachers.constant.Constant` for how its teacher votes.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

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


def assign_shards(
    dataset: Dataset, teachers: int, key: bytes, *, row_hashes: Sequence[bytes] | None = None
) -> NDArray[np.int64]:
    """Return the shard of each record.

    Args:
        dataset: n records; with groups, all records of a group share a shard.
        teachers: k, the number of shards.
        key: the party's secret, at most 64 bytes; the same key gives the same shards.
        row_hashes: ``dataset.row_hashes()`` if the caller has them already.

    Returns:
        (n,) int64, from 0 to k - 1.

    Raises:
        UsageError: if ``teachers`` is less than one.
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
