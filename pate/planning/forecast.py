"""What a campaign is expected to give, in words, from public facts only.

Server, check and page say the same of a campaign: before its parties come by a guess at their teachers or
records, afterwards by the teachers that they declared. The labels that a budget pays for follow from the
settings and the number of teachers; how many there are then, and how many of them are right, from the
probabilities that `pate plan` has, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Final

from pate.accounting.composition import tightest
from pate.campaign.choices import RECORDS, RECORDS_EACH, TEACHERS_EACH
from pate.campaign.defaults import CLASSES, teachers_for
from pate.campaign.terms import budget, composition_of, noise_of, resolve
from pate.codes import AXES, DENSE, NEAREST, code_of
from pate.errors import BudgetError, UsageError
from pate.mechanisms import worst_cost
from pate.printable import listed, number_of, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pate.campaign.choices import Guess
    from pate.campaign.defaults import DefaultNoise
    from pate.campaign.spec import CampaignSpec
    from pate.planning.plans import ReleasePlan

#: With fewer labels of a class a student learns it badly.
ENOUGH: Final = 10
#: Without a number of classes, fewer labels than this share of the public set are few, too.
_SHARE: Final = 0.02
#: Most displayed characters of a class's name.
_LONGEST_NAME: Final = 40
#: Most teachers of a party that are wanted so that there are enough labels.
_MOST_FOR_LABELS: Final = 100
#: Limits of advice: teachers per party, epsilon, and epsilon relative to the stated one.
_MOST_EACH: Final = 1000
_MOST_EPSILON: Final = 10.0
_MOST_TIMES: Final = 3.0
#: With this many times fewer labels than expected the guess at the records was probably wrong.
_FAR: Final = 3
#: Assumed vote histograms of a forecast.
_LOOK: Final = 500


@dataclass(frozen=True)
class Forecast:
    """What to expect."""

    text: str  # in words, with the guess that it rests on
    few: bool = False  # whether a student probably learns too little from it
    advice: str = ""  # what helps then; empty if nothing is needed
    noise: str = ""  # why the noise is as large as it is, if the default rule chose it; else empty
    labels: float = 0.0  # where records vote for a class, their expected number; else 0
    helps: str = ""  # what helps where far fewer labels were released

    def fewer(self, labels: int) -> str:
        """Return a warning about the guess at the records if far fewer labels were released, else ""."""
        if _FAR * labels >= self.labels:
            return ""
        return (
            f"{labels} labels, where about {self.labels:.0f} were expected: fewer records vote than guessed, "
            f"or they agree less. What helps: another campaign with {self.helps}, which has fewer "
            "representatives, and more votes at each"
        )


def expected(
    spec: CampaignSpec,
    guess: Guess,
    *,
    teachers: int = 0,  # of the roster; 0 while that is unknown, and where records vote
    # of the roster; None: as many as the specification states, or a guess
    classes: int | None = None,
    # votes of a query that one unit of privacy moves; None: as if parties were alike
    reached: int | None = None,
) -> Forecast:
    """Return what a campaign is expected to give."""
    if spec.records_vote:
        return _of_records(spec, guess, classes)
    if spec.one_release:
        return Forecast(_of_teachers(spec, teachers or guess.teachers, reached, classes))
    prefix = ""
    if not teachers:
        each = teachers_wanted(spec)
        teachers = guess.teachers or each * spec.wanted_parties
        prefix = f"if each party has {each} teachers, "
        if guess.teachers:
            prefix = f"with {teachers} teachers "
    forecast = PaidLabels.of(spec, teachers, classes, reached, guess.rarest)
    return Forecast(
        f"{prefix}{forecast.in_words}{forecast.likely}",
        forecast.few,
        forecast.advice() if forecast.few else "",
        "" if forecast.noise is None else forecast.noise.reason,
    )


def _of_teachers(
    spec: CampaignSpec, teachers: int | None, reached: int | None, classes: int | None
) -> str:
    """Return what to expect of teachers' votes in one release."""
    from pate.planning.plans import plan_release

    number = teachers or teachers_wanted(spec) * spec.wanted_parties
    if reached is None:
        reached = -(-number // spec.wanted_parties) if spec.unit == "party" else 1
    return release_in_words(spec, plan_release(spec, number, reached, classes))


def release_in_words(spec: CampaignSpec, plan: ReleasePlan) -> str:
    """Return what is expected of teachers' votes in one release."""
    code = code_of(spec.code)
    text = f"one release of noisy counts, {code.in_words}"
    if plan.length is not None:
        of = f"the sum of {plan.teachers:,} teachers that agree"
        return f"{text}; the noise is {100 * plan.length:.2g} % as long as {of}"
    noise = f"the noise on each is {plan.noise:.3g} votes of {plan.teachers:,} teachers"
    if not code.answer.labelled:
        return f"{text}; {noise}, and no query gets a label"
    return f"{text}; {noise}, and a class that leads by {plan.mechanism.threshold} is a label"


def _of_records(spec: CampaignSpec, guess: Guess, classes: int | None) -> Forecast:
    """Return what to expect where records vote."""
    from pate.planning.records import plan_records

    code, number = code_of(spec.code), len(spec.representatives or ())
    records = guess.records or RECORDS
    known = classes or len(spec.classes or ())
    m = known or CLASSES
    plan = plan_records(spec, records=records, columns=m)
    voting = (
        f"if {records:,} records vote ({'your guess' if guess.records else '--expected-records'})"
    )
    rare = "" if guess.rarest is None else _of_rarest(guess.rarest, records, m if known else 2)
    if spec.in_rounds:
        counted = "class counts" if code.answer.one_hot else "label counts"
        return Forecast(
            f"{counted}, then {spec.rounds - 1} rounds of sums in {number} directions, each of what "
            f"records disagree with the model before it; {voting}, the noise in each is "
            f"{100 * plan.noise / records:.2g} % of what all of them could sum to, and the last model is for "
            f"the student{rare}"
        )
    if code.name == DENSE:
        return Forecast(
            f"one release of sums in {number} directions; {voting}, the noise in each is "
            f"{100 * (plan.error or 0.0):.2g} % of what all records of a class could sum to{rare}"
        )
    if not code.answer.one_hot:
        return Forecast(f"one release of noisy counts at {number} representatives, and no labels")
    about = f"{m} classes" + ("" if known else " (a guess: --classes)")
    few = plan.labels < min(labels_for_all(m), number / 2)
    text = (
        f"one release over {number} representatives; {voting}, and near each 9 of 10 are of one class, "
        f"about {plan.labels:.0f} get a label, of {about}"
        + (f": few, for a student wants {ENOUGH} or more of each" if few else "")
        + rare
    )
    command = plan_command(
        {
            "aggregator": spec.aggregator, "expected-records": guess.records,
            "parties": spec.wanted_parties, "classes": known or None, "representatives": number,
            "epsilon": spec.epsilon, "delta": spec.delta, "unit": spec.unit,
            "votes-per-patient": spec.votes_per_patient if spec.unit == "patient" else None,
            "code": None if str(code) == NEAREST else spec.code.partition(" ")[0],
        }
    )  # fmt: skip
    advice = (
        f"more records, fewer --representatives, or more epsilon. What to expect then: {command}"
    )
    # Whoever has stated a guess is not advised to state one.
    helps = (
        f"--representatives {-(-number // 4)}"
        if guess.records
        else "--expected-records as they are"
    )
    return Forecast(text, few, advice if few else "", labels=plan.labels, helps=helps)


def _of_rarest(rarest: float, records: int, classes: int) -> str:
    """Return what to expect of the rarest class where records vote."""
    labels_for_all(classes, rarest)  # refuses a share that cannot be
    return (
        f"; if your rarest class is {one_in(rarest)}, expect {records * rarest:.0f} records of it, and few "
        "labels, which are those of most records nearby: a student then ranks it, and finds it by a "
        "threshold (`pate-student evaluate --positive CLASS --at-sensitivity 0.8`)"
    )


def labels_for_all(classes: int, rarest: float | None = None) -> int:
    """Return the number of labels of which enough are of each class; UsageError for an impossible share."""
    if rarest is None:
        return ENOUGH * classes
    if not 0 < rarest <= 1 / classes:
        raise UsageError(
            f"--rarest {rarest:g}: the rarest of {classes} classes has a share above 0 and of at most "
            f"{1 / classes:.3g}"
        )
    return math.ceil(ENOUGH / rarest)


def one_in(share: float) -> str:
    """Return a share as one in how many."""
    return f"1 in {1 / share:.0f}"


@dataclass(frozen=True)
class PaidLabels:
    """Number of labels that the budget of a campaign with teachers pays for, independent of their votes."""

    spec: CampaignSpec
    teachers: int
    classes: int
    sure: bool  # whether the number of classes is known
    reached: int  # k, votes that one unit of privacy moves
    noise: DefaultNoise | None  # chosen by the default rule; None if it is stated
    # number that the budget pays for if every query gets one; unlabelled queries cost less, so more
    # queries are affordable then
    labels: int
    rarest: float | None = None  # guessed share of the rarest class, None if unknown

    @classmethod
    def of(
        cls,
        spec: CampaignSpec,
        teachers: int,
        classes: int | None = None,
        reached: int | None = None,
        rarest: float | None = None,
    ) -> PaidLabels:
        """Return the forecast of a campaign with teachers; arguments as of :func:`expected`."""
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
        if rarest is not None and not known:
            number = CLASSES if rarest <= 1 / CLASSES else 2
        labels_for_all(number, rarest)  # refuses a share that cannot be
        return cls(spec, teachers, number, bool(known), reached, noise, labels, rarest)

    @property
    def wanted(self) -> int:
        """Number of labels that suffice for all classes, at most the public set."""
        wanted = labels_for_all(self.classes, self.rarest)
        if self.rarest is not None:
            return wanted
        if not self.sure:
            wanted = max(wanted, math.ceil(_SHARE * self.spec.queries))
        return min(wanted, self.spec.queries, self.spec.max_queries or self.spec.queries)

    @property
    def few(self) -> bool:
        """Whether the budget pays for fewer labels than a student should have."""
        return self.labels < self.wanted

    @property
    def in_words(self) -> str:
        """The number of labels that the budget pays for, in total and per class."""
        if not self.labels:
            return "the budget does not pay for a single label"
        least = "" if self.spec.aggregator in ("gnmax", "lnmax") else "at most "
        each = self.labels / self.classes if self.rarest is None else self.labels * self.rarest
        about = "fewer than one" if each < 1 else f"about {each:.0f}"
        if self.rarest is None:
            classes = f"{self.classes} classes" + ("" if self.sure else " (a guess: --classes)")
            shares = f"{about} for each of {classes} if these are equally frequent (else: --rarest)"
        else:
            shares = f"and if your rarest class is {one_in(self.rarest)}, expect {about} of it"
        few = f": few, for a student wants {ENOUGH} or more of each" if self.few else ""
        gate = "" if self.spec.gate is None else ", if its gate opens"
        of = " of the teachers" if self.spec.interactive else ""  # a student's own cost nothing
        return (
            f"the budget pays for {least}{number_of(self.labels, 'label')}{of}, {shares}{gate}{few}"
        )

    @property
    def likely(self) -> str:
        """How many labels there are then, and how many are right, if teachers are as `pate plan` assumes."""
        from pate.planning.plans import Campaign, make_plan
        from pate.planning.population import AGREEMENT, assumed_population

        spec = self.spec
        if not self.labels or spec.gate is not None or spec.interactive:
            return ""
        mechanism = resolve(spec, self.teachers, self.reached, self.classes)[0]
        try:
            plan = make_plan(
                mechanism,
                assumed_population(teachers=self.teachers, classes=self.classes, size=_LOOK),
                Campaign.of(spec),
                tightest(mechanism.worst).budget(spec.epsilon, spec.delta),
            )
        except (UsageError, BudgetError):  # more teachers, or wider noise, than a plan has
            return ""
        right = "" if plan.accuracy is None else f", {100 * plan.accuracy:.0f} % of them right"
        return (
            f"; if each teacher is right on {100 * AGREEMENT:.0f} % of the inputs, expect "
            f"{number_of(round(plan.answered), 'label')}{right}"
        )

    def advice(self) -> str:
        """Return what to change if there are few labels, by the rules of a start, with a command to try."""
        spec, parties = self.spec, self.spec.wanted_parties
        ways = []
        teachers = self.teachers_for()
        if teachers is not None:
            each = -(-teachers // parties)
            who = "patients" if spec.unit == "patient" else "records"
            ways.append(
                f"{each} teachers at each party that has {each * RECORDS_EACH} {who} or more "
                f"(`pate-party start --teachers {each}`)"
            )
        if self.wanted > min(spec.queries, spec.max_queries or spec.queries):
            ways.append(f"a public set of {self.wanted:,} inputs or more, and as many asked")
        elif spec.gate is None:
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
                "aggregator": spec.aggregator, "teachers": teachers or self.teachers,
                "parties": parties, "classes": self.classes, "queries": spec.queries,
                "rarest": self.rarest, "epsilon": spec.epsilon, "delta": spec.delta,
                "unit": spec.unit,
            }
        )  # fmt: skip
        return f"{', or '.join(ways)}. What to expect then: {command}"

    def teachers_for(self) -> int | None:
        """Return the number of teachers at which the budget suffices for enough labels, or None."""
        parties = self.spec.wanted_parties

        def enough(each: int) -> bool:
            found = self.of(self.spec, each * parties, self.classes, rarest=self.rarest)
            return not replace(found, sure=self.sure).few

        low, high = -(-self.teachers // parties), _MOST_EACH
        if low >= high or not enough(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high * parties


def teachers_wanted(spec: CampaignSpec) -> int:
    """Return k of a party whose owner states none: so many that the budget pays for enough labels.

    The default number if that is enough, or if no number up to :data:`_MOST_FOR_LABELS` is; 0 where
    records vote. Of arrays, so many that the noise is small.
    """
    if spec.records_vote:
        return 0
    if spec.one_release and (code := code_of(spec.code)).name == AXES:
        return teachers_for(
            spec.epsilon,
            spec.delta,
            spec.unit,
            places=code.places,
            parties=spec.wanted_parties,
            classes=len(spec.classes or ()) or None,
        )
    if spec.one_release:
        return TEACHERS_EACH
    parties = spec.wanted_parties
    try:
        forecast = PaidLabels.of(spec, TEACHERS_EACH * parties)
        needed = forecast.teachers_for() if forecast.few else None
    except UsageError:  # the settings fail where they are used
        needed = None
    wanted = TEACHERS_EACH if needed is None else needed // parties
    return wanted if wanted <= _MOST_FOR_LABELS else TEACHERS_EACH


def plan_command(options: Mapping[str, object], command: str = "pate plan") -> str:
    """Return a command with its values filled in, to be copied; None values are omitted."""
    texts = {
        name: f"{value:g}" if isinstance(value, float) else quote(str(value))
        for name, value in options.items()
        if value is not None
    }
    return " ".join(["`" + command, *(f"--{name} {text}" for name, text in texts.items())]) + "`"


def classes_in_words(
    counts: Sequence[int], classes: Sequence[str], *, noisy_counts: bool = False, more: bool = False
) -> str:
    """Return a warning about classes with few labels or none, and a student's prospects, or ""."""
    names = [printable(name, _LONGEST_NAME) for name in classes]
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
        some = number_of(len(rare), "class", "classes")
        parts.append(f"fewer than {ENOUGH} labels of {some} ({listed(rare)})")
    if more:
        expect = "the next round may add some"
    elif noisy_counts:
        expect = "a student learns such classes from the noisy counts, which come with the labels"
    elif without:
        expect = "expect a poor student: it cannot learn a class of which there is no label"
    else:
        expect = "expect a weak student of these classes"
    return f"{', '.join(parts)}; {expect}"


def _two_digits(epsilon: float) -> str:
    """Return an epsilon with two digits, rounded up."""
    step = 10.0 ** (math.floor(math.log10(epsilon)) - 1)
    return f"{math.ceil(epsilon / step) * step:.6g}"
