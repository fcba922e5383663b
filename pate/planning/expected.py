"""What a campaign is expected to give, in words, from public facts only.

Server, check and page say the same of a campaign: before its parties come by a guess at their teachers or
records, afterwards by the teachers that they declared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.campaign.choices import RECORDS
from pate.campaign.default_noise import CLASSES
from pate.campaign.outlook import ENOUGH, Outlook, labels_for_all, one_in, plan_command
from pate.campaign.terms import matrix_mechanism, round_mechanisms
from pate.codes import AXES, DENSE, NEAREST, code_of
from pate.planning.neighbour import plan_representatives, plan_sums

if TYPE_CHECKING:
    from pate.campaign.choices import Guess
    from pate.campaign.spec import CampaignSpec

#: Assumed share of the records near a representative that are of its main class.
_PURITY: Final = 0.9
#: With this many times fewer labels than expected the guess at the records was probably wrong.
_FAR: Final = 3


@dataclass(frozen=True)
class Expected:
    """What to expect.

    Attributes:
        text: in words, with the guess that it rests on.
        few: whether a student probably learns too little from it.
        advice: what helps then; empty if nothing is needed.
        noise: why the noise is as large as it is, if the default rule chose it; else empty.
        labels: where records vote for a class, their expected number; else 0.
        helps: what helps where far fewer labels were released.
    """

    text: str
    few: bool = False
    advice: str = ""
    noise: str = ""
    labels: float = 0.0
    helps: str = ""

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
    teachers: int = 0,
    classes: int | None = None,
    reached: int | None = None,
) -> Expected:
    """Return what a campaign is expected to give.

    Args:
        spec: of it.
        guess: of its coordinator.
        teachers: of the roster; 0 while that is unknown, and where records vote.
        classes: of the roster; None: as many as the specification states, or a guess.
        reached: votes of a query that one unit of privacy moves; None: as if parties were alike.

    Raises:
        UsageError: for settings that make no sense together, or a rarest class that cannot be.
        BudgetError: if no noise gives so small an epsilon.
    """
    if spec.neighbour is not None:
        return _of_records(spec, guess, classes)
    if spec.one_release:
        return Expected(_of_teachers(spec, teachers or guess.teachers, reached, classes))
    prefix = ""
    if not teachers:
        each = Outlook.teachers_wanted(spec)
        teachers = guess.teachers or each * spec.wanted_parties
        prefix = f"if each party has {each} teachers, "
        if guess.teachers:
            prefix = f"with {teachers} teachers "
    outlook = Outlook.of(spec, teachers, classes, reached, guess.rarest)
    return Expected(
        f"{prefix}{outlook.in_words}",
        outlook.few,
        outlook.advice() if outlook.few else "",
        "" if outlook.noise is None else outlook.noise.reason,
    )


def _of_teachers(
    spec: CampaignSpec, teachers: int | None, reached: int | None, classes: int | None
) -> str:
    """Return what to expect of teachers' votes in one release."""
    code = code_of(spec.code)
    text = f"one release of noisy counts, {code.in_words}"
    if code.name != AXES:
        rest = (
            "a label where one leads clearly" if code.answer.labelled else "no query gets a label"
        )
        return f"{text}; {rest}"
    number = teachers or Outlook.teachers_wanted(spec) * spec.wanted_parties
    if reached is None:
        reached = -(-number // spec.wanted_parties) if spec.unit == "party" else 1
    mechanism = matrix_mechanism(spec, reached)
    noise = mechanism.shares.spread(spec.wanted_parties if spec.sums.distributed else 1)
    numbers = math.sqrt(code.places * ((classes or len(spec.classes or ()) or CLASSES) - 1))
    length = noise * numbers / (code.grid * number)
    return f"{text}; the noise is {100 * length:.2g} % as long as the sum of {number:,} teachers that agree"


def _of_records(spec: CampaignSpec, guess: Guess, classes: int | None) -> Expected:
    """Return what to expect where records vote."""
    terms = spec.neighbour
    assert terms is not None  # noqa: S101 - by the caller
    code, number = code_of(terms.code), len(terms.representatives)
    records = guess.records or RECORDS
    known = classes or len(spec.classes or ())
    m = known or CLASSES
    mechanism = (
        round_mechanisms(spec, 1)[-1]
        if spec.in_rounds
        else matrix_mechanism(spec, terms.votes_per_patient)
    )
    adding = spec.wanted_parties if spec.sums.distributed else 1
    noise = mechanism.shares.spread(adding) / code.grid
    voting = (
        f"if {records:,} records vote ({'your guess' if guess.records else '--expected-records'})"
    )
    rare = "" if guess.rarest is None else _of_rarest(guess.rarest, records, m if known else 2)
    if spec.in_rounds:
        return Expected(
            f"class counts, then {spec.rounds - 1} rounds of sums in {number} directions, each of what "
            f"records disagree with the model before it; {voting}, the noise in each is "
            f"{100 * noise / records:.2g} % of what all of them could sum to, and the last model is for "
            f"the student{rare}"
        )
    if code.name == DENSE:
        plan = plan_sums(number, code, records=records, columns=m, noise=noise)
        return Expected(
            f"one release of sums in {number} directions; {voting}, the noise in each is "
            f"{100 * plan.error:.2g} % of what all records of a class could sum to{rare}"
        )
    if not code.answer.one_hot:
        return Expected(f"one release of noisy counts at {number} representatives, and no labels")
    found = plan_representatives(
        number,
        records=records,
        classes=m,
        purity=_PURITY,
        sigma=noise,
        threshold=mechanism.threshold,
    )
    about = f"{m} classes" + ("" if known else " (a guess: --classes)")
    few = found.labels < min(labels_for_all(m), number / 2)
    text = (
        f"one release over {number} representatives; {voting}, and near each 9 of 10 are of one class, "
        f"about {found.labels:.0f} get a label, of {about}"
        + (f": few, for a student wants {ENOUGH} or more of each" if few else "")
        + rare
    )
    command = plan_command(
        {
            "records": guess.records, "parties": spec.wanted_parties, "classes": known or None,
            "representatives": number, "epsilon": spec.epsilon, "delta": spec.delta,
            "unit": spec.unit,
            "votes-per-patient": terms.votes_per_patient if spec.unit == "patient" else None,
            "code": None if str(code) == NEAREST else terms.code.partition(" ")[0],
        },
        "pate plan-neighbour",
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
    return Expected(text, few, advice if few else "", labels=found.labels, helps=helps)


def _of_rarest(rarest: float, records: int, classes: int) -> str:
    """Return what to expect of the rarest class where records vote."""
    labels_for_all(classes, rarest)  # refuses a share that cannot be
    return (
        f"; if your rarest class is {one_in(rarest)}, expect {records * rarest:.0f} records of it, and few "
        "labels, which are those of most records nearby: a student then ranks it, and finds it by a "
        "threshold (`pate-student evaluate --positive CLASS --at-sensitivity 0.8`)"
    )
