"""The tables of the ledger.

``entries`` is the hash chain, and everything of meaning is in it. The other three hold what is
derived from the chain (``releases``) or what the chain commits to by digest and is too large or too
private for it (``batches``, ``predictions``). No row of any table is ever changed or deleted:
triggers of the first migration see to that.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Integer, LargeBinary, MetaData, Table, Text

metadata = MetaData()

#: One row per step of the campaign. ``body`` is canonical JSON; digests are SHA-256.
entries = Table(
    "entries",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("previous", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("written_at", Text, nullable=False),
    sqlite_strict=True,
)

#: One row per query that has a label. The primary key is what makes a second one impossible.
releases = Table(
    "releases",
    metadata,
    Column("query", Integer, primary_key=True),
    Column("label", Integer, nullable=False),
    Column("round", Integer, nullable=False),
    Column("source", Text, nullable=False),
    Column("entry", Integer, ForeignKey("entries.seq"), nullable=False),
    sqlite_strict=True,
)

#: Summed votes: the private part of the file. ``counts`` is (count, classes) int32, little endian,
#: and ``salt`` hides them in the chain, whose head is published.
batches = Table(
    "batches",
    metadata,
    Column("first", Integer, primary_key=True),
    Column("count", Integer, nullable=False),
    Column("teachers", Integer, nullable=False),
    Column("responders", Text, nullable=False),
    Column("salt", LargeBinary, nullable=False),
    Column("counts", LargeBinary, nullable=False),
    Column("entry", Integer, ForeignKey("entries.seq"), nullable=False),
    sqlite_strict=True,
)

#: What the student believed before a round: (queries, classes) float32, little endian.
predictions = Table(
    "predictions",
    metadata,
    Column("round", Integer, primary_key=True),
    Column("probabilities", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("entry", Integer, ForeignKey("entries.seq"), nullable=False),
    sqlite_strict=True,
)
