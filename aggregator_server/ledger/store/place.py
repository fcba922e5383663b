"""Where the ledger of a campaign lies: in a file of its folder, or in a schema of a PostgreSQL database.

The folder of a campaign says which. One whose ledger is in a database has the file
:data:`ANCHOR_FILE` in the ledger's place: where to look, and the last entry that this server has
written there. A database may be taken back in time by whoever runs it (an old dump put back, a
standby that missed the last seconds), and nothing in it would show that what was spent since would
be spent again; the anchor does.
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from aggregator_server.ledger.store.address import Address
from pate.errors import LedgerError, StateError, UsageError
from pate.runtime.home import private_directory, write_file
from pate.storage.hash_chain import Head

#: The ledger's name in a campaign's folder.
LEDGER_FILE: Final = "ledger.db"
#: What stands in its place if the ledger is in a database.
ANCHOR_FILE: Final = "ledger.json"
_FORMAT: Final = 1
_LARGEST_ANCHOR: Final = 2**14
_PREFIX: Final = "pate_"
#: Bytes of a name in PostgreSQL, which cuts off what is beyond.
_LONGEST_NAME: Final = 63


@dataclass(frozen=True)
class InDatabase:
    """The place of a ledger in a PostgreSQL database: a schema, in the database's sense, of its own.

    Attributes:
        address: of the database.
        schema: name of the namespace that holds the tables of this campaign and nothing else.
        anchor: path of the file that says so.
        head: the last entry that this server knows to be there; None: it does not know the ledger.
    """

    address: Address
    schema: str
    anchor: Path
    head: Head | None = None

    def __str__(self) -> str:
        return f"{self.schema} in {self.address}"

    def at(self, head: Head) -> InDatabase:
        """Return this place with another last entry."""
        return replace(self, head=head)


#: A SQLite file, or a schema of a database.
Place: TypeAlias = Path | InDatabase


def place_of(folder: Path, wanted: str | None = None) -> Place:
    """Return where the ledger of the campaign in ``folder`` is, or is to be.

    Args:
        folder: of the campaign; it need not be there.
        wanted: the database that was asked for, None: whatever the folder says, else a file.

    Raises:
        UsageError: if ``wanted`` is not the address of a database that can be used.
        StateError: if the folder says another place than ``wanted``, or cannot be read.
    """
    file, path = folder / LEDGER_FILE, folder / ANCHOR_FILE
    address = None if wanted is None else Address.parse(wanted)
    held = read_anchor(path)
    if held is not None and file.exists():
        raise StateError(
            f"{folder} has a ledger in {LEDGER_FILE} and names another in {ANCHOR_FILE}: keep both, "
            "and find out which one went on"
        )
    if held is not None:
        if address not in (None, held.address):
            raise StateError(
                f"the campaign in {folder} has its ledger at {held.address}, and another place is "
                f"asked for: leave --ledger and PATE_LEDGER out (did the database move? Then change "
                f"its address in {path})"
            )
        return held
    if address is None:
        return file
    if file.exists():
        raise StateError(
            f"the campaign in {folder} has its ledger in {LEDGER_FILE} there, and not in a database: "
            "leave --ledger and PATE_LEDGER out, or choose another --campaign"
        )
    return InDatabase(address, schema_of(folder.name), path)


def schema_of(campaign: str) -> str:
    """Return the name of the schema for a campaign.

    Raises:
        UsageError: if it is too long, or not text.
    """
    name = _PREFIX + campaign
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{campaign!r} cannot be the name of a campaign in a database: it is not UTF-8"
        ) from error
    if size > _LONGEST_NAME:
        raise UsageError(
            f"{campaign!r} is too long for a campaign in a database: at most "
            f"{_LONGEST_NAME - len(_PREFIX)} bytes"
        )
    return name


def write_anchor(place: InDatabase) -> None:
    """Write down where the ledger is and what is known of it, durably.

    Raises:
        DiskError: if it cannot be written.
    """
    private_directory(place.anchor.parent)
    body = {
        "format": _FORMAT,
        "ledger": place.address.url,
        "schema": place.schema,
        "head": None if place.head is None else str(place.head),
    }
    write_file(place.anchor, json.dumps(body, indent=2).encode() + b"\n")


def require_closed_folder(folder: Path) -> None:
    """Check that nobody else may put a file where the ledger, or what is known of it, lies.

    Raises:
        StateError: if others may.
    """
    mode = folder.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise StateError(f"others may write to {folder}: chmod 700 it")


def read_anchor(path: Path) -> InDatabase | None:
    """Return what a folder says of where its ledger is; None: nothing.

    Raises:
        StateError: if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_ANCHOR + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}") from error
    try:
        body = json.loads(text) if len(text) <= _LARGEST_ANCHOR else None
        if not isinstance(body, dict) or body.pop("format", None) != _FORMAT:
            raise ValueError("of another form; a newer version may know it")
        url, schema, head = body.pop("ledger"), body.pop("schema"), body.pop("head")
        if body or not isinstance(url, str) or not isinstance(schema, str):
            raise ValueError("fields that make no sense")
        if not schema.startswith(_PREFIX) or len(schema.encode()) > _LONGEST_NAME or "\0" in schema:
            raise ValueError("no schema of ours")
        known = None if head is None else Head.parse(str(head))
        return InDatabase(Address.parse(url), schema, path, known)
    except (ValueError, KeyError, RecursionError, LedgerError, UsageError) as error:
        raise StateError(f"{path} does not say where the ledger is: {error}") from error
