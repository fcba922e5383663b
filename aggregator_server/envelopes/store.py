"""What a campaign sent by envelope and received, durable: it continues after any interruption.

One SQLite file in the campaign's folder. A request is known by the digest of its bytes, which are the
same whenever it is made again; so a server that is started again finds what it had asked, and the
replies that have come. A request that was closed is not waited for any more, ever: its reply is late.

Replies with votes are stored for as long as their sum is not in the campaign's ledger. Then they are
deleted; the digests and dates of the files stay, so that an answer that comes again is known.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from aggregator_server.envelopes.out import Out
from aggregator_server.envelopes.schema import (
    APPLICATION,
    BY_NAME,
    LAST,
    OUT,
    SCHEMA,
    WAITED_FOR,
)
from pate.envelopes.manifest import Manifest, Part, text_of
from pate.errors import ProtocolError, StateError
from pate.storage.durable_file import DurableFile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

#: Name of the file in a campaign's folder.
FILE: Final = "envelopes.db"
#: Kind of a request for bundles in the first envelope, which is always waited for.
EARLY: Final = "early_bundles"
#: Requests that are asked once, whatever else is asked; any other one ends those before it.
STANDING: Final = ("describe", "public_piece", EARLY)


class Store:
    """The requests, envelopes and replies of one campaign.

    Args:
        path: of the file.
        days: how long an envelope may be answered; None: no end.
        clock: UTC.
        read_only: for reading, also while a server runs.
    """

    def __init__(
        self,
        path: Path,
        *,
        days: float | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._file = DurableFile(path, SCHEMA, APPLICATION, read_only=read_only, overwrite=True)
        self._days = days
        self._clock = clock

    # --- requests ----------------------------------------------------------------------------

    def ask(self, party: str, body: bytes, kind: str) -> bytes | None:
        """Record a request; return its reply if there is one already.

        A step of a sum, or the end of the campaign, ends what was asked of the party before.
        """
        digest = hashlib.sha256(body).digest()
        with self._file.writing() as db:
            found = db.execute(
                "SELECT reply FROM requests WHERE party = ? AND digest = ?", (party, digest)
            ).fetchone()
            if found is not None:
                reply: bytes | None = found[0]
                return reply
            if kind not in STANDING:
                db.execute(
                    "UPDATE requests SET closed = 1 WHERE party = ? AND reply IS NULL "
                    "AND kind NOT IN (?, ?, ?)",
                    (party, *STANDING),
                )
            db.execute("INSERT OR IGNORE INTO bodies VALUES (?, ?)", (digest, body))
            db.execute(
                "INSERT INTO requests (party, digest, kind) VALUES (?, ?, ?)", (party, digest, kind)
            )
        return None

    def closed(self) -> set[tuple[str, bytes]]:
        """Return the requests without reply that are not waited for, by party and digest."""
        with self._file.reading() as db:
            return set(
                db.execute("SELECT party, digest FROM requests WHERE closed = 1 AND reply IS NULL")
            )

    def end_wait(self) -> list[str]:
        """Have the wait for the steps of sums that are out end at the server's next look.

        Then it takes in what lies in its inbox, and calls :meth:`close_due`.

        Returns:
            The names of the parties that have not answered them.
        """
        with self._file.writing() as db:
            rows = db.execute(WAITED_FOR).fetchall()
            db.executemany("UPDATE requests SET closed = 2 WHERE id = ?", [row[:1] for row in rows])
        return sorted({party for _, party, _, _ in rows})

    def close_due(self) -> list[tuple[str, bool]]:
        """Stop waiting, durably, for what a date or :meth:`end_wait` ended.

        Call it after all that lies in the inbox was taken in: an answer there is in time.

        Returns:
            Name of each party, and whether a date ended the wait.
        """
        now = text_of(self._clock())
        with self._file.writing() as db:
            rows = db.execute(
                WAITED_FOR + " AND (r.closed = 2 OR (e.until != '' AND e.until < ?))", (now,)
            ).fetchall()
            db.executemany("UPDATE requests SET closed = 1 WHERE id = ?", [row[:1] for row in rows])
        return sorted({(party, closed != 2) for _, party, closed, _ in rows})

    # --- sums ---------------------------------------------------------------------------------

    def begin_sum(self, place: int | None) -> None:
        """Delete the replies to all other sums, which are in the ledger.

        Of what is deleted the file keeps no bytes: it is overwritten.

        Args:
            place: of the first query of the batch that is to be summed, or was being summed when the
                process ended; None: all sums are in the ledger.

        Raises:
            StateError: if the replies to this one are deleted: the ledger is older than this file.
        """
        with self._file.writing() as db:
            found = db.execute("SELECT over FROM sums WHERE place = ?", (place,)).fetchone()
            if found is not None and found[0]:
                raise StateError(
                    f"the sum of the queries from place {place} on was in the ledger before, and the "
                    f"replies to it are deleted from {self.path}: the ledger was put back to an "
                    "earlier state, and this campaign cannot be continued"
                )
            if found is not None:
                return
            _delete_replies(db, bundles=place is None)
            db.execute("UPDATE sums SET over = 1")
            # Never without a state and not over: then its number would be used again.
            db.execute(
                "UPDATE rounds SET over = 1, state = NULL WHERE place IN (SELECT place FROM sums)"
            )
            if place is not None:
                db.execute("INSERT INTO sums (place) VALUES (?)", (place,))

    # --- rounds of masked sums ---------------------------------------------------------------

    def round(self, place: int) -> tuple[int, bytes | None]:
        """Return number and state of a batch's round; a new one, without a state, is numbered.

        No number is given twice: the bundles of a number are used once.
        """
        with self._file.writing() as db:
            row = db.execute(
                "SELECT number, state FROM rounds WHERE place = ? AND NOT over", (place,)
            ).fetchone()
            if row is not None:
                return row[0], row[1]
            made = db.execute(
                "INSERT INTO rounds (number, place) "
                "SELECT coalesce(max(number) + 1, 0), ? FROM rounds RETURNING number",
                (place,),
            ).fetchone()
            return made[0], None

    def save_round(self, number: int, state: bytes) -> None:
        """Store the state of a round."""
        with self._file.writing() as db:
            db.execute("UPDATE rounds SET state = ? WHERE number = ?", (state, number))

    def end_round(self, place: int) -> None:
        """Record that a batch's round is given up, and delete the replies to it."""
        with self._file.writing() as db:
            db.execute("UPDATE rounds SET over = 1, state = NULL WHERE place = ?", (place,))
            _delete_replies(db)

    # --- envelopes ---------------------------------------------------------------------------

    def due(self, parties: Sequence[str]) -> list[Out]:
        """Return the envelopes that must be outside: new ones are made, and old ones ended.

        A party has one envelope at a time, with all that it is asked.
        """
        found = []
        with self._file.writing() as db:
            for party in parties:
                wanted = _ids(
                    db.execute(
                        "SELECT id FROM requests WHERE party = ? AND reply IS NULL AND closed != 1 "
                        "ORDER BY id",
                        (party,),
                    )
                )
                last = _newest(db, party)
                held = [] if last is None or last.over else _contents(db, party, last.number)
                if wanted != held:
                    db.execute("UPDATE envelopes SET over = 1 WHERE party = ?", (party,))
                    last = self._new(db, party, last, wanted) if wanted else None
                if last is not None and not last.over:
                    found.append(last)
        return found

    def _new(
        self, db: sqlite3.Connection, party: str, last: Out | None, wanted: Sequence[int]
    ) -> Out:
        now = self._clock()
        until = "" if self._days is None else text_of(now + timedelta(days=self._days))
        number = 1 if last is None else last.number + 1
        db.execute(
            "INSERT INTO envelopes (party, number, until, made) VALUES (?, ?, ?, ?)",
            (party, number, until, text_of(now)),
        )
        db.executemany(
            "INSERT INTO contents VALUES (?, ?, ?, ?)",
            [(party, number, at, id_) for at, id_ in enumerate(wanted)],
        )
        made = _newest(db, party)
        if made is None:
            raise StateError(f"{self.path} does not hold what was written")
        return made

    def note(self, out: Out, file: bytes) -> None:
        """Record the SHA-256 of an envelope's file, which is to appear."""
        with self._file.writing() as db:
            db.execute(
                "UPDATE envelopes SET file = ? WHERE party = ? AND number = ?",
                (file, out.party, out.number),
            )

    def parts(self, out: Out) -> tuple[Part, ...]:
        """Return the sizes and digests of an envelope's messages."""
        with self._file.reading() as db:
            rows = db.execute(
                "SELECT length(b.body), b.digest FROM contents c JOIN requests r "
                "ON r.id = c.request JOIN bodies b ON b.digest = r.digest "
                "WHERE c.party = ? AND c.number = ? ORDER BY c.position",
                (out.party, out.number),
            )
            return tuple(Part(size, digest) for size, digest in rows)

    def bodies(self, parts: Sequence[Part]) -> Iterator[bytes]:
        """Yield messages, one in memory at a time."""
        for part in parts:
            with self._file.reading() as db:
                found = db.execute(
                    "SELECT body FROM bodies WHERE digest = ?", (part.digest,)
                ).fetchone()
            yield found[0]

    def envelopes(self) -> list[Out]:
        """Return all envelopes, in the order of parties and numbers."""
        with self._file.reading() as db:
            return [_out(row) for row in db.execute(OUT + BY_NAME)]

    def newest(self) -> list[Out]:
        """Return the last envelope for each party, in the order of their names."""
        with self._file.reading() as db:
            return [_out(row) for row in db.execute(OUT + LAST)]

    # --- answers -----------------------------------------------------------------------------

    def answered(self, manifest: Manifest) -> Out:
        """Return the envelope that an answer is to.

        Raises:
            ProtocolError: if there is no such envelope, or it asked for another number of replies.
        """
        with self._file.reading() as db:
            row = db.execute(
                OUT + " WHERE party = ? AND file = ?", (manifest.party, manifest.answers)
            ).fetchone()
            if row is None:
                raise ProtocolError(f"it answers no envelope of this campaign for {manifest.party}")
            out = _out(row)
            held = _contents(db, out.party, out.number)
        if len(held) != len(manifest.parts):
            raise ProtocolError(f"{len(manifest.parts)} replies to {len(held)} requests")
        return out

    def kinds(self, out: Out) -> list[str]:
        """Return the field of each request of an envelope, in their order."""
        with self._file.reading() as db:
            return [
                kind
                for (kind,) in db.execute(
                    "SELECT r.kind FROM contents c JOIN requests r ON r.id = c.request "
                    "WHERE c.party = ? AND c.number = ? ORDER BY c.position",
                    (out.party, out.number),
                )
            ]

    def take(
        self, out: Out, digest: bytes, key: bytes, replies: Sequence[bytes]
    ) -> list[tuple[bytes, bytes]] | None:
        """Record an answer; return (digest of the request, reply) of what it answers in time.

        Args:
            out: the envelope that it answers.
            digest: SHA-256 of the answer's file.
            key: identity key of the party.
            replies: in the order of the requests.

        Returns:
            None if this answer was taken before.

        Raises:
            ProtocolError: if another one was, or the party had another key before.
        """
        taken = []
        with self._file.writing() as db:
            before = db.execute(
                "SELECT answer FROM envelopes WHERE party = ? AND number = ?",
                (out.party, out.number),
            ).fetchone()[0]
            if before == digest:
                return None
            if before is not None:
                raise ProtocolError(
                    f"another answer of {out.party} to envelope {out.number} came before; that counts"
                )
            known = db.execute(
                "SELECT key FROM identities WHERE party = ?", (out.party,)
            ).fetchone()
            if known is not None and known[0] != key:
                raise ProtocolError(f"signed by another key than {out.party} had before")
            db.execute("INSERT OR IGNORE INTO identities VALUES (?, ?)", (out.party, key))
            late = False
            for id_, reply in zip(_contents(db, out.party, out.number), replies, strict=True):
                request, closed = db.execute(
                    "SELECT digest, closed FROM requests WHERE id = ? AND reply IS NULL", (id_,)
                ).fetchone() or (None, 0)
                late |= closed == 1
                if request is not None and closed != 1:
                    db.execute(
                        "UPDATE requests SET reply = ?, closed = 0 WHERE id = ?", (reply, id_)
                    )
                    taken.append((request, reply))
            db.execute(
                "UPDATE envelopes SET answer = ?, answered = ?, late = ? "
                "WHERE party = ? AND number = ?",
                (digest, text_of(self._clock()), late, out.party, out.number),
            )
        return taken


