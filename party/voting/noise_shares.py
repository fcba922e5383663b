"""A party's noise shares: one per campaign and batch, stored permanently.

A repeated batch gets the same votes and the same noise. With fresh noise each time the server could
average it out, or compute one party's votes from two sums over the same rows. A share is therefore
durable before the answer is in the ledger, so an answer without a share means that the share is
lost, and it is not replaced: without the file no earlier batch can be answered again. It is as
secret as the votes themselves.

A share belongs to the votes that it hides: with other votes, or the same in another order, the
difference of the two sums would be noise-free. So it is not used for them.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import AccountingError, RefusedError, StateError, UsageError
from pate.runtime.failpoints import reach
from pate.storage.durable_file import DurableFile
from pate.storage.entries import append_only

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.campaign.offer import Offer
    from pate.noise.exact import NoiseInShares
    from pate.votes import Counts
    from protos.pate.v1 import vote_pb2

#: "patn" in ASCII.
_APPLICATION_ID: Final = 0x7061746E
_SCHEMA: Final = (
    (
        "CREATE TABLE shares (campaign BLOB NOT NULL, batch BLOB NOT NULL, rows INTEGER NOT NULL, "
        "classes INTEGER NOT NULL, votes BLOB NOT NULL, noise BLOB NOT NULL, digest BLOB NOT NULL, "
        "PRIMARY KEY (campaign, batch)) STRICT"
    ),
    *append_only("shares", "noise shares are kept as they are"),
)
#: Largest share on disk, below SQLite's limit of one value.
_MOST_CELLS: Final = 2**27
_RANGE: Final = np.iinfo(np.int32)


class NoiseShares:
    """Integer noise on disk, by campaign and batch, in a file that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._file = DurableFile(path, _SCHEMA, _APPLICATION_ID)

    def share(
        self,
        campaign: bytes,
        batch: bytes,
        votes: NDArray[np.int64],
        draw: Callable[[int], NDArray[np.int64]],
        *,
        answered: bool,
    ) -> NDArray[np.int64]:
        """Return the noise that this party adds to the votes on a batch: drawn once, then always the same.

        If the batch is answered in the ledger there must be a share, or it is lost.
        """
        if votes.ndim != 2 or votes.dtype != np.int64:
            raise UsageError(f"votes are {votes.dtype} of shape {votes.shape}")
        rows, classes = shape = votes.shape
        if rows < 1 or classes < 1 or rows * classes > _MOST_CELLS:
            raise UsageError(f"there is no noise share of shape {shape}")
        hidden = hashlib.sha256(b"pate hidden votes v1\0" + votes.astype("<i8").tobytes()).digest()
        with self._file.writing() as db:
            stored = db.execute(
                "SELECT rows, classes, votes, noise, digest FROM shares WHERE campaign = ? AND batch = ?",
                (campaign, batch),
            ).fetchone()
            if stored is None and answered:
                raise RefusedError(
                    f"batch {batch.hex()[:8]} was answered, and {self._file.path} has no noise for it: "
                    "other noise for the same votes would reveal more than is charged; restore "
                    "the file from a backup that is not older than the answer"
                )
            if stored is None:
                noise = _packed(draw(rows * classes), rows * classes)
                reach("noise-share-drawn")
                digest = _digest(campaign, batch, shape, hidden, noise)
                stored = (rows, classes, hidden, noise, digest)
                db.execute(
                    "INSERT INTO shares VALUES (?, ?, ?, ?, ?, ?, ?)", (campaign, batch, *stored)
                )
        reach("noise-share-kept")
        return self._checked(campaign, batch, shape, hidden, stored)

    def _checked(
        self,
        campaign: bytes,
        batch: bytes,
        shape: tuple[int, int],
        hidden: bytes,
        stored: tuple[int, int, bytes, bytes, bytes],
    ) -> NDArray[np.int64]:
        rows, classes, before, noise, digest = stored
        if digest != _digest(campaign, batch, (rows, classes), before, noise):
            raise StateError(
                f"{self._file.path} is damaged; restore it from a backup: with other noise for a "
                "batch that was answered before, votes could be told"
            )
        if (rows, classes) != shape:
            raise RefusedError(
                f"batch {batch.hex()[:8]} had {rows} rows of {classes} classes before, now it is "
                f"said to have {shape[0]} of {shape[1]}"
            )
        if not hmac.compare_digest(before, hidden):
            raise RefusedError(
                f"our votes on batch {batch.hex()[:8]} are not those that its noise hid before: "
                "the two sums together would reveal votes without noise"
            )
        if len(noise) != 4 * rows * classes:
            raise StateError(f"{self._file.path} is damaged: a share of another length")
        return np.frombuffer(noise, dtype="<i4").reshape(shape).astype(np.int64)


def with_noise(
    offer: Offer,
    batch: vote_pb2.Batch,
    votes: Counts,
    stored: NoiseShares,
    noise: NoiseInShares,
    *,
    answered: bool,
) -> Counts:
    """Return votes with this party's noise share, if the campaign uses them."""
    law = offer.require_settled().shares(batch.round)
    if law is None:
        return votes
    found: Counts = votes + stored.share(
        bytes.fromhex(offer.campaign),
        batch.digest,
        votes,
        lambda cells: law.draw(noise, cells),
        answered=answered,
    )
    return found


def _packed(drawn: NDArray[np.int64], cells: int) -> bytes:
    if drawn.shape != (cells,) or drawn.dtype != np.int64:
        raise UsageError(f"{cells} int64 draws are wanted, got {drawn.dtype} {drawn.shape}")
    if int(drawn.min()) < _RANGE.min or int(drawn.max()) > _RANGE.max:
        raise AccountingError("a draw of noise that 32 bits cannot hold")
    return drawn.astype("<i4").tobytes()


def _digest(
    campaign: bytes, batch: bytes, shape: tuple[int, int], votes: bytes, noise: bytes
) -> bytes:
    whole = hashlib.sha256(b"pate noise share v1\0")
    for part in (campaign, batch, *(number.to_bytes(8, "big") for number in shape), votes, noise):
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.digest()
