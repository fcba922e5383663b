"""What PostgreSQL says, in the words of our error tree.

Of an error of the server its first line alone is passed on: its details show the row that it was
about, and rows hold votes.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg

from pate.errors import DiskError, LedgerError, PateError, StateError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: SQLSTATE codes, or their beginnings. https://www.postgresql.org/docs/current/errcodes-appendix.html
_GONE: Final = ("08", "57P0", "53200", "53300", "53400")
_DISK: Final = ("53100", "58", "25006")
_IN_USE: Final = ("55P03", "57014", "40")
_FORBIDDEN: Final = ("42501",)
_LONGEST: Final = 300


@contextmanager
def translated(where: object) -> Iterator[None]:
    """Turn errors of the database at ``where`` into ours.

    Raises:
        UnreachableError: it does not answer, or the connection broke.
        DiskError: its disk is full, read-only or failing.
        StateError: somebody else is at it, or our role may not.
        LedgerError: it is damaged, or a rule of its tables was broken.
    """
    try:
        yield
    except psycopg.Error as error:
        raise _of(error, where) from error


def _of(error: psycopg.Error, where: object) -> PateError:
    state = getattr(error, "sqlstate", None) or ""
    said = first_line(error)
    if state.startswith(_GONE) or (
        not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    ):
        return UnreachableError(lost(where, said))
    if state.startswith(_DISK):
        return DiskError(
            f"{where} cannot be written ({said}); make room on the database's disk, then "
            "`pate-server resume`"
        )
    if state.startswith(_IN_USE):
        return StateError(f"{where} is in use by another process ({said})")
    if state.startswith(_FORBIDDEN):
        return StateError(f"{where}: the role of --ledger may not do that ({said})")
    return LedgerError(f"{where} does not hold: {said}")


def lost(where: object, said: str) -> str:
    """Return what to say when there is no connection any more."""
    return (
        f"{where}: the database does not answer ({said}); what was committed stands, and nothing more "
        "is written: `pate-server resume` once it is back"
    )


def first_line(error: BaseException) -> str:
    """Return what an error says, one line, without the details of a row."""
    diagnosis = getattr(error, "diag", None)
    text = str(getattr(diagnosis, "message_primary", None) or type(error).__name__)
    if not getattr(error, "sqlstate", None) and isinstance(error, psycopg.OperationalError):
        text = str(error)  # of libpq itself: it knows of no rows
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
