"""What a budget pays for, and what a student may learn of it: said before parties vote, and after.

All of it follows from public facts: the settings, the number of teachers, and labels that were released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pate.campaign.default_noise import CLASSES
from pate.campaign.terms import budget, composition_of, noise_of, resolve
from pate.errors import BudgetError
from pate.mechanisms import worst_cost
from pate.runtime.screen import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pate.campaign.default_noise import DefaultNoise
    from pate.campaign.spec import CampaignSpec

#: With fewer labels of a class a student has little to learn from.
ENOUGH: Final = 10
#: What `pate-party start` makes of a party's data unless told otherwise.
TEACHERS_EACH: Final = 10
#: Without a number of classes, fewer labels than this share of the public set are few, too.
_SHARE: Final = 0.02
#: Characters of a class's name that are shown.
_LONGEST_NAME: Final = 40
#: More teachers a party are no advice, nor is an epsilon that is larger, or so many times the stated.
_MOST_EACH: Final = 1000
_MOST_EPSILON: Final = 10.0
_MOST_TIMES: Final = 3.0


@dataclass(frozen=True)
class Outlook:
    """What the budget of a campaign with teachers pays for, whatever they vote.

    Attributes:
        spec: of the campaign.
        teachers: of all parties, or a guess.
        classes: m, or a guess.
        sure: whether the number of classes is known.
        reached: k, votes that one unit of privacy moves.
        noise: that the rule picked; None if it is stated.
        labels: that the budget pays for if every query asked gets one; fewer queries with a label make
            it pay for more queries.
    """

    spec: CampaignSpec
    teachers: int
    classes: int
    sure: bool
    reached: int
    noise: DefaultNoise | None
    labels: int

    @classmethod
    def of(
        cls,
        spec: CampaignSpec,
        teachers: int,
        classes: int | None = None,
        reached: int | None = None,
    ) -> Outlook:
        """Return what to expect of a campaign that has teachers.

        Args:
            spec: of it.
            teachers: M.
            classes: m; None: as many as the specification states, or ten.
            reached: k; None: as if all parties had equally many teachers.

        Raises:
            UsageError: for settings that make no sense together.
        """
        known = classes or len(spec.classes or ())
        number = known or CLASSES
        if reached is None:
            reached = -(-teachers // spec.wanted_parties) if spec.unit == "party" else 1
        most = min(spec.queries, spec.max_queries or spec.queries)
        mechanisms = resolve(spec, teachers, reached, number)
        composition = composition_of(spec, mechanisms)
        try:
            cap = budget(spec, mechanisms, composition)
        except BudgetError:
            labels = 0
        else:
            labels = most
            if spec.gate is None:
                labels = min(most, int(cap / worst_cost(composition, mechanisms, 1)))
        noise = noise_of(spec, teachers, reached, number)
        return cls(spec, teachers, number, bool(known), reached, noise, labels)

    @property
    def wanted(self) -> int:
        """Labels of which a student may learn all classes, as far as the public set has so many."""
        wanted = ENOUGH * self.classes
        if not self.sure:
            wanted = max(wanted, math.ceil(_SHARE * self.spec.queries))
        return min(wanted, self.spec.queries, self.spec.max_queries or self.spec.queries)

    @property
    def few(self) -> bool:
        """Whether the budget pays for fewer labels than a student should have."""
        return self.labels < self.wanted

    @property
    def in_words(self) -> str:
        """How many labels the budget pays for, and how many of a class that is."""
        if not self.labels:
            return "the budget does not pay for a single label"
        least = "" if self.spec.aggregator in ("gnmax", "lnmax") else "at most "
        each = self.labels / self.classes
        about = "fewer than one" if each < 1 else f"about {each:.0f}"
        classes = f"{self.classes} classes" + ("" if self.sure else " (a guess: --classes)")
        few = f": few, for a student wants {ENOUGH} or more of each" if self.few else ""
        gate = "" if self.spec.gate is None else ", if its gate opens"
        of = " of the teachers" if self.spec.interactive else ""  # a student's own cost nothing
        return (
            f"the budget pays for {least}{_many(self.labels, 'label')}{of}, {about} for each of {classes}"
            f"{gate}{few}"
        )

    def advice(self) -> str:
        """Return what to change if labels are few, with a command to try it by.

        Whether more teachers or more epsilon pay for enough is worked out by the rules of a start.
        """
        spec, parties = self.spec, self.spec.wanted_parties
        ways = []
        teachers = self._teachers_for()
        if teachers is not None:
            each = -(-teachers // parties)
            ways.append(
                f"{each} teachers at each party (`pate-party start --teachers {each}`; each learns from "
                "fewer records)"
            )
        if spec.gate is None:
            mechanisms = resolve(spec, self.teachers, self.reached, self.classes)
            composition = composition_of(spec, mechanisms)
            cost = worst_cost(composition, mechanisms, self.wanted)
            most = min(_MOST_EPSILON, _MOST_TIMES * spec.epsilon)
            if (epsilon := composition.epsilon(cost, spec.delta)) <= most:
                ways.append(f"`--epsilon {_two_digits(epsilon)}`")
        if self.noise is None and spec.gate is None:
            ways.append(
                "more noise (a larger --sigma2 or --scale, or none: then the server chooses)"
            )
        if spec.unit == "party":
            ways.append("more parties")
        else:
            ways.append("`--aggregator neighbour`, which needs no teachers and less epsilon")
        command = plan_command(
            {
                "mechanism": spec.aggregator,
                "teachers": teachers or self.teachers,
                "parties": parties,
                "classes": self.classes,
                "queries": spec.queries,
                "epsilon": spec.epsilon,
                "delta": spec.delta,
                "unit": spec.unit,
            }
        )
        return f"{', or '.join(ways)}. What to expect then: {command}"

    def _teachers_for(self) -> int | None:
        """Return how many teachers the budget pays for enough labels with; None if no number helps."""
        parties = self.spec.wanted_parties

        def enough(each: int) -> bool:
            return not replace(self.of(self.spec, each * parties, self.classes), sure=self.sure).few

        low, high = -(-self.teachers // parties), _MOST_EACH
        if low >= high or not enough(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high * parties


def plan_command(options: Mapping[str, object], command: str = "pate plan") -> str:
    """Return a command with its numbers filled in, to be copied; what is None is left out."""
    texts = {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in options.items()
        if value is not None
    }
    return " ".join(["`" + command, *(f"--{name} {text}" for name, text in texts.items())]) + "`"


def classes_in_words(
    counts: Sequence[int],
    classes: Sequence[str],
    *,
    noisy_counts: bool = False,
    more: bool = False,
) -> str:
    """Return which classes have few labels or none, and what to expect of a student; "" if none has.

    Args:
        counts: (classes,) labels of each class that were released.
        classes: their names.
        noisy_counts: whether a student also learns from noisy counts of all classes, which labels of
            neighbour votes come with.
        more: whether another round follows.
    """
    names = [_readable(name) for name in classes]
    without = [name for name, count in zip(names, counts, strict=True) if not count]
    rare = [name for name, count in zip(names, counts, strict=True) if 0 < count < ENOUGH]
    if not without and not rare:
        return ""
    parts = []
    if without:
        parts.append(f"no label of {len(without)} of {len(classes)} classes ({listed(without)})")
    if len(rare) == len(classes):
        parts.append(f"fewer than {ENOUGH} labels of every class")
    elif rare:
        parts.append(f"fewer than {ENOUGH} labels of {_many(len(rare), 'class')} ({listed(rare)})")
    if more:
        expect = "the next round may add some"
    elif noisy_counts:
        expect = "a student learns such classes from the noisy counts, which come with the labels"
    elif without:
        expect = "expect a poor student: it cannot learn a class of which there is no label"
    else:
        expect = "expect a weak student of these classes"
    return f"{', '.join(parts)}; {expect}"


def _readable(name: str) -> str:
    """Return a class's name, which a stranger may have chosen, fit for a screen."""
    shown = "".join(mark if mark.isprintable() else " " for mark in name[:_LONGEST_NAME])
    return shown if len(name) <= _LONGEST_NAME else f"{shown}…"


def _many(number: int, one: str) -> str:
    if number == 1:
        return f"1 {one}"
    return f"{number:,} {one}{'es' if one.endswith('s') else 's'}"


def _two_digits(epsilon: float) -> str:
    """Return an epsilon with two digits, rounded up."""
    step = 10.0 ** (math.floor(math.log10(epsilon)) - 1)
    return f"{math.ceil(epsilon / step) * step:.6g}"
