"""The place of a campaign's ledger: a file in its folder, or a schema of a PostgreSQL database.

The folder of a campaign determines which. With a ledger in a database it has the file
:data:`ANCHOR_FILE` instead, with the address and the last entry that this server has written. A
database may be rolled back (a restored dump, a standby that missed the last seconds), without a
trace that later spending would be repeated; the anchor detects it.
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from aggregator_server.ledger.store.address import Address
from pate.errors import LedgerError, StateError, UsageError
from pate.foreign import json_value
from pate.runtime.home import private_directory, write_file
from pate.storage.hash_chain import Head

#: The ledger's name in a campaign's folder.
LEDGER_FILE: Final = "ledger.db"
#: The file that replaces it if the ledger is in a database.
ANCHOR_FILE: Final = "ledger.json"
_FORMAT: Final = 1
_LARGEST_ANCHOR: Final = 2**14
_PREFIX: Final = "pate_"
#: Bytes of a name in PostgreSQL, which truncates longer ones.
_LONGEST_NAME: Final = 63


@dataclass(frozen=True)
class InDatabase:
    """The place of a ledger in a PostgreSQL database: its own schema (namespace).

    Attributes:
        address: of the database.
        schema: name of the namespace with only the tables of this campaign.
        anchor: path of the anchor file.
        head: the last entry known to be there; None: unknown.
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
    """Return the present or future place of the ledger of the campaign in ``folder``.

    Args:
        folder: of the campaign; it need not exist.
        wanted: the requested database; None: according to the folder, else a file.

    Raises:
        UsageError: if ``wanted`` is not a usable address of a database.
        StateError: if the folder has another place than ``wanted``, or cannot be read.
    """
    file, path = folder / LEDGER_FILE, folder / ANCHOR_FILE
    address = None if wanted is None else Address.parse(wanted)
    found = read_anchor(path)
    if found is not None and file.exists():
        raise StateError(
            f"{folder} has a ledger in {LEDGER_FILE} and names another in {ANCHOR_FILE}: keep "
            "both, and find out which one is newer"
        )
    if found is not None:
        if address not in (None, found.address):
            raise StateError(
                f"the campaign in {folder} has its ledger at {found.address}, but another place "
                "was given: leave --ledger and PATE_LEDGER out (did the database move? Then "
                "change "
                f"its address in {path})"
            )
        return found
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
    """Record the place of the ledger and its last known entry, durably.

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
    """Check that no other user may write to the folder of the ledger or its anchor.

    Raises:
        StateError: if others may.
    """
    mode = folder.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise StateError(f"others may write to {folder}: chmod 700 it")


def read_anchor(path: Path) -> InDatabase | None:
    """Return a folder's anchor, None if it has none.

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
        body = json_value(text) if len(text) <= _LARGEST_ANCHOR else None
        if not isinstance(body, dict) or body.pop("format", None) != _FORMAT:
            raise ValueError("of another form; a newer version may know it")
        url, schema, head = body.pop("ledger"), body.pop("schema"), body.pop("head")
        if body or not isinstance(url, str) or not isinstance(schema, str):
            raise ValueError("invalid fields")
        if not schema.startswith(_PREFIX) or len(schema.encode()) > _LONGEST_NAME or "\0" in schema:
            raise ValueError("not a schema of this program")
        known = None if head is None else Head.parse(str(head))
        return InDatabase(Address.parse(url), schema, path, known)
    except (ValueError, KeyError, LedgerError, UsageError) as error:
        raise StateError(f"{path} is not a valid anchor of a ledger: {error}") from error
