"""Backup and restore of one campaign: its ledger and its public set, without identities.

A stale ledger is dangerous. A server that continues from a copy does not know later charges and
labels: it would spend that part of the budget a second time, and answer the same queries again with
fresh noise. The guarantee to the public would be broken, without a trace in the file. So a copy is
restored for continuation only if it provably has the newest known entry: a finished campaign, which
nothing can follow, or one whose chain has the head that the operator knows from elsewhere. All
others can be restored *closed*: their labels are kept, and no further query is answered. That is
always safe: the lost ledger never released more than the campaign's cap, and nothing is added to
it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aggregator_server.identities import Identities
from aggregator_server.ledger import verify
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store import stores
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

    from aggregator_server.ledger.state import CampaignState
    from pate.storage.manifest import Manifest

#: The allowed content of a server's backup: the ledger, the public set, the markers that the parties
#: were notified of the end and that the labels were served, and in a trial without identities its
#: signing key, which is stored nowhere else.
CONTENTS: Final = Contents(
    role="server",
    ledger=LEDGER_FILE,
    files={
        LEDGER_FILE: 2**36,
        "public.bin": 2**36,
        "parties-told": 0,
        "labels-served": 0,
        "campaign.key": SECRET_BYTES,
    },
)


def back_up(folder: Path, out: Path) -> dict[str, object]:
    """Copy the campaign in ``folder`` to a new one, also while a server runs it, and verify the copy.

    The copy is a file, also of a ledger that is in a database. Returns its manifest, with ``phase``
    and its folder, signed by the campaign key of the server's identity, if there is one.
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
) -> dict[str, object]:
    """Restore a backup as the campaign in a new ``folder``; only :data:`CONTENTS` are written.

    ``head`` is the newest that is known from elsewhere; ``close`` ends the campaign with the copy's
    last entry, so that nothing more is answered; ``signed_by`` the key that must have signed the
    backup, that of the server's identity next to ``folder`` by default.
    """
    asked = backup.Restore(place, CONTENTS, _signing_key(folder), signed_by=signed_by)
    manifest, known = asked.manifest, Head.given(head)
    if folder.exists():
        raise StateError(_in_the_way(folder, manifest))
    target = place_of(folder, database)
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
        "campaign": found.spec.id,
        "head": str(found.head),
        "phase": found.phase,
        "labels_released": len(found.labels),
        "folder": str(folder),
        "signer": manifest.signer,
    }


def _look(path: Path, heads: Sequence[Head] = ()) -> backup.Copy[CampaignState]:
    """Verify a copy of the ledger, which must have the entries ``heads``."""
    found = verify.verify(path, *heads)
    return backup.Copy(found.spec.id, found.head, found)


def _signing_key(folder: Path) -> Ed25519PrivateKey | None:
    """Return the campaign key of the server's identity next to a campaign; a trial has none.

    The key of a trial is in its backups, so anyone who alters one could sign it.
    """
    identities = Identities.open(folder.absolute().parent, certified=False)
    return None if identities is None else identities.signing_key


def _copy_ledger(source: Place, target: Path) -> None:
    if not isinstance(source, InDatabase):
        backup.copy_database(source, target)
        return
    with closing(stores.opened(source, read_only=True)) as store, store.reading() as rows:
        stores.write_copy(target, lambda copy: carry_over(rows, copy))


def _put_into(target: InDatabase, file: Path, found: CampaignState, last: Head) -> CampaignState:
    """Move a verified copy into a database, and replace the file by its anchor; return its content there.

    A schema with exactly this content is accepted: an earlier attempt may have stopped after the
    database's commit. One entry after ``last`` closes the campaign.
    """
    if stores.exists(target):
        made = stores.opened(target)
        with stores.or_closed(made):
            present = verify.verify(target, last)
            # The closing time of an earlier attempt is in its digest.
            closed = found.head != last and present.phase == "finished"
            if present.head != found.head and not (closed and present.head.seq == found.head.seq):
                raise StateError(
                    f"{target} exists already, and is not this backup: it ends at entry {present.head}; "
                    "choose another --campaign"
                )
            found = present
    else:
        with closing(stores.opened(file, read_only=True)) as copy, copy.reading() as rows:
            made = stores.opened(target, fill=lambda db: carry_over(rows, db))
    with stores.or_closed(made):
        made.remember(found.head)
    made.close()
    target.anchor.with_name(target.anchor.name + ".lock").unlink(missing_ok=True)
    verify.verify(target, found.head)
    file.unlink()
    return found


def _what_is_missing(place: Path, manifest: Manifest, found: CampaignState) -> str:
    spent = 100 * float(found.spent / found.cap) if found.cap else 0.0
    return (
        f"{place} ends at entry {manifest.entries} ({manifest.made_at}) with {len(found.labels)} labels and "
        f"{spent:.0f} % of the budget spent, and the campaign was {found.phase}: later spending "
        "would be repeated. Give --head with the last head of the server after it had stopped, "
        "from a source other than this copy; or --close, which keeps these labels, answers no "
        "further query, and is safe whatever was lost"
    )


def _in_the_way(folder: Path, manifest: Manifest) -> str:
    """Return why nothing is restored over an existing folder, and what that is."""
    text = f"{folder} exists already, and nothing is overwritten"
    try:
        present = verify.verify(place_of(folder))
    except PateError:
        return (
            f"{text}: if its ledger is damaged, move it away, but keep it: its entries may be "
            "the only trace of the last charges"
        )
    if present.spec.id != manifest.ledger:
        return f"{text}: it is another campaign; name one with --campaign"
    if present.head.seq >= manifest.entries:
        return (
            f"{text}: its ledger verifies, and ends at entry {present.head.seq}, the copy at entry "
            f"{manifest.entries}; there is nothing to restore"
        )
    return f"{text}: its ledger ends at entry {present.head.seq}, before the copy's; move it away first"