def _delete_replies(db: sqlite3.Connection, *, bundles: bool = False) -> None:
    """Delete the replies to the steps of sums, and ask none of these steps again.

    Args:
        db: in a transaction.
        bundles: those with keys ahead, too, which have no votes and may be for a later sum.
    """
    db.execute(
        "UPDATE requests SET reply = NULL, closed = 1 "
        "WHERE reply IS NOT NULL AND ((kind LIKE 'ask%' AND kind != 'ask_bundles') "
        "OR (? AND kind IN ('ask_bundles', ?)))",
        (bundles, EARLY),
    )


def _newest(db: sqlite3.Connection, party: str) -> Out | None:
    row = db.execute(OUT + " WHERE party = ? ORDER BY number DESC LIMIT 1", (party,)).fetchone()
    return None if row is None else _out(row)


def _out(row: tuple[Any, ...]) -> Out:
    party, number, until, made, file, answered, late, over, asks, closing = row
    return Out(
        party,
        number,
        until,
        made,
        file,
        answered,
        bool(late),
        bool(over),
        asks or "",
        bool(closing),
    )


def _contents(db: sqlite3.Connection, party: str, number: int) -> list[int]:
    return _ids(
        db.execute(
            "SELECT request FROM contents WHERE party = ? AND number = ? ORDER BY position",
            (party, number),
        )
    )


def _ids(rows: sqlite3.Cursor) -> list[int]:
    return [id_ for (id_,) in rows]
