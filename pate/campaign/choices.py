"""Choices and parameters of a campaign, and validation shared by server and parties."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, get_args

from pate.accounting import Unit
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


#: The parameters that each aggregator has; others must stay None.
PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "lnmax": ("scale",),
    "gnmax": ("sigma2",),
    "confident-gnmax": ("threshold", "sigma1", "sigma2"),
    "interactive-gnmax": (
        "threshold", "interactive_threshold", "sigma1", "sigma2", "confidence",
    ),
    "neighbour": ("threshold", "sigma2", "scale"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The stated parameters of a mechanism, each above 0; None where the roster determines it."""

    threshold: Fraction | None = None
    # T of the later rounds of Interactive-GNMax, in votes by which the teachers exceed the student
    interactive_threshold: Fraction | None = None
    sigma1: Fraction | None = None  # parameter of the threshold's noise, in votes
    sigma2: Fraction | None = None  # parameter of the noise on each count, in votes
    # parameter of LNMax's Laplace noise (1/gamma), or of geometric noise, in votes
    scale: Fraction | None = None
    # least probability at which the student's own prediction is reinforced
    confidence: Fraction | None = None

    def __post_init__(self) -> None:
        for name, value in self.stated().items():
            if type(value) is not Fraction or value <= 0:
                raise UsageError(f"{name} must be a positive exact fraction, got {value!r}")
        if self.confidence is not None and self.confidence >= 1:
            raise UsageError(f"confidence is below 1, got {self.confidence}")

    def stated(self) -> dict[str, Fraction]:
        """Return the stated parameters by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def check(self, aggregator: Aggregator, *, distributed: bool) -> None:
        """Check that the mechanism has these parameters."""
        for name in self.stated():
            if name not in PARAMETERS[aggregator]:
                raise UsageError(f"{name} has no meaning for {aggregator}: leave it out")
        if distributed and self.sigma1 is not None:
            raise UsageError(
                "with noise shares one noisy histogram serves the threshold test and the label: "
                "leave sigma1 out, sigma2 is for both"
            )


def exact(field: str, text: str) -> Fraction:
    """Return the exact number given for an option, such as "40", "2.5" or "1/3"."""
    try:
        return Fraction(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        option = field.replace("_", "-")
        raise UsageError(
            f"--{option} must be a number such as 40, 2.5 or 1/3, got {text!r}"
        ) from error
