"""What a campaign sent by envelope and received, durable: it continues after any interruption.

One SQLite file in the campaign's folder. A request is known by the digest of its bytes, which are the
same whenever it is made again; so a server that is started again finds what it had asked, and the
replies that have come. A request that was closed is not waited for any more, ever: its reply is late.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pate.envelopes.manifest import Manifest, Part, text_of
from pate.errors import ProtocolError, StateError
from pate.storage.durable_file import DurableFile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

#: Name of the file in a campaign's folder.
FILE: Final = "envelopes.db"
_APPLICATION: Final = 0x50415445 ^ 0x656E76
_SCHEMA: Final = (
    "CREATE TABLE bodies (digest BLOB PRIMARY KEY, body BLOB NOT NULL) STRICT",
    # kind: the field of the request; closed: not waited for any more.
    """CREATE TABLE requests (id INTEGER PRIMARY KEY, party TEXT NOT NULL, digest BLOB NOT NULL,
    kind TEXT NOT NULL, reply BLOB, closed INTEGER NOT NULL DEFAULT 0, UNIQUE (party, digest))
    STRICT""",
    # file: SHA-256 of it, noted before it appears; answer: SHA-256 of the answer's file.
    """CREATE TABLE envelopes (party TEXT NOT NULL, number INTEGER NOT NULL, until TEXT NOT NULL,
    made TEXT NOT NULL, file BLOB, answer BLOB, answered TEXT, over INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (party, number)) STRICT""",
    """CREATE TABLE contents (party TEXT NOT NULL, number INTEGER NOT NULL,
    position INTEGER NOT NULL, request INTEGER NOT NULL REFERENCES requests (id),
    PRIMARY KEY (party, number, position)) STRICT""",
    "CREATE TABLE identities (party TEXT PRIMARY KEY, key BLOB NOT NULL) STRICT",
    # place: of the batch's first query; state: of the round, once it was begun.
    """CREATE TABLE rounds (number INTEGER PRIMARY KEY, place INTEGER NOT NULL, state BLOB,
    over INTEGER NOT NULL DEFAULT 0) STRICT""",
)
#: Kind of a request for bundles in the first envelope, which is always waited for.
EARLY: Final = "early_bundles"
#: Requests that are asked once, whatever else is asked; any other one ends those before it.
STANDING: Final = ("describe", "public_piece", EARLY)


@dataclass(frozen=True)
class Out:
    """An envelope for a party.

    Attributes:
        party: name of the recipient.
        number: of the envelope, for this party.
        until: when the party stops answering it, as in a manifest; empty: never.
        made: when, UTC.
        file: SHA-256 of it, 32 bytes, noted before it appears; None if it was not yet.
        answered: when its answer was taken in, UTC; None if it was not.
        over: whether nothing of it is waited for.
    """

    party: str
    number: int
    until: str
    made: str
    file: bytes | None
    answered: str | None
    over: bool

    def facts(self) -> dict[str, object]:
        """Return it as a JSON object, the digest in hex."""
        return asdict(self) | {"file": self.file.hex() if self.file else None}


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
        self._file = DurableFile(path, _SCHEMA, _APPLICATION, read_only=read_only)
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
                db.execute("SELECT party, digest FROM requests WHERE closed AND reply IS NULL")
            )

    def close(self, *, only_expired: bool = False) -> list[str]:
        """Stop waiting for the steps of sums that are out, durably; return the parties' names.

        Args:
            only_expired: only those whose envelope has a last date, which is over.
        """
        with self._file.writing() as db:
            rows = db.execute(
                "SELECT DISTINCT r.id, r.party FROM requests r JOIN contents c ON c.request = r.id "
                "JOIN envelopes e ON e.party = c.party AND e.number = c.number "
                "WHERE r.reply IS NULL AND NOT r.closed AND r.kind LIKE 'ask%' AND NOT e.over "
                "AND (? OR (e.until != '' AND e.until < ?))",
                (not only_expired, text_of(self._clock())),
            ).fetchall()
            db.executemany(
                "UPDATE requests SET closed = 1 WHERE id = ?", [(id_,) for id_, _ in rows]
            )
        return sorted({party for _, party in rows})

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
        """Record that a batch's round is given up."""
        with self._file.writing() as db:
            db.execute("UPDATE rounds SET over = 1 WHERE place = ?", (place,))

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
                        "SELECT id FROM requests WHERE party = ? AND reply IS NULL AND NOT closed "
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
            raise StateError(f"{self._file.path} does not hold what was written")
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
            return [_out(row) for row in db.execute(_OUT + _ORDER)]

    def newest(self) -> list[Out]:
        """Return the last envelope for each party, in the order of their names."""
        return [*{each.party: each for each in self.envelopes()}.values()]

    # --- answers -----------------------------------------------------------------------------

    def answered(self, manifest: Manifest) -> Out:
        """Return the envelope that an answer is to.

        Raises:
            ProtocolError: if there is no such envelope, or it asked for another number of replies.
        """
        with self._file.reading() as db:
            row = db.execute(
                _OUT + " WHERE party = ? AND file = ?", (manifest.party, manifest.answers)
            ).fetchone()
            if row is None:
                raise ProtocolError(f"it answers no envelope of this campaign for {manifest.party}")
            out = _out(row)
            held = _contents(db, out.party, out.number)
        if len(held) != len(manifest.parts):
            raise ProtocolError(f"{len(manifest.parts)} replies to {len(held)} requests")
        return out

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
            db.execute(
                "UPDATE envelopes SET answer = ?, answered = ? WHERE party = ? AND number = ?",
                (digest, text_of(self._clock()), out.party, out.number),
            )
            for id_, reply in zip(_contents(db, out.party, out.number), replies, strict=True):
                row = db.execute(
                    "SELECT digest FROM requests WHERE id = ? AND reply IS NULL AND NOT closed",
                    (id_,),
                ).fetchone()
                if row is not None:
                    db.execute("UPDATE requests SET reply = ? WHERE id = ?", (reply, id_))
                    taken.append((row[0], reply))
        return taken


def in_words(facts: Mapping[str, object]) -> str:
    """Return one line for the :meth:`~Out.facts` of an envelope: is it out or in, since when."""
    state = f"answered {facts['answered']}" if facts["answered"] else "not answered"
    if facts["over"] and not facts["answered"]:
        state += "; nothing of it is waited for"
    elif facts["until"] and not facts["answered"]:
        state += f"; may be answered until {facts['until']}"
    return f"{facts['party']}: envelope {facts['number']}, made {facts['made']}, {state}"


_OUT: Final = "SELECT party, number, until, made, file, answered, over FROM envelopes"
_ORDER: Final = " ORDER BY party, number"


def _newest(db: sqlite3.Connection, party: str) -> Out | None:
    row = db.execute(_OUT + " WHERE party = ? ORDER BY number DESC LIMIT 1", (party,)).fetchone()
    return None if row is None else _out(row)


def _out(row: tuple[Any, ...]) -> Out:
    *fields, over = row
    party, number, until, made, file, answered = fields
    return Out(party, number, until, made, file, answered, bool(over))


def _contents(db: sqlite3.Connection, party: str, number: int) -> list[int]:
    return _ids(
        db.execute(
            "SELECT request FROM contents WHERE party = ? AND number = ? ORDER BY position",
            (party, number),
        )
    )


def _ids(rows: sqlite3.Cursor) -> list[int]:
    return [id_ for (id_,) in rows]
