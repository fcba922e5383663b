"""Choices of a campaign, and validation shared by server and parties."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Aggregator = Literal["lnmax", "gnmax", "confident-gnmax", "interactive-gnmax", "neighbour"]

#: How votes reach the server. ``plain``: each party's votes. ``masked``: only their sum.
Aggregation = Literal["plain", "masked"]

#: Who draws the noise. ``central``: the server. ``distributed``: each party draws a share, so that
#: the server sees no exact sum.
NoiseSource = Literal["central", "distributed"]

#: How labels are released. ``capped``: as they are answered, under a data-independent cap.
#: ``gated``: all of a batch, if a private test finds their data-dependent cost below a target.
Publish = Literal["capped", "gated"]

#: Unit of privacy, the weakest guarantee first.
Unit = Literal["record", "patient", "party"]

#: What teachers' votes are released as, in the text of a campaign: labels, one by one; the noisy counts of
#: all queries, of plain or of balanced votes; else an array of so many directions, ``axes-K``.
BY_LABEL: Final = "labels"
COUNTS: Final = "counts"
BALANCED_COUNTS: Final = "balanced"
#: A command's word for arrays whose number of directions is open.
ARRAYS: Final = "arrays"

#: How the costs of answers add up.
CompositionName = Literal["gdp", "pure", "zcdp", "gate"]

#: Why a campaign may end before it asks for votes, in words.
EARLY_ENDS: Final[Mapping[str, str]] = {
    "threshold": "no votes of its parties can reach its threshold",
}

AGGREGATORS: Final[tuple[Aggregator, ...]] = get_args(Aggregator)
AGGREGATIONS: Final[tuple[Aggregation, ...]] = get_args(Aggregation)
NOISES: Final[tuple[NoiseSource, ...]] = get_args(NoiseSource)
#: Default number of teachers of a party, and what a server assumes of one before it is there.
TEACHERS_EACH: Final = 10
#: Most teachers that a campaign may want of a party whose owner states no number.
MOST_WANTED: Final = 1000
#: A teacher that learns from fewer records, or patients, on average is little better than a guess.
RECORDS_EACH: Final = 10
#: Assumed number of records of all parties, where none is stated.
RECORDS: Final = 10_000
PUBLISH: Final[tuple[Publish, ...]] = get_args(Publish)
UNITS: Final[tuple[Unit, ...]] = get_args(Unit)
COMPOSITIONS: Final[tuple[CompositionName, ...]] = get_args(CompositionName)


@dataclass(frozen=True)
class Guess:
    """A coordinator's guesses, which are no terms of a campaign."""

    records: int | None = None  # of all parties; None: the default
    rarest: float | None = None  # share of the rarest class; None: unknown
    teachers: int | None = None  # of all parties; None: as many at each as a party has by default


NO_GUESS: Final = Guess()


def check_choice(field: str, value: object, possible: Sequence[str]) -> None:
    """Check that ``value`` is one of the possible ones."""
    if value not in possible:
        raise UsageError(f"{field} is {value!r:.40}, possible are {', '.join(possible)}")


def check_count(field: str, value: object, least: int, most: float = math.inf) -> None:
    """Check that ``value`` is a whole number from ``least`` to ``most``."""
    # bool is an int in Python.
    if type(value) is not int or value < least:
        raise UsageError(f"{field} must be an integer of at least {least}, got {value!r:.60}")
    if value > most:
        raise UsageError(f"{field} must be an integer of at most {most}, got {value!r:.60}")


def check_budget(epsilon: float, delta: float, *, records_vote: bool) -> None:
    """Check a privacy budget: delta may be 0 for neighbour votes, whose noise is then geometric."""
    if not 0 < epsilon < math.inf:
        raise UsageError(f"epsilon must be a positive number, got {epsilon!r}")
    check_delta(delta, records_vote=records_vote)


def check_delta(delta: float, *, records_vote: bool) -> None:
    """Check the delta of a privacy budget, as :func:`check_budget` does."""
    if not 0 <= delta < 1:
        raise UsageError(f"delta is a probability below 1, got {delta!r}")
    if delta == 0 and not records_vote:
        raise UsageError(
            "delta 0 is for neighbour votes (--aggregator neighbour): it must be above 0"
        )
