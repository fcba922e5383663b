"""The durable requests of a campaign, to parties by envelope, with their replies and envelopes.

One SQLite file in the campaign's folder. A request is known by its party and the SHA-256 of its bytes,
which are the same whenever it is made again; so a server that is started again finds what it had asked,
and the replies that have come. It is answered once, or closed: then its reply is late, permanently.

Replies with votes are stored for as long as their sum is not in the campaign's ledger. Then they are
deleted; the digests and dates of the files stay, so that an answer that comes again is known.
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from aggregator_server.exchange.presence import Out
from pate.envelopes import Manifest, Part, text_of
from pate.errors import ProtocolError, StateError
from pate.storage.durable_file import DurableFile
from protos.bounds import ID_BYTES

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
_APPLICATION: Final = 0x50415445 ^ 0x656E76
SCHEMA: Final = (
    "CREATE TABLE bodies (digest BLOB PRIMARY KEY, body BLOB NOT NULL) STRICT",
    # kind: the field of the request; closed: 1: not waited for any more, 2: until the next look.
    """CREATE TABLE requests (id INTEGER PRIMARY KEY, party TEXT NOT NULL, digest BLOB NOT NULL,
    kind TEXT NOT NULL, reply BLOB, closed INTEGER NOT NULL DEFAULT 0, UNIQUE (party, digest))
    STRICT""",
    # file: SHA-256 of it, noted before it appears; answer: SHA-256 of the answer's file; late: it
    # came after something that it answers was closed.
    """CREATE TABLE envelopes (party TEXT NOT NULL, number INTEGER NOT NULL, until TEXT NOT NULL,
    made TEXT NOT NULL, file BLOB, answer BLOB, answered TEXT, late INTEGER NOT NULL DEFAULT 0,
    over INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (party, number)) STRICT""",
    """CREATE TABLE contents (party TEXT NOT NULL, number INTEGER NOT NULL,
    position INTEGER NOT NULL, request INTEGER NOT NULL REFERENCES requests (id),
    PRIMARY KEY (party, number, position)) STRICT""",
    "CREATE TABLE identities (party TEXT PRIMARY KEY, key BLOB NOT NULL) STRICT",
    # place: of the batch's first query; state: of the round, once it was begun.
    """CREATE TABLE rounds (number INTEGER PRIMARY KEY, place INTEGER NOT NULL, state BLOB,
    over INTEGER NOT NULL DEFAULT 0) STRICT""",
    # place: of a batch's first query; over: its sum is in the ledger, and its replies are deleted.
    "CREATE TABLE sums (place INTEGER PRIMARY KEY, over INTEGER NOT NULL DEFAULT 0) STRICT",
)
#: Open requests of steps of sums that are out, with their party and whether they are closing.
_STEPS_OUT: Final = """SELECT DISTINCT r.id, r.party, r.closed FROM requests r
    JOIN contents c ON c.request = r.id
    JOIN envelopes e ON e.party = c.party AND e.number = c.number
    WHERE r.reply IS NULL AND r.closed != 1 AND r.kind LIKE 'ask%' AND NOT e.over"""
#: What an envelope holds, in order.
_HELD: Final = """FROM contents c JOIN requests r ON r.id = c.request
    WHERE c.party = ? AND c.number = ? ORDER BY c.position"""
#: The columns of an envelope, in the order of the fields of :class:`Out`.
_OUT: Final = """SELECT e.party, e.number, e.until, e.made, e.file, e.answered, e.late, e.over,
    (SELECT r.kind FROM contents c JOIN requests r ON r.id = c.request
        WHERE c.party = e.party AND c.number = e.number ORDER BY c.position DESC LIMIT 1),
    EXISTS (SELECT 1 FROM contents c JOIN requests r ON r.id = c.request
        WHERE c.party = e.party AND c.number = e.number AND r.closed = 2 AND r.reply IS NULL)
    FROM envelopes e"""
_LAST: Final = "number = (SELECT max(number) FROM envelopes o WHERE o.party = e.party)"


class Store:
    """The requests, replies and envelopes of one campaign."""

    def __init__(
        self,
        path: Path,
        parties: Sequence[str] = (),  # names of those that take part by envelope
        *,
        # of this campaign: the nonce of a request is a keyed hash of its bytes
        nonce_key: bytes = b"",
        days: float | None = None,  # how long an envelope may be answered; None: no end
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),  # UTC
        read_only: bool = False,  # for reading, also while a server runs
    ) -> None:
        self.path = path
        # of the parties, by node; a node is below 0, so that it is none of Flower's
        self.names = {-1 - at: name for at, name in enumerate(sorted(parties))}
        self._file = DurableFile(path, SCHEMA, _APPLICATION, read_only=read_only, overwrite=True)
        self._nonce_key = nonce_key
        self._days = days
        self._clock = clock

    # --- requests ----------------------------------------------------------------------------

    def nonce(self, request: bytes) -> bytes:
        """Return the nonce of a request, the same each time that it is made."""
        return hmac.digest(self._nonce_key, request, "sha256")[:ID_BYTES]

    def ask(self, party: str, digest: bytes, body: bytes, kind: str) -> bytes | None:
        """Record a request, which closes earlier ones unless it is standing; return its reply if there."""
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

    def waiting(self) -> frozenset[tuple[str, bytes]]:
        """Return the requests that are neither answered nor closed, by party and digest."""
        with self._file.reading() as db:
            found = "SELECT party, digest FROM requests WHERE reply IS NULL AND closed != 1"
            return frozenset(db.execute(found))

    def end_wait(self) -> list[str]:
        """End the wait for steps that are out, at the next look into the inbox; return who did not answer."""
        with self._file.writing() as db:
            rows = db.execute(_STEPS_OUT).fetchall()
            db.executemany("UPDATE requests SET closed = 2 WHERE id = ?", [row[:1] for row in rows])
        return sorted({party for _, party, _ in rows})

    def close_due(self) -> list[tuple[str, bool]]:
        """Close what a date (True) or :meth:`end_wait` ended, by party; an answer in the inbox is in time."""
        now = text_of(self._clock())
        with self._file.writing() as db:
            rows = db.execute(
                _STEPS_OUT + " AND (r.closed = 2 OR (e.until != '' AND e.until < ?))", (now,)
            ).fetchall()
            db.executemany("UPDATE requests SET closed = 1 WHERE id = ?", [row[:1] for row in rows])
        return sorted({(party, closed != 2) for _, party, closed in rows})

    # --- sums ---------------------------------------------------------------------------------

    def begin_sum(self, place: int | None) -> None:
        """Delete the replies to all other sums, which are in the ledger, and overwrite their bytes.

        ``place``: of the first query of the batch that is to be summed, or was being summed when
        the process ended; None: all sums are in the ledger.
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

    def round(self, place: int) -> tuple[int, bytes | None]:
        """Return number and state of a batch's masked sum. A new one has a number that none had before."""
        with self._file.writing() as db:
            found = db.execute(
                "SELECT number, state FROM rounds WHERE place = ? AND NOT over", (place,)
            ).fetchone()
            if found is None:
                found = db.execute(
                    "INSERT INTO rounds (number, place) "
                    "SELECT coalesce(max(number) + 1, 0), ? FROM rounds RETURNING number, state",
                    (place,),
                ).fetchone()
            return found[0], found[1]

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

    def due(self) -> list[Out]:
        """Return the envelopes that must be outside, one a party with all that it is asked; others end."""
        found = []
        with self._file.writing() as db:
            for party in self.names.values():
                asked = db.execute(
                    "SELECT id FROM requests WHERE party = ? AND reply IS NULL AND closed != 1 "
                    "ORDER BY id",
                    (party,),
                )
                wanted = [id_ for (id_,) in asked]
                last = _newest(db, party)
                held = [] if last is None or last.over else _held(db, last)
                if wanted != held:
                    db.execute("UPDATE envelopes SET over = 1 WHERE party = ?", (party,))
                    last = self._new(db, party, last, wanted) if wanted else None
                if last is not None and not last.over:
                    found.append(last)
        return found

    def _new(
        self, db: sqlite3.Connection, party: str, last: Out | None, wanted: Sequence[int]
    ) -> Out | None:
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
        return _newest(db, party)

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
            sizes = (
                "SELECT (SELECT length(body) FROM bodies b WHERE b.digest = r.digest), r.digest "
            )
            rows = db.execute(sizes + _HELD, (out.party, out.number))
            return tuple(Part(size, digest) for size, digest in rows)

    def bodies(self, parts: Sequence[Part]) -> Iterator[bytes]:
        """Yield messages, one in memory at a time."""
        for part in parts:
            with self._file.reading() as db:
                found = db.execute("SELECT body FROM bodies WHERE digest = ?", (part.digest,))
                (body,) = found.fetchone()
            yield body

    def envelopes(self) -> list[Out]:
        """Return all envelopes, in the order of parties and numbers."""
        with self._file.reading() as db:
            return [_out(row) for row in db.execute(_OUT + " ORDER BY party, number")]

    def newest(self) -> list[Out]:
        """Return the last envelope for each party, in the order of their names."""
        with self._file.reading() as db:
            return [_out(row) for row in db.execute(f"{_OUT} WHERE {_LAST} ORDER BY party")]

    # --- answers -----------------------------------------------------------------------------

    def answered(self, manifest: Manifest) -> tuple[Out, list[str]]:
        """Return the envelope that an answer is to, and the field of each request of it, in order."""
        with self._file.reading() as db:
            row = db.execute(
                _OUT + " WHERE party = ? AND file = ?", (manifest.party, manifest.answers)
            ).fetchone()
            if row is None:
                raise ProtocolError(f"it answers no envelope of this campaign for {manifest.party}")
            out = _out(row)
            held = db.execute("SELECT r.kind " + _HELD, (out.party, out.number))
            kinds = [kind for (kind,) in held]
        if len(kinds) != len(manifest.parts):
            raise ProtocolError(f"{len(manifest.parts)} replies to {len(kinds)} requests")
        return out, kinds

    def take(
        self, out: Out, digest: bytes, key: bytes, replies: Sequence[bytes]
    ) -> list[tuple[bytes, bytes]] | None:
        """Record an answer; return (request's digest, reply) of all in time, None if it was taken before."""
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
            for id_, reply in zip(_held(db, out), replies, strict=True):
                request, closed, is_answered = db.execute(
                    "SELECT digest, closed, reply IS NOT NULL FROM requests WHERE id = ?", (id_,)
                ).fetchone()
                if is_answered:
                    continue
                late |= closed == 1
                if closed != 1:
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
    """Delete replies to steps of sums, and close the requests; ``bundles`` may be for a later sum."""
    db.execute(
        "UPDATE requests SET reply = NULL, closed = 1 "
        "WHERE reply IS NOT NULL AND ((kind LIKE 'ask%' AND kind != 'ask_bundles') "
        "OR (? AND kind IN ('ask_bundles', ?)))",
        (bundles, EARLY),
    )


def _newest(db: sqlite3.Connection, party: str) -> Out | None:
    row = db.execute(_OUT + " WHERE party = ? ORDER BY number DESC LIMIT 1", (party,)).fetchone()
    return None if row is None else _out(row)


def _out(row: tuple[Any, ...]) -> Out:
    party, number, until, made, file, answered, late, over, asks, closing = row
    return Out(
        party, number, until, made, file, answered,
        late=bool(late), over=bool(over), asks=asks or "", closing=bool(closing),
    )  # fmt: skip


def _held(db: sqlite3.Connection, out: Out) -> list[int]:
    return [id_ for (id_,) in db.execute("SELECT r.id " + _HELD, (out.party, out.number))]
