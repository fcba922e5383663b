"""Backup and restore of a party's ledger: what it answered, and the noise that it answered with.

What a stale ledger would do. A party that goes on from a copy has forgotten which queries it gave
votes on, with whom their sums were opened, and what all of it costs. A server that knows that may
ask for the same sums with other survivors and subtract, ask again for a batch to be told the same
votes under other noise, or ask for more than the policy allows in all. Books span all campaigns of
a party, so there is no end after which nothing can follow: a copy is put back only if its chain
holds the newest head that is known from elsewhere, or if whoever restores it says in so many words
that entries are lost.

Keys, enrolment and policy are not in it: they do not change as the ledger does, and are secrets of
another kind.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from party.identity.keys import stored_identity
from party.ledger.chain import APPLICATION_ID, SCHEMA
from party.ledger.head_file import HeadFile
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

#: The noise shares that went out with the votes.
NOISE_FILE: Final = "noise.db"
#: All that a party's backup may hold. Each is an SQLite file, and all but the ledger may be absent.
CONTENTS: Final = Contents(
    role="party",
    ledger=LEDGER_FILE,
    files={LEDGER_FILE: 2**36, NOISE_FILE: 2**36},
)


def back_up(home: Path, out: Path) -> dict[str, object]:
    """Copy the ledger in ``home``, also while the party runs, and check the copy.

    Args:
        home: of the party.
        out: the folder to make; its parent is made if need be.

    Returns:
        The manifest of the backup, signed by the party's identity if it has one, and its folder.

    Raises:
        StateError: if there is no ledger, or something is at ``out``.
        LedgerError: if the ledger is gone, or its copy does not verify or is older than this party
            left its ledger: then so is the ledger.
        DiskError: if it cannot be written.
    """
    head_file = HeadFile(home / LEDGER_FILE)
    head_file.require_ledger()
    noted = head_file.read()  # before the ledger, which may be written to meanwhile

    def look(path: Path) -> backup.Copy[PartyLedger]:
        copy = _look(path)
        head_file.require_noted(noted, copy.found.require)
        return copy

    return backup.back_up(home, out, CONTENTS, look, key=stored_identity(home))[0]


def named_home(place: Path, homes: Path) -> Path:
    """Return the home of the party that a backup names, in the folder of all homes.

    Raises:
        DataError: if it is no backup, or the name cannot be a party's.
    """
    try:
        return homes / check_name(read_manifest(place).name)
    except ProtocolError as error:
        raise DataError(f"{place} names no home of a party ({error}): give --home") from error


def restore(
    place: Path,
    home: Path,
    *,
    head: str | None,
    entries_lost: bool = False,
    signed_by: str | None = None,
    unsigned: bool = False,
) -> dict[str, object]:
    """Put a party's ledger back into its home, where none may be but that of a restore cut short.

    Nothing but the files of :data:`CONTENTS` is written, whatever the backup says, and none of them
    over another.

    Args:
        place: of the backup.
        home: of the party; made if need be.
        head: the newest head that is known from elsewhere, ``number:digest``, or None. The one
            that is noted in ``home`` beside a ledger that is gone has to be in the copy as well.
        entries_lost: whoever restores knows that what followed is forgotten.
        signed_by: the public key (hex) that has to have signed the backup; None: that of the
            identity in ``home``, if there is one.
        unsigned: take one that nobody signed, as older versions made them.

    Returns:
        ``head``, ``folder`` and ``signer`` of what is there now; no signer is "".

    Raises:
        UsageError: if neither head nor entries_lost is given, or ``signed_by`` is no key.
        StateError: if there is a ledger in ``home``, or a party runs there.
        LedgerError: if the copy does not verify, is older than ``head``, or than one beside it.
        DataError: if it is no backup of a party, was changed, or another signed it.
    """
    asked = backup.Restore(
        place, CONTENTS, stored_identity(home), signed_by=signed_by, unsigned=unsigned
    )
    manifest, given = asked.manifest, Head.given(head)
    noted = None if entries_lost else HeadFile(home / LEDGER_FILE).read()
    if given is None and not entries_lost:
        raise UsageError(
            f"{place} ends at entry {manifest.entries} ({manifest.made_at}): what this party answered "
            "after that it would not know of any more, and could be made to answer twice. Give --head "
            "with the last head that `pate-party ledger` showed, known from elsewhere than this copy"
            f"{'' if noted is None else f' (the last that was noted in {home} is {noted})'}; "
            "or --entries-lost, and then allow only campaigns over public sets that are new to you"
        )
    with locked(home / "lock", "a pate-party"):
        for name in CONTENTS.files:
            _require_none(home / name, asked)
        asked.require_newest()
        with backup.draft_folder(home / ".restored") as draft:
            found = asked.fill(draft, _look, given, noted).head
            asked.put_in_place(draft, home)
            # And the head file after it: lowered before, it would let any older copy pass if this fails.
            HeadFile(home / LEDGER_FILE).note(Head.parse(found))
    return {"head": found, "folder": str(home), "signer": manifest.signer}


def forget(home: Path) -> str:
    """Go on with a ledger that lacks what this party answered: an older copy, or none at all.

    Returns:
        The head of the ledger that is there now.

    Raises:
        StateError: if a party runs there, or it never had a ledger there.
        LedgerError: if the ledger that is there does not verify.
    """
    path = home / LEDGER_FILE
    if not home.is_dir():
        raise StateError(f"there is no party in {home}")
    with locked(home / "lock", "a pate-party"):
        DurableFile(path, SCHEMA, APPLICATION_ID, damaged=LedgerError)
        head = PartyLedger(path, read_only=True).head
        HeadFile(path).note(Head.parse(head))
    return head


def _look(path: Path, heads: Sequence[Head] = ()) -> backup.Copy[PartyLedger]:
    """Check a copy of the ledger, which has to have some entries."""
    copy = PartyLedger(path, read_only=True)
    for head in heads:
        copy.require(head)
    return backup.Copy("", Head.parse(copy.head), copy)


def _require_none(path: Path, asked: backup.Restore) -> None:
    """Refuse if there is a file, or what SQLite would take for the newest part of it."""
    for held in (path, path.with_name(path.name + "-wal")):
        if os.path.lexists(held) and not asked.has_made(held):
            raise StateError(_in_the_way(held, asked.manifest))


def _in_the_way(held: Path, manifest: Manifest) -> str:
    text = f"{held} is there already, and nothing is overwritten"
    if held.name == LEDGER_FILE:
        with contextlib.suppress(PateError):
            head = PartyLedger(held, read_only=True).head
            return (
                f"{text}: it ends at entry {head.partition(':')[0]}, the copy at {manifest.entries}"
            )
    return f"{text}: if it is damaged, move it away, and keep it"
