"""Backup and restore of one campaign: its ledger, its public set, and no identities.

What a stale ledger would do. A server that goes on from a copy has forgotten every charge and every
label that came after it: it would spend that part of the budget a second time, and answer the same
queries again with fresh noise. The promise to the public would be broken, and nothing in the file
could show it. So a copy is put back to be gone on with only if it provably has the newest entry
that is known: a campaign that is finished, which nothing can follow, or one whose chain holds the
head that the operator has from elsewhere. All others can be put back *closed*: their labels are
there, and not a query more is answered. That is safe whatever was lost: the lost ledger never let
more out than the campaign's cap, and nothing is added to it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aggregator_server.identities import Identities
from aggregator_server.ledger import verify
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store import stores
from aggregator_server.ledger.store.database import write_copy
from aggregator_server.ledger.store.place import LEDGER_FILE, InDatabase, Place, place_of
from aggregator_server.ledger.store.tables import carry_over
from pate.errors import PateError, StateError, UsageError
from pate.runtime.home import SECRET_BYTES
from pate.storage import backup
from pate.storage.hash_chain import Head
from pate.storage.manifest import Contents

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.storage.manifest import Manifest

#: All that a server's backup may hold. Besides the ledger: the public set; that the parties were told
#: of the end; and the key that signs the requests of a trial, whose only place this is. With
#: identities there is no such file.
CONTENTS: Final = Contents(
    role="server",
    ledger=LEDGER_FILE,
    files={
        LEDGER_FILE: 2**36,
        "public.bin": 2**36,
        "parties-told": 0,
        "campaign.key": SECRET_BYTES,
    },
)


def back_up(folder: Path, out: Path) -> dict[str, object]:
    """Copy the campaign in ``folder``, also while a server runs it, and check the copy.

    The copy is a file, also of a ledger that is in a database.

    Args:
        folder: of the campaign.
        out: the folder to make; its parent is made if need be.

    Returns:
        The manifest of the backup, with ``phase`` and where it is. The campaign key of the
        server's identity signs it, if there is one.

    Raises:
        StateError: if there is no campaign, or something is at ``out``.
        LedgerError: if the copy does not verify: then the ledger does not, either.
        DiskError: if it cannot be written.
        UnreachableError: if the database that the ledger is in does not answer.
    """
    made, found = backup.back_up(
        folder,
        out,
        CONTENTS,
        _look,
        key=_signing_key(folder),
        copy_ledger=lambda _, target: _copy_ledger(place_of(folder), target),
    )
    return {**made, "phase": found.phase}


def restore(
    place: Path,
    folder: Path,
    *,
    head: str | None,
    close: bool,
    database: str | None = None,
    signed_by: str | None = None,
    unsigned: bool = False,
) -> dict[str, object]:
    """Put a backup back as the campaign in ``folder``.

    Nothing but the files of :data:`CONTENTS` is written, whatever the backup says.

    Args:
        place: of the backup.
        folder: of the campaign; nothing may be there.
        head: the newest head that is known from elsewhere, ``number:digest``, or None.
        close: end the campaign with the copy's last entry, so that nothing more is answered.
        database: address of the one to put the ledger into; None: into a file.
        signed_by: the public key (hex) that has to have signed the backup; None: that of the
            server's identity beside ``folder``, if there is one.
        unsigned: take one that nobody signed, as older versions made them.

    Returns:
        ``campaign``, ``head``, ``phase``, ``labels_released`` and ``signer`` of what is there now.

    Raises:
        UsageError: if the campaign may have gone on after the copy, and neither is given.
        StateError: if something is at ``folder``.
        LedgerError: if the copy does not verify, is older than ``head``, or than one beside it.
        DataError: if it is no backup of a server, was changed, or another signed it.
    """
    asked = backup.Restore(
        place, CONTENTS, _signing_key(folder), signed_by=signed_by, unsigned=unsigned
    )
    manifest, known = asked.manifest, Head.given(head)
    if folder.exists():
        raise StateError(_in_the_way(folder, manifest))
    target = place_of(folder, database)
    asked.require_newest()
    with backup.new_folder(folder) as draft:
        path = draft / LEDGER_FILE
        found = asked.fill(draft, _look, known)
        if found.phase != "finished":
            if close:
                with Ledger.open(path) as ledger:
                    ledger.finish()
                found = verify.verify(path)
            elif known is None:
                raise UsageError(_what_is_missing(place, manifest, found))
        path.with_name(path.name + ".lock").unlink(missing_ok=True)
        if isinstance(target, InDatabase):
            inside = replace(target, anchor=draft / target.anchor.name, head=None)
            found = _put_into(inside, path, found, Head.parse(manifest.head))
    return {
        "campaign": found.campaign,
        "head": str(found.head),
        "phase": found.phase,
        "labels_released": found.labels,
        "folder": str(folder),
        "signer": manifest.signer,
    }


def _look(path: Path, heads: Sequence[Head] = ()) -> backup.Copy[verify.Verification]:
    """Check a copy of the ledger, which has to have some entries."""
    found = verify.verify(path, *heads)
    return backup.Copy(found.campaign, found.head, found)


def _signing_key(folder: Path) -> Ed25519PrivateKey | None:
    """Return the campaign key of the server's identity beside a campaign; a trial has none.

    The key of a trial is in its backups, so that whoever alters one could sign it.
    """
    identities = Identities.open(folder.absolute().parent, certified=False)
    return None if identities is None else identities.signing_key


def _copy_ledger(source: Place, target: Path) -> None:
    if not isinstance(source, InDatabase):
        backup.copy_database(source, target)
        return
    with closing(stores.examine(source)) as store, store.reading() as rows:
        write_copy(target, lambda copy: carry_over(rows, copy))


def _put_into(
    target: InDatabase, file: Path, found: verify.Verification, last: Head
) -> verify.Verification:
    """Put a copy that was checked into a database, and its anchor into the file's place.

    A schema that holds just that is taken as it is: an earlier attempt may have ended between the
    database's commit and the campaign's folder.

    Args:
        target: where to.
        file: the copy; it is removed.
        found: what is in it.
        last: entry of the backup; the one after it, if there is one, closes the campaign.

    Returns:
        What is in the database.
    """
    if stores.exists(target):
        made = stores.open_for_writing(target)
        with stores.or_closed(made):
            held = verify.verify(target, last)
            # The time at which an earlier attempt closed it is in its digest.
            closed = found.head != last and held.phase == "finished"
            if held.head != found.head and not (closed and held.head.seq == found.head.seq):
                raise StateError(
                    f"{target} is there already, and is not this backup: it ends at entry {held.head}; "
                    "choose another --campaign"
                )
            found = held
    else:
        with closing(stores.examine(file)) as copy, copy.reading() as rows:
            made = stores.create(target, lambda db: carry_over(rows, db))
    with stores.or_closed(made):
        made.remember(found.head)
    made.close()
    target.anchor.with_name(target.anchor.name + ".lock").unlink(missing_ok=True)
    verify.verify(target, found.head)
    file.unlink()
    return found


def _what_is_missing(place: Path, manifest: Manifest, found: verify.Verification) -> str:
    spent = 100 * float(found.spent / found.cap) if found.cap else 0.0
    return (
        f"{place} ends at entry {manifest.entries} ({manifest.made_at}) with {found.labels} labels and "
        f"{spent:.0f} % of the budget spent, and the campaign was {found.phase}: what came after it "
        "would be spent a second time. Give --head with the last head that the server had once it "
        "had stopped, known from elsewhere than this copy; or --close, which keeps these labels, "
        "answers nothing more, and is safe whatever was lost"
    )


def _in_the_way(folder: Path, manifest: Manifest) -> str:
    """Return why nothing is put back where something is, and what that is."""
    text = f"{folder} is there already, and nothing is overwritten"
    try:
        held = verify.verify(place_of(folder))
    except PateError:
        return (
            f"{text}: if its ledger is damaged, move it away, and keep it: its entries may be the "
            "only trace of what was spent last"
        )
    if held.campaign != manifest.ledger:
        return f"{text}: it is another campaign; name one with --campaign"
    if held.head.seq >= manifest.entries:
        return (
            f"{text}: its ledger holds, and ends at entry {held.head.seq}, the copy at entry "
            f"{manifest.entries}; nothing is to be restored"
        )
    return (
        f"{text}: its ledger ends at entry {held.head.seq}, before the copy's; move it away first"
    )
