"""The errors of the system: one hierarchy, each kind with a stable exit code.

::

    PateError               1   any other error of this system
    ├── UsageError          2   an invalid option, or options that exclude each other
    ├── DataError          10   a file or folder of data that cannot be used as it is
    ├── SchemaError        11   two sides with other classes, columns or public sets
    ├── StateError         12   a state directory that belongs to something else, or is in use
    ├── BudgetError        20   a query that does not fit the remaining privacy budget
    ├── AccountingError    21   NaN, a negative cost, an epsilon that shrinks: the accountant stops
    ├── LedgerError        22   a ledger whose chain, totals or releases do not hold
    ├── InfeasibleError    23   a guarantee that no available setting can give
    ├── ProtocolError      30   bytes from the network that are not a valid message
    ├── QuorumError        31   too few parties are left to continue
    ├── RefusedError       32   the other side refused
    ├── UnreachableError   40   a server that does not answer
    ├── PortInUseError     41   a port that is in use
    ├── ProcessError       42   a child process that ended unexpectedly
    ├── DiskError          43   a disk that is full or not writable
    └── UndecidedError     44   a check that found nothing out in its time

The message of an error is for the operator of the process: it may name local paths and values. Only
:attr:`PateError.public`, a fixed sentence per kind, may be sent to another party.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing import Self


class PateError(Exception):
    """Base of all errors that a command turns into one line and an exit code."""

    exit_code: ClassVar[int] = 1
    #: The text that may be sent to the other side. Never built from data.
    public: ClassVar[str] = "internal error"

    def followed_by(self, text: str) -> Self:
        """Return the error with a text to be printed below it, line by line: the end of a log."""
        for line in text.splitlines():
            self.add_note(line)
        return self


class UsageError(PateError):
    """An invalid option, or options that exclude each other."""

    exit_code = 2
    public = "it was started with options that do not fit together"


class DataError(PateError):
    """Data that cannot be used as it is: missing, truncated, NaN, too few records."""

    exit_code = 10
    public = "its data could not be used"


class SchemaError(PateError):
    """Two sides that do not describe the same classes, columns, image size or public set."""

    exit_code = 11
    public = "its classes, columns or public set are not those of the campaign"


class StateError(PateError):
    """A state directory that belongs to another campaign, has other parameters, or is in use."""

    exit_code = 12
    public = "its state directory holds something else"


class BudgetError(PateError):
    """A query whose worst cost does not fit the remaining budget."""

    exit_code = 20
    public = "the privacy budget does not allow it"


class AccountingError(PateError):
    """NaN, a negative cost or a shrinking epsilon in the accounting."""

    exit_code = 21
    public = "its privacy accounting stopped"


class LedgerError(PateError):
    """A ledger whose hash chain, totals or releases do not hold."""

    exit_code = 22
    public = "its ledger does not verify"


class InfeasibleError(PateError):
    """A privacy guarantee that these parameters cannot give at any budget."""

    exit_code = 23
    public = "no setting within its reach gives that guarantee"


class ProtocolError(PateError):
    """Bytes from the network that are not a valid message of this protocol."""

    exit_code = 30
    public = "it got a message that it could not accept"


class QuorumError(PateError):
    """Too few parties are left to continue.

    ``to_do`` is for whoever reads it as the last line: where the step is tried again, ``what`` is enough.
    """

    exit_code = 31
    public = "too few parties are left"

    def __init__(self, what: str, to_do: str = "") -> None:
        super().__init__(f"{what}: {to_do}" if to_do else what)
        self.what = what


class RefusedError(PateError):
    """The other side understood the request and refused it."""

    exit_code = 32
    public = "it refuses this campaign"


class UnreachableError(PateError):
    """A server that does not answer."""

    exit_code = 40
    public = "it cannot be reached"


class PortInUseError(PateError):
    """A port that is in use."""

    exit_code = 41
    public = "a port it needs is taken"


class ProcessError(PateError):
    """A child process that ended unexpectedly."""

    exit_code = 42
    public = "one of its processes ended"


class DiskError(PateError):
    """A disk that is full or a directory that cannot be written."""

    exit_code = 43
    public = "its disk cannot be written"


class UndecidedError(PateError):
    """A check that found nothing out in its time, neither good nor bad."""

    exit_code = 44
    public = "it could not check its configuration in time"


def every_kind() -> dict[str, type[PateError]]:
    """Return all error kinds by class name, the base included."""
    found: dict[str, type[PateError]] = {}
    pending: list[type[PateError]] = [PateError]
    while pending:
        kind = pending.pop()
        found[kind.__name__] = kind
        pending.extend(kind.__subclasses__())
    return found
