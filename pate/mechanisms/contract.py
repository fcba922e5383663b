"""The interface of mechanisms: vote rows in, outcomes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pate.errors import ProtocolError, UsageError
from pate.exact import TextForm

if TYPE_CHECKING:
    from pate.accounting.events import Charged, Event
    from pate.noise.exact import Noise

#: Votes of one query: (classes,) int64, or of several: (queries, classes) int64.
Votes = NDArray[np.int64]

#: Counts and thresholds stay below it, so that count + noise stays far below 2^63.
MOST_TEACHERS = 2**40


@dataclass(frozen=True)
class Outcome:
    """The answer to one query and its privacy events.

    Attributes:
        label: the class, or None where there is no answer.
        source: ``teachers`` for their noisy vote; ``records`` for that of the records themselves;
            ``reinforced`` for the student's own prediction, confirmed; None where there is no
            answer.
        events: what was released, in order; also where there is no answer.
    """

    label: int | None
    source: Literal["teachers", "records", "reinforced"] | None
    events: tuple[Charged, ...]

    def __post_init__(self) -> None:
        if (self.label is None) != (self.source is None):
            raise UsageError(f"a label has a source: got {self.label} from {self.source}")


class Mechanism(Protocol):
    """From a vote row to a label or no answer.

    Ties are broken towards the lowest class index everywhere: a public rule, so it costs
    nothing. All comparisons are of integers.
    """

    tag: ClassVar[str]
    name: ClassVar[str]
    #: Whether :meth:`answer_all` needs the student's predictions.
    interactive: ClassVar[bool]
    #: Whether its rows already contain the parties' noise. It then draws none: exact rows would be
    #: unprotected, and it cannot detect that, so the caller must ensure it.
    noise_inside: ClassVar[bool]

    @property
    def votes_per_unit(self) -> int:
        """Votes that one unit of privacy can move, or casts."""

    @property
    def worst(self) -> tuple[Event, ...]:
        """The events of the most expensive outcome, which a query reserves."""

    def answer_all(
        self, rows: Votes, noise: Noise, predictions: Votes | None = None
    ) -> tuple[Outcome, ...]:
        """Answer several queries, each by itself.

        The noise of all is drawn together, which is much faster than one by one.

        Args:
            rows: (queries, classes) int64, votes; with their noise, and maybe below 0, if
                ``noise_inside``.
            noise: source of noise; unused if ``noise_inside``.
            predictions: (queries, classes) int64, expected votes of the student as of
                :func:`~pate.mechanisms.rule.round_predictions`; only an interactive
                mechanism reads them.

        Raises:
            ProtocolError: for rows or predictions that cannot be votes.
            UsageError: if predictions are missing that the mechanism needs.
        """

    def to_dict(self) -> dict[str, str | int]:
        """Return the exact text form, of :func:`~pate.mechanisms.mechanism_from_dict`."""


class MechanismText(TextForm):
    """The text form of a mechanism; see :func:`~pate.mechanisms.mechanism_from_dict`."""

    tag: ClassVar[str] = "mechanism"


def check_rows(rows: Votes, what: str = "votes", *, noisy: bool = False) -> Votes:
    """Return ``rows`` if they are (queries, classes) int64 counts of two classes or more.

    Args:
        rows: to be checked.
        what: to call them in the message.
        noisy: whether noise may have put a count below 0.

    Raises:
        ProtocolError: otherwise.
    """
    if rows.dtype != np.int64:
        raise ProtocolError(f"{what} are {rows.dtype}, not int64")
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise ProtocolError(f"{what} of shape {rows.shape} are not (queries, at least 2 classes)")
    least = -MOST_TEACHERS if noisy else 0
    if rows.size and (int(rows.min()) < least or int(rows.max()) > MOST_TEACHERS):
        raise ProtocolError(f"{what} have a count outside [{least}, {MOST_TEACHERS}]")
    return rows


def check_threshold(threshold: int) -> int:
    """Return ``threshold`` if it is a whole number of votes of sane size, else raise UsageError."""
    if isinstance(threshold, bool) or not isinstance(threshold, int):
        raise UsageError(f"the threshold is a whole number of votes, got {threshold!r}")
    if abs(threshold) > MOST_TEACHERS:
        raise UsageError(f"a threshold of {threshold} votes is beyond any roster")
    return threshold
