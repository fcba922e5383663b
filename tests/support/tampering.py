"""Expert tampering with a ledger: its file changed, or its chain rebuilt."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

from pate.storage.hash_chain import Chain, Entry

Body: TypeAlias = dict[str, Any]


def tamper(path: Path, statement: str, *values: object) -> None:
    """Change a file without its triggers, which come back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as link:
        triggers = link.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        link.execute("BEGIN")
        for name, _ in triggers:
            link.execute(f"DROP TRIGGER {name}")
        assert link.execute(statement, values).rowcount != 0
        for _, sql in triggers:
            link.execute(sql)
        link.execute("COMMIT")


def forged(
    chain: Chain, entries: Iterable[Entry], seq: int, change: Callable[[Body], object]
) -> list[Entry]:
    """The chain with the body of one entry changed, and everything after it bound to that."""
    made: list[Entry] = []
    for entry in entries:
        body = json.loads(entry.body)
        if entry.seq == seq:
            change(body)
        head = made[-1].head if made else chain.start
        made.append(chain.after(head, entry.kind, body, entry.written_at))
    return made


def repeated(chain: Chain, entries: Iterable[Entry], seq: int, times: int) -> list[Entry]:
    """The chain with one entry as many times, bound as if it had been written so."""
    some = [each for each in entries for _ in range(times if each.seq == seq else 1)]
    return forged(chain, some, 0, dict)


def rewrite(path: Path, entries: Iterable[Entry]) -> None:
    """Put other bodies, links and digests in the place of a file's entries, by their numbers."""
    for each in entries:
        tamper(
            path,
            "UPDATE entries SET body = ?, previous = ?, digest = ? WHERE seq = ?",
            each.body,
            each.previous,
            each.digest,
            each.seq,
        )
