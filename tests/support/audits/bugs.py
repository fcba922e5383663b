"""Bugs that an audit should find.

:mod:`tests.support.audits.planting` plants each in the code that ships, and
:mod:`tests.support.audits.foretold` says from its exact laws how many runs find it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from pate.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Mechanism
from pate.noise.share_laws import GeometricShares


@dataclass(frozen=True)
class Bug:
    """One way in which code may deviate from what the accountant charges for."""

    name: str  # in plain words, stable, since JSON contains it
    check: Fraction = Fraction(1)  # factor on the noise of the threshold test; 0 for none
    # factors on the noise of the counts, for classes with even and with odd index
    label: tuple[Fraction, Fraction] = (Fraction(1), Fraction(1))
    # over which axis the noise on the counts is drawn only once; ``checks``: that of the threshold
    # test, for all queries
    one_draw: Literal["classes", "queries", "checks"] | None = None
    alike: tuple[int, int] | None = None  # two classes that share the draw of a query
    even: bool = False  # whether all noise is twice a draw of half its size
    cut: int | None = None  # at how many scales geometric noise, or each share of it, is cut
    gate: Fraction = Fraction(1)  # factor on the noise of the gate's coin; 0 for none
    ungated: bool = False  # whether labels are released without the gate
    # how many of the noise shares are left out: ``one``, or ``half`` of them
    shares_missing: Literal["one", "half"] | None = None
    one_vote: bool = False  # whether the accountant assumes that each unit reaches one vote
    free: bool = False  # whether every second charge is skipped

    @property
    def of_batch(self) -> bool:
        """Whether all runs of a call share their noise."""
        return self.one_draw in ("queries", "checks")


_NO, _ONE, _SMALL = Fraction(0), Fraction(1), Fraction(2, 3)

NO_CHECK_NOISE: Final = Bug("no noise at the check", check=_NO)
NO_LABEL_NOISE: Final = Bug("no noise at the label", label=(_NO, _NO))
NO_NOISE: Final = Bug("no noise at all", check=_NO, label=(_NO, _NO), gate=_NO)
NO_GATE_NOISE: Final = Bug("no noise at the gate", gate=_NO)
NO_GATE: Final = Bug("labels leave without the gate", ungated=True)
ONE_DRAW: Final = Bug("one draw for all classes", one_draw="classes")
SAME_DRAW: Final = Bug("one draw for all queries", one_draw="queries")
SAME_CHECK: Final = Bug("one draw of the check for all queries", one_draw="checks")
EVEN: Final = Bug("noise that is always even", even=True)
CUT: Final = Bug("noise, or shares, cut at 5 scales", cut=5)
EVERY_SECOND: Final = Bug("noise on every second class only", label=(_ONE, _NO))
SMALL: Final = Bug("noise 1.5 times too small", check=_SMALL, label=(_SMALL, _SMALL), gate=_SMALL)
ONE_SHARE: Final = Bug("the noise share of one party missing", shares_missing="one")
HALF_SHARES: Final = Bug("the noise shares of half the parties missing", shares_missing="half")
ONE_VOTE: Final = Bug("a unit charged as if it reached one vote", one_vote=True)
FREE: Final = Bug("every second charge skipped", free=True)


def one_draw_for(first: int, second: int) -> Bug:
    """Return the bug that two classes share their noise. It shows in the order of these two only."""
    return Bug(f"one draw for classes {first} and {second}", alike=(first, second))


#: Of the six couples of classes one is in the list: each is the leading one in a query of some pair.
TWO_ALIKE: Final = one_draw_for(2, 3)

#: Bugs of mechanisms with a threshold test; of those without; of released or visible noisy counts.
_CHECKED: Final = (
    NO_CHECK_NOISE, NO_LABEL_NOISE, NO_NOISE, ONE_DRAW, TWO_ALIKE, SAME_DRAW, SAME_CHECK, EVERY_SECOND,
    EVEN, SMALL, ONE_VOTE, FREE,
)  # fmt: skip
_LABELLED: Final = (
    NO_NOISE, ONE_DRAW, TWO_ALIKE, SAME_DRAW, EVERY_SECOND, EVEN, SMALL, ONE_VOTE, FREE,
)  # fmt: skip
_SHARED: Final = (
    NO_NOISE, ONE_SHARE, HALF_SHARES, ONE_DRAW, SAME_DRAW, EVERY_SECOND, EVEN, SMALL, ONE_VOTE, FREE,
)  # fmt: skip
_COUNTED: Final = tuple(bug for bug in _SHARED if bug.shares_missing is None)
#: Bugs of a gate before a whole batch.
GATED: Final = (NO_GATE_NOISE, NO_GATE, NO_LABEL_NOISE, NO_NOISE, ONE_DRAW, SMALL, ONE_VOTE)


def bugs_of(mechanism: Mechanism) -> tuple[Bug, ...]:
    """Return the bugs that the code of a mechanism may have."""
    if isinstance(mechanism, ConfidentGNMax | InteractiveGNMax):
        return _CHECKED
    if isinstance(mechanism, LNMax | GNMax):
        return _LABELLED
    found = _SHARED if mechanism.noise_inside else _COUNTED
    return (*found, CUT) if isinstance(mechanism.shares, GeometricShares) else found  # type: ignore[attr-defined]
