"""The tables of a campaign's envelopes, and what is asked of them."""

from __future__ import annotations

from typing import Final

#: Identifies the file.
APPLICATION: Final = 0x50415445 ^ 0x656E76
#: Its tables.
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
#: Open requests of steps of sums, with their party, whether they are closing, and their envelope.
WAITED_FOR: Final = (
    "SELECT DISTINCT r.id, r.party, r.closed, e.number FROM requests r "
    "JOIN contents c ON c.request = r.id "
    "JOIN envelopes e ON e.party = c.party AND e.number = c.number "
    "WHERE r.reply IS NULL AND r.closed != 1 AND r.kind LIKE 'ask%' AND NOT e.over"
)
#: The columns of an envelope, in the order of the fields of :class:`Out`.
OUT: Final = """SELECT e.party, e.number, e.until, e.made, e.file, e.answered, e.late, e.over,
    (SELECT r.kind FROM contents c JOIN requests r ON r.id = c.request
        WHERE c.party = e.party AND c.number = e.number ORDER BY c.position DESC LIMIT 1),
    EXISTS (SELECT 1 FROM contents c JOIN requests r ON r.id = c.request
        WHERE c.party = e.party AND c.number = e.number AND r.closed = 2 AND r.reply IS NULL)
    FROM envelopes e"""
#: Behind :data:`OUT`: all, and the last one for each party.
BY_NAME: Final = " ORDER BY party, number"
LAST: Final = (
    " WHERE number = (SELECT max(number) FROM envelopes o WHERE o.party = e.party) ORDER BY party"
)
