"""Backup and restore of a party's ledger and the noise shares of its answers.

A stale ledger is dangerous. A party that continues from a copy no longer knows which queries it
voted on, with which survivors their sums were unmasked, and their total cost. A server that knows
this could ask for the same sums with other survivors and subtract, ask for a batch again and get
the same votes under fresh noise, or exceed the policy's total. A ledger spans all campaigns of a
party, so it is never final: a copy is restored only if its chain has the newest head known from
another source, or if the operator states explicitly that entries are lost.

Keys, enrolment and policy are not included: they rarely change, and need other protection.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from party.identity.keys import stored_identity
from party.ledger.file import APPLICATION_ID, SCHEMA, HeadFile
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from pate.errors import DataError, LedgerError, PateError, ProtocolError, StateError, UsageError
from pate.formats.enrolment import check_name
from pate.runtime.home import locked
from pate.storage import backup
from pate.storage.durable_file import DurableFile
from pate.storage.hash_chain import Head
from pate.storage.manifest import Contents, read_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pate.storage.manifest import Manifest

#: The noise shares of the votes that left.
NOISE_FILE: Final = "noise.db"
#: The allowed content of a party's backup: SQLite files, of which only the ledger is required.
CONTENTS: Final = Contents(
    role="party",
    ledger=LEDGER_FILE,
    files={LEDGER_FILE: 2**36, NOISE_FILE: 2**36},
)


def back_up(home: Path, out: Path) -> dict[str, object]:
    """Copy the ledger in ``home`` to the new folder ``out``, also while the party runs, and verify the copy.

    Returns its manifest, signed by the party's identity if it has one, and its folder. A
    LedgerError says that the ledger is missing, damaged, or older than the noted head.
    """
    head_file = HeadFile(home / LEDGER_FILE)
    head_file.require_ledger()
    noted = head_file.read()  # before the ledger, which may grow meanwhile

    def look(path: Path) -> backup.Copy[PartyLedger]:
        copy = _look(path)
        head_file.require_noted(noted, copy.found.require)
        return copy

    return backup.back_up(home, out, CONTENTS, look, key=stored_identity(home))[0]


def named_home(place: Path, homes: Path) -> Path:
    """Return the home of the party that a backup names, in the folder of all homes."""
    try:
        return homes / check_name(read_manifest(place).name)
    except ProtocolError as error:
        raise DataError(
            f"{place} does not name the home of a party ({error}): give --home"
        ) from error


def restore(
    place: Path,
    home: Path,
    *,
    head: str | None,
    entries_lost: bool = False,
    signed_by: str | None = None,
) -> dict[str, object]:
    """Restore a party's ledger to a home without one, or with one of an interrupted restore.

    Only the files of :data:`CONTENTS` are written, and none is overwritten. The copy must have
    ``head``, the newest that is known from elsewhere, and the one that is noted in ``home``; or the
    operator accepts that later entries are lost. ``signed_by`` is the key that must have signed the
    backup, by default that of the identity in ``home``.
    """
    asked = backup.Restore(place, CONTENTS, stored_identity(home), signed_by=signed_by)
    manifest, given = asked.manifest, Head.given(head)
    noted = None if entries_lost else HeadFile(home / LEDGER_FILE).read()
    if given is None and not entries_lost:
        raise UsageError(
            f"{place} ends at entry {manifest.entries} ({manifest.made_at}): this party would "
            "not know its later answers, and could be made to answer twice. Give --head with "
            "the last head that `pate-party ledger` showed, from a source other than this copy"
            f"{'' if noted is None else f' (the last that was noted in {home} is {noted})'}; "
            "or --entries-lost, and then allow only campaigns over public sets that are new to you"
        )
    with locked(home / "lock", "a pate-party"):
        for name in CONTENTS.files:
            _require_none(home / name, asked)
        with backup.draft_folder(home / ".restored") as draft:
            found = asked.fill(draft, _look, given, noted).head
            if entries_lost:  # before the ledger is there: later a crash would forget it
                HeadFile(home / LEDGER_FILE).note_loss()
            asked.put_in_place(draft, home)
            # The head file is written last: lowered earlier, it would admit any older copy if this fails.
            HeadFile(home / LEDGER_FILE).note(Head.parse(found))
    return {"head": found, "folder": str(home), "signer": manifest.signer}


def forget(home: Path) -> str:
    """Continue with a ledger that lacks answers of this party, or an empty one; return its head."""
    path = home / LEDGER_FILE
    if not home.is_dir():
        raise StateError(f"there is no party in {home}")
    with locked(home / "lock", "a pate-party"):
        HeadFile(path).note_loss()
        DurableFile(path, SCHEMA, APPLICATION_ID, damaged=LedgerError)
        head = PartyLedger(path, read_only=True).head
        HeadFile(path).note(Head.parse(head))
    return head


def _look(path: Path, heads: Sequence[Head] = ()) -> backup.Copy[PartyLedger]:
    """Verify a copy of the ledger, which must have the entries ``heads``."""
    copy = PartyLedger(path, read_only=True)
    for head in heads:
        copy.require(head)
    return backup.Copy("", Head.parse(copy.head), copy)


def _require_none(path: Path, asked: backup.Restore) -> None:
    """Refuse if the file exists, or a log that SQLite would replay."""
    for file in (path, path.with_name(path.name + "-wal")):
        if os.path.lexists(file) and not asked.has_made(file):
            raise StateError(_in_the_way(file, asked.manifest))


def _in_the_way(file: Path, manifest: Manifest) -> str:
    text = f"{file} exists already, and nothing is overwritten"
    if file.name == LEDGER_FILE:
        with contextlib.suppress(PateError):
            head = PartyLedger(file, read_only=True).head
            return (
                f"{text}: it ends at entry {head.partition(':')[0]}, the copy at {manifest.entries}"
            )
    return f"{text}: if it is damaged, move it away, and keep it"
