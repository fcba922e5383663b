"""Votes of a party's teachers, or of its records, on a batch, and its noise: once, then stored.

A stored vote is found by the hash of the query, and by all that it depends on besides: so a repeated
query gets the same votes. Votes of one release are found by their place, too: a row of an array is not
a vote on an input, and rows of queries that are alike to us differ.

A noise share is stored permanently, one per campaign and batch: a repeated batch gets the same noise. With
fresh noise each time the server could
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
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from party.voting.neighbour import NeighbourVotes
from pate.codes import NEAREST, code_of
from pate.errors import AccountingError, DiskError, RefusedError, StateError, UsageError
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory
from pate.storage.durable_file import DurableFile
from pate.storage.ledger import append_only
from protos.masked import shown_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from party.voting.voters import Ensemble, SeriesVoters
    from pate.campaign.offer import Offer
    from pate.data.values import Inputs
    from pate.noise.exact import NoiseInShares
    from pate.votes import Counts
    from protos.pate.v1 import vote_pb2

#: Queries per SQL statement.
_AT_A_TIME: Final = 500
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


@dataclass(frozen=True)
class Casting:
    """How votes on a batch are computed.

    ``source`` is a digest of all that they depend on, besides the queries; ``compute`` returns the
    votes on queries at (n,) places in the batch. ``together``: they are cast on the whole batch at once.
    """

    source: bytes
    compute: Callable[[NDArray[np.int64]], Counts]
    together: bool

    @classmethod
    def of(
        cls,
        who: Ensemble | NeighbourVotes,
        public: Inputs,
        batch: vote_pb2.Batch,
        offer: Offer,
        voters: SeriesVoters | None = None,
    ) -> Casting:
        """Return how our teachers, or our records, vote on a batch of a public set.

        Where teachers answer query by query, a vote depends on the query, and of several labels on how many
        of them count. One release is cast on the whole batch: it depends on all its queries, the public set
        and the code; of records also on limits and clipping, in rounds on the model that is shown, which
        the batch's digest covers, and in a series on who votes. Stored votes must match all of these.
        """
        campaign = offer.announced
        code, public_set = code_of(campaign.code), bytes.fromhex(campaign.public_set)
        about = b"" if campaign.code == NEAREST else campaign.code.encode()
        classes, rows = campaign.classes or (), tuple(batch.rows)
        cap = votes_per_patient(offer) if campaign.records_vote else None
        most = campaign.most_votes or 0
        together = campaign.one_release and not code.answer.of

        def cast(some: Sequence[int]) -> Counts:
            if not isinstance(who, NeighbourVotes):
                return who.vote(public, some, classes, code)
            return who.vote(
                public, some, classes, code=code, votes_per_patient=cap, most_votes=most,
                voters=None if voters is None else voters.rows, shown=shown_in(batch, len(classes)),
            )  # fmt: skip

        def compute(at: NDArray[np.int64]) -> Counts:
            return cast(rows)[at] if together else cast([rows[place] for place in at.tolist()])

        if isinstance(who, NeighbourVotes):
            about = b"".join((batch.digest, public_set, f"{cap} {most}".encode(), about))
            about += b"" if voters is None else b"".join(voters.units)
        elif together:
            about += batch.digest + public_set
        source = hashlib.sha256(who.fingerprint + about).digest() if about else who.fingerprint
        return cls(source, compute, together)

    def votes(self, store: Path, classes: tuple[str, ...], hashes: Sequence[bytes]) -> Counts:
        """Return the votes on a batch; those that are stored are not computed again."""
        if self.together:
            hashes = [
                hashlib.sha256(b"pate placed query v1\0" + at.to_bytes(8, "big") + each).digest()
                for at, each in enumerate(hashes)
            ]
        cache = VoteCache(store, ensemble=self.source, classes=classes)
        return cache.votes(hashes, self.compute, before_store=lambda: reach("voting"))


def votes_per_patient(offer: Offer) -> int | None:
    """Return the charged votes per patient. None: each record has one."""
    return offer.require_settled().votes_per_unit if offer.announced.unit == "patient" else None


class VoteCache:
    """Vote vectors on disk, by the hash of the query.

    A vote belongs to a query, a class list and an ensemble: ``ensemble`` changes when the
    party's data or settings do, and then a campaign over the same public set gets new votes.
    """

    def __init__(self, path: Path, *, ensemble: bytes, classes: Sequence[str]) -> None:
        private_directory(path.parent)
        self._path = path
        self._classes = len(classes)
        key = hashlib.sha256(ensemble)
        for name in classes:
            key.update(len(name.encode()).to_bytes(4, "big") + name.encode())
        self._key = key.digest()
        try:
            path.touch(mode=0o600)
        except OSError as error:
            raise DiskError(f"cannot write {path}: {error.strerror}") from error
        with self._transaction() as db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS votes (key BLOB NOT NULL, query BLOB NOT NULL, "
                "counts BLOB NOT NULL, PRIMARY KEY (key, query)) WITHOUT ROWID"
            )

    def votes(
        self,
        queries: Sequence[bytes],
        compute: Callable[[NDArray[np.int64]], Counts],
        before_store: Callable[[], None] = lambda: None,
    ) -> Counts:
        """Return (queries, classes) int64 votes by row hashes, computing and storing missing ones.

        ``compute`` gets the positions that are missing; ``before_store`` is called between the two.
        """
        stored = self._load(queries)
        missing = [at for at, query in enumerate(queries) if query not in stored]
        if missing:
            made = compute(np.array(missing, dtype=np.int64)).astype("<i8")
            before_store()
            fresh = {queries[at]: row.tobytes() for at, row in zip(missing, made, strict=True)}
            with self._transaction() as db:
                db.executemany(
                    "INSERT OR IGNORE INTO votes VALUES (?, ?, ?)",
                    [(self._key, query, counts) for query, counts in fresh.items()],
                )
            reach("votes-cached")
            stored |= fresh
        packed = b"".join(stored[query] for query in queries)
        if len(packed) != len(queries) * self._classes * 8:
            raise StateError(f"{self._path} is damaged; remove it, and the votes are recomputed")
        return (
            np.frombuffer(packed, dtype="<i8").reshape(len(queries), self._classes).astype(np.int64)
        )

    def _load(self, queries: Sequence[bytes]) -> dict[bytes, bytes]:
        # By the queries, since the file may have votes on many more.
        stored: dict[bytes, bytes] = {}
        with self._transaction() as db:
            for first in range(0, len(queries), _AT_A_TIME):
                some = queries[first : first + _AT_A_TIME]
                stored.update(
                    db.execute(
                        "SELECT query, counts FROM votes WHERE key = ? AND query IN "  # noqa: S608
                        f"({', '.join('?' * len(some))})",  # question marks alone
                        (self._key, *some),
                    )
                )
        return stored

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One connection, one transaction, with translated errors of SQLite."""
        try:
            with closing(sqlite3.connect(self._path, timeout=30)) as db, db:
                yield db
        except sqlite3.OperationalError as error:
            raise DiskError(f"cannot use {self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StateError(
                f"{self._path} is damaged ({error}); remove it to recompute the votes"
            ) from error


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
