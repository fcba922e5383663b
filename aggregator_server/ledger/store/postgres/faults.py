"""Translation of PostgreSQL's errors.

Only the first line of a server error is passed on: its details show the row, and rows contain
votes.
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
    """Translate errors of the database at ``where``.

    Raises:
        UnreachableError: it does not answer, or the connection broke.
        DiskError: its disk is full, read-only or failing.
        StateError: another process uses it, or our role lacks the permission.
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
        return StateError(f"{where}: the role of --ledger lacks the permission ({said})")
    return LedgerError(f"{where} is damaged: {said}")


def lost(where: object, said: str) -> str:
    """Return the message for a lost connection."""
    return (
        f"{where}: the database does not answer ({said}); committed entries are safe, and "
        "nothing more is written: `pate-server resume` once it is available"
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error, without the details of a row."""
    diagnosis = getattr(error, "diag", None)
    text = str(getattr(diagnosis, "message_primary", None) or type(error).__name__)
    if not getattr(error, "sqlstate", None) and isinstance(error, psycopg.OperationalError):
        text = str(error)  # of libpq itself, which knows no rows
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
