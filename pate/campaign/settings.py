"""From the coordinator's options to a campaign's specification."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pate.accounting.events import GatedBatch
from pate.accounting.filters import FAILING, SITE_DELTA, Delta
from pate.answers import (
    BALANCED,
    CLASS,
    LABELS,
    MOST_CLASSES,
    NONE,
    NUMBER,
    RESIDUAL,
    RESIDUAL_LABELS,
    Answer,
    answer_of,
    range_in,
)
from pate.campaign.announced import LARGEST_COUNT
from pate.campaign.choices import (
    ARRAYS,
    BALANCED_COUNTS,
    BY_LABEL,
    COUNTS,
    PUBLISH,
    RECORDS,
    check_budget,
    check_choice,
    exact,
)
from pate.campaign.defaults import directions_for
from pate.campaign.roster import SumTerms
from pate.campaign.spec import MOST_VOTES, CampaignSpec, new_campaign_id
from pate.codes import AXES, DENSE, EACH, MOST_DIRECTIONS, NEAREST, Code, code_of
from pate.data.cells import clean_name
from pate.data.values import Images, Inputs, content_hash
from pate.errors import UsageError
from pate.masking.context import most_colluders, threshold_for
from pate.rounds.plan import directions_of, plan_of, told_apart

if TYPE_CHECKING:
    from collections.abc import Callable

    from pate.campaign.options import MechanismOptions
    from pate.noise import NoiseLawName

    Say = Callable[[str], None]
    Choose = Callable[[Inputs, int, Say], tuple[int, ...]]

#: A size of a public set that bounds no number of representatives.
_ANY: Final = 10**9
#: In place of a public set's hash.
_UNREAD: Final = "0" * 64
#: Delta that a party's default policy reserves for all campaigns that may fail outright.
GATED_DELTA: Final = float(FAILING * Fraction(repr(SITE_DELTA)))


def require_sense(options: MechanismOptions) -> None:
    """Refuse options that no public set makes sense of, before one is read.

    Of neighbour votes most depends on the public set, so little of them is checked here.
    """
    if options.aggregator == "neighbour":
        options.parameters()
        _columns(options)
        code_of(options.code or NEAREST)
    else:
        spec_of(options, None)


def spec_of(
    options: MechanismOptions,
    inputs: Inputs | None,  # the public set; None: it is not read, see :func:`require_sense`
    *,
    say: Say = lambda _: None,
    # returns the representatives of neighbour votes; None: choose them here
    chosen: Choose | None = None,
) -> CampaignSpec:
    """Return the specification of a new campaign over a public set, from the options of its command."""
    delta = delta_of(options.publish, options.delta)
    records_vote = options.aggregator == "neighbour"
    check_budget(options.epsilon, delta, records_vote=records_vote)
    gate = make_gate(
        options.publish, options.epsilon, delta, options.gate_order, options.gate_share
    )
    roster = _roster(options.parties)
    count = roster if isinstance(roster, int) else len(roster)
    min_parties, colluders = options.min_parties, options.colluders
    aggregation = options.aggregation or ("masked" if count >= 3 else "plain")
    if aggregation == "masked":
        if min_parties is None:
            min_parties, colluders = threshold_for(count, colluders)
        elif colluders is None:
            colluders = most_colluders(count, min_parties)
    # One release of all counts: its noise may be the parties' at the same cost.
    whole = (
        options.aggregator == "neighbour"
        or _answer_of_teachers(options) != CLASS
        or options.release not in (None, BY_LABEL)
    )
    central = not whole or aggregation != "masked"
    sums = SumTerms(
        aggregation=aggregation,
        noise=options.noise or ("central" if central else "distributed"),
        min_parties=min_parties if min_parties is not None else max(1, -(-2 * count // 3)),
        colluders=colluders or 0,
    )
    columns = _columns(options)
    # Of nearest votes the law of the noise is known first, and how many representatives it allows;
    # of others it follows from the code.
    code = options.code or _default_code(options, inputs, delta, sums, say)
    if options.aggregator == "neighbour" and code == NEAREST:
        nearest = str(replace(code_of(NEAREST), answer=answer_of(options.answer or CLASS)))
        delta = _delta_of_matrix(options, delta, sums, count, say, nearest)
    points, cast = _cast_by_records(options, code, inputs, delta, sums, say, chosen)
    if cast is not None and code != NEAREST and not _in_rounds(cast):
        delta = _delta_of_matrix(options, delta, sums, count, say, str(cast))
    # Unread, it has as many inputs as any number of directions needs.
    queries = MOST_DIRECTIONS if inputs is None else len(inputs)
    most_votes = None
    if cast is not None:
        most_votes = options.most_votes or (
            max(1, min(LARGEST_COUNT, 2**20 // max(1, count))) if _in_rounds(cast) else MOST_VOTES
        )
    made = CampaignSpec(
        name=options.campaign,
        id=new_campaign_id(),
        aggregator=options.aggregator,
        parties=roster,
        sums=sums,
        public_set=_UNREAD if inputs is None else content_hash(inputs).hex(),
        queries=queries,
        schema="unread" if inputs is None else inputs.schema(),
        classes=columns,
        code=str(cast or _cast_by_teachers(options, queries, count, delta)),
        epsilon=float(options.epsilon),
        delta=float(delta),
        unit=options.unit,
        rounds=_rounds(options, cast, points),
        max_queries=options.max_queries,
        first_round_share=exact("first_round_share", options.first_round_share),
        parameters=options.parameters(),
        vote_proofs=options.vote_proofs,
        representatives=points,
        most_votes=most_votes,
        votes_per_patient=None if cast is None else options.votes_per_patient or 1,
        gate=gate,
        series=options.series,
    )
    if made.in_rounds:
        say(_rounds_in_words(made))
    return made


def _rounds(options: MechanismOptions, cast: Code | None, points: tuple[int, ...] | None) -> int:
    """Return the number of rounds: as stated, or where records vote in rounds by rule."""
    if cast is None or points is None or not _in_rounds(cast):
        return options.rounds or (2 if options.aggregator == "interactive-gnmax" else 1)
    if options.rounds is not None:
        return 1 + options.rounds
    columns = len(_columns(options) or ())
    records = options.expected_records or RECORDS
    mu = _mu_if_added(options.epsilon, delta_of(options.publish, options.delta))
    return 1 + plan_of(columns, len(points), records, mu).rounds


def _in_rounds(code: Code) -> bool:
    return code.answer.in_rounds


def _mu_if_added(epsilon: float, delta: float) -> float:
    """Return mu of a record that is added or removed; an altered one changes twice as much."""
    from pate.accounting.gdp import mu_from_epsilon

    return mu_from_epsilon(epsilon, delta) / 2


def _rounds_in_words(spec: CampaignSpec) -> str:
    from pate.campaign.terms import round_mechanisms

    adding = spec.wanted_parties if spec.sums.distributed else 1
    grid = code_of(spec.code).grid
    first, later = (each.shares.spread(adding) / grid for each in round_mechanisms(spec, 1))
    of_class = spec.voted_for.one_hot
    if not of_class:  # a record has a part of a vote at each of its labels
        from pate.rounds.record_array import labels_unit

        first *= grid / labels_unit(len(spec.classes or ()))
    counted = f"{'class' if of_class else 'label'} counts with noise of {first:.4g}"
    return (
        f"records vote in {spec.rounds} rounds: {counted} {'votes' if of_class else 'records'}, then "
        f"{spec.rounds - 1} times their disagreement with a public model, with noise of {later:.4g} on each "
        f"number; --answer {CLASS if of_class else f'{LABELS}-T'} is one release"
    )


def _default_code(
    options: MechanismOptions, inputs: Inputs | None, delta: float, sums: SumTerms, say: Say
) -> str:
    """Return the code where none is stated, by what the public set is; a line says so.

    Rows of an encoder and of a table have directions, in which records vote in rounds; images without
    an encoder have clusters. That was found on public benchmarks: docs/votes.md has the figures.
    Whatever rounds cannot have, as delta 0, has the nearest representative.
    """
    if options.aggregator != "neighbour" or inputs is None or isinstance(inputs, Images):
        return NEAREST
    if options.answer is not None and answer_of(options.answer).in_rounds:
        return DENSE
    others = (options.answer, options.range, options.representatives)
    if any(each is not None for each in others) or delta == 0:
        return NEAREST
    if not _votes_in_rounds(options, DENSE, delta, sums):
        if options.classes is None and options.series is None:
            say(
                "records vote at the nearest representative (--code nearest), in one release; if you name "
                "the classes (--classes a,b), they vote in directions, in rounds, which is mostly better"
            )
        return NEAREST
    say(
        "records vote in directions, in rounds (--code dense), since the classes are named; --code nearest "
        "is one release, for clusters and for delta 0"
    )
    return DENSE


def _cast_by_records(
    options: MechanismOptions,
    code: str,
    inputs: Inputs | None,
    delta: float,
    sums: SumTerms,
    say: Say,
    chosen: Choose | None,
) -> tuple[tuple[int, ...], Code] | tuple[None, None]:
    """Return at which rows of the public set records vote, and by which code; None for teachers."""
    given = {
        "--representatives": options.representatives,
        "--expected-records": None if options.release == ARRAYS else options.expected_records,
        "--code": options.code,
        "--range": options.range,
        "--most-votes": options.most_votes,
        "--votes-per-patient": options.votes_per_patient,
        "--noise-law": options.noise_law,
        "--series": options.series,
    }
    if options.aggregator != "neighbour":
        for option, value in given.items():
            if value is not None:
                more = " or --release arrays" if option == "--expected-records" else ""
                raise UsageError(f"{option} is for --aggregator neighbour{more}: leave it out")
        return None, None
    if options.release not in (None, BY_LABEL):
        raise UsageError(
            f"release = {options.release:.40} is not for neighbour: teachers' votes for a class are "
            "released at once with --aggregator gnmax"
        )
    if inputs is None:
        raise ValueError("representatives are chosen among public inputs")
    from pate.campaign.representatives import (
        choose,
        default_number,
        number_for,
        settled_code,
    )

    votes, number = options.votes_per_patient or 1, options.representatives
    columns, rounds = _columns(options), _votes_in_rounds(options, code, delta, sums)
    answer = answer_of(options.answer or CLASS)
    if isinstance(inputs, Images) and not answer.one_hot:
        raise UsageError(
            f"--answer {answer} needs a public set that is a table: no student learns it from images; give "
            "features of the images as a table"
        )
    if number is None:
        records = options.expected_records or RECORDS
        if options.expected_records is None:
            say(
                f"representatives are chosen as for {RECORDS:,} records of all parties, a guess; state yours "
                "with --expected-records"
            )
        usual = default_number(records, _ANY, options.epsilon, delta, votes * answer.most)
        number = number_for(code, usual, len(inputs))
        if code == DENSE and rounds:
            mu = _mu_if_added(options.epsilon, delta)
            classes = told_apart(len(columns or ()), several=answer.name == RESIDUAL_LABELS)
            number = directions_of(classes, records, mu, len(inputs))
    points = (chosen or choose)(inputs, number, say)
    settled = settled_code(code, len(points))
    if rounds and not answer.in_rounds:
        answer = Answer(RESIDUAL)
    return points, replace(settled, answer=answer)


def _votes_in_rounds(options: MechanismOptions, code: str, delta: float, sums: SumTerms) -> bool:
    """Return whether records vote in rounds: by default, in directions, for one of a list of classes.

    What asks for something else has one release: another answer or law of noise, stated noise, a series,
    a number of votes of a patient, or exact masked sums, unless a number of rounds is stated.
    """
    columns = _columns(options)
    if options.answer is not None:
        if not answer_of(options.answer).in_rounds:
            return False
        answer_of(options.answer).check_columns(columns)
        if delta == 0:
            raise UsageError("records that vote in rounds have Gaussian noise, at a delta above 0")
        return True
    others = (
        options.scale, options.sigma2, options.threshold, options.series, options.votes_per_patient
    )  # fmt: skip
    return (
        (code == DENSE or code_of(code).name == DENSE)
        and columns is not None
        and 2 <= len(columns) <= MOST_CLASSES
        and delta > 0
        and options.noise_law != "geometric"
        and all(each is None for each in others)
        and (options.rounds is not None or not sums.exact)
    )


def _columns(options: MechanismOptions) -> tuple[str, ...] | None:
    """Return the class list of a campaign, the columns of what is counted; None: that of the parties."""
    if (answer_of(options.answer or CLASS).name == NUMBER) != (options.range is not None):
        raise UsageError("--answer number needs its --range, and nothing else has one")
    if options.range is not None:
        if options.classes:
            raise UsageError("a number has no --classes: leave them out")
        return range_in(options.range)
    if not options.classes:
        return None
    names = tuple(map(clean_name, options.classes.split(",")))
    several = (
        options.aggregator == "neighbour"
        and answer_of(options.answer or CLASS).permission == LABELS
        and NONE not in names
    )
    return (*names, NONE) if several else names


def _answer_of_teachers(options: MechanismOptions) -> str:
    """Return what teachers say: a class where records vote, whose answer is among their terms."""
    if options.aggregator == "neighbour":
        return CLASS
    return str(answer_of(options.answer or CLASS))


def _cast_by_teachers(options: MechanismOptions, queries: int, parties: int, delta: float) -> Code:
    """Return how teachers vote, by what their votes are released as; of arrays in how many directions."""
    release, answer = options.release or BY_LABEL, _answer_of_teachers(options)
    columns, asked = _columns(options), min(queries, options.max_queries or queries)
    if (release, answer) == (BY_LABEL, CLASS):
        return code_of(NEAREST)
    if release == BY_LABEL:
        if options.aggregator != "gnmax" or answer_of(answer).name != LABELS:
            raise UsageError(
                f"answer = {answer:.40} is not for {options.aggregator}: teachers vote for a class, or "
                "with --aggregator gnmax for labels-T; --aggregator neighbour has more answers"
            )
        if columns is None:
            raise UsageError(f"answer = {answer} of teachers needs its labels: --classes")
        return code_of(f"{EACH}-{asked} {answer}-of-{len(columns)}")
    if options.aggregator != "gnmax" or answer != CLASS:
        raise UsageError(
            f"release = {release:.40} is not for {options.aggregator} with the answer {answer}: "
            "teachers' votes for a class are released at once with --aggregator gnmax"
        )
    if release in (COUNTS, BALANCED_COUNTS):
        return code_of(f"{EACH}-{asked}" + (f" {BALANCED}" if release == BALANCED_COUNTS else ""))
    if release == ARRAYS:
        places = directions_for(
            options.epsilon,
            delta,
            options.unit,
            queries=queries,
            parties=parties,
            classes=None if columns is None else len(columns),
            records=options.expected_records,
        )
        return code_of(f"{AXES}-{places}")
    if not release.startswith(f"{AXES}-"):
        raise UsageError(f"release is labels, counts, balanced or axes-K, got {release:.40}")
    return code_of(release)


def _delta_of_matrix(
    options: MechanismOptions,
    delta: float,
    sums: SumTerms,
    parties: int,
    say: Say,
    code: str = NEAREST,
) -> float:
    """Return the delta of neighbour votes: 0 with geometric noise, else as wanted.

    The law is the one that is stated, or whose parameter is; else that with the smaller noise.
    """
    from pate.mechanisms.least_noise import law_of_least_noise, noise_in_words

    honest, adding = (max(1, sums.honest), parties) if sums.distributed else (1, 1)
    of_one = options.epsilon, delta, honest, adding, options.votes_per_patient or 1
    named: dict[str, NoiseLawName | None] = {
        "--noise-law": options.noise_law,
        "--sigma2": None if options.sigma2 is None else "gaussian",
        "--scale": None if options.scale is None else "geometric",
        "--delta 0": "geometric" if delta == 0 else None,
    }
    laws = {law for law in named.values() if law is not None}
    if len(laws) > 1:
        each = ", ".join(f"{name} ({law})" for name, law in named.items() if law is not None)
        raise UsageError(f"these options name two laws of noise: {each}")
    law = laws.pop() if laws else law_of_least_noise(*of_one, code)
    if options.sigma2 is None and options.scale is None:
        say(noise_in_words(*of_one, law, code))
    return 0.0 if law == "geometric" else delta


def delta_of(publish: str, given: float | None) -> float:
    """Return the delta of a campaign: as given, or one that fits parties with the default policy.

    ``given``: the coordinator's ``--delta``, if any.
    """
    if given is not None:
        return given
    return GATED_DELTA if publish == "gated" else SITE_DELTA


def of_gated_delta(publish: str, delta: float) -> str:
    """Return a warning if most parties will refuse this delta, else "".

    Arguments are as above.
    """
    if publish != "gated" or Fraction(delta) <= Delta(SITE_DELTA).for_failing:
        return ""
    return (
        f"a gated campaign at delta {delta:g}: parties reserve {GATED_DELTA:g} for campaigns that may fail "
        f"outright unless their policy.toml says more, and refuse this one; give --delta {GATED_DELTA:g}, or "
        "have them raise delta or failing_share"
    )


def make_gate(
    publish: str, epsilon: float, delta: float, order: float | None, share: float
) -> GatedBatch | None:
    """Return the gated batch that uses the whole (epsilon, delta), None for a capped campaign.

    ``order``: Renyi order, or None for the one at which half of epsilon goes to the conversion;
    ``share``: part of the divergence at that order that the test may cost.
    """
    from pate.accounting.gate import GateParameters
    from pate.errors import AccountingError

    check_choice("publish", publish, PUBLISH)
    if publish != "gated":
        if order is not None:
            raise UsageError("--gate-order is for --publish gated")
        return None
    if order is None and epsilon > 0 and 0 < delta < 1:
        order = round(2 * (1 + 2 * math.log(1 / delta) / epsilon)) / 2
    try:
        gate = GateParameters.worth(epsilon, delta, order=order or 0.0, share=share)
    except AccountingError as error:
        raise UsageError(f"no gate has these parameters: {error}") from error
    # The shortest decimals that parse to the same floats, as exact numbers.
    numbers = gate.order, gate.target, gate.test, gate.failure
    return GatedBatch(*(Fraction(repr(each)) for each in numbers))


def _roster(parties: str) -> int | tuple[str, ...]:
    if parties.strip().isdecimal():
        return int(parties)
    return tuple(sorted(name.strip() for name in parties.split(",")))
