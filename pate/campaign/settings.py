"""From the coordinator's options to a campaign's specification."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pate.accounting.events import GatedBatch
from pate.accounting.filters import FAILING, SITE_DELTA, Delta
from pate.answers import CLASS, LABELS, NONE, NUMBER, answer_of, range_in
from pate.campaign.arrays import directions_for
from pate.campaign.choices import ARRAYS, BY_LABEL, PUBLISH, RECORDS, check_choice
from pate.campaign.neighbour_terms import MOST_VOTES, NeighbourTerms
from pate.campaign.parameters import exact, parameters_of
from pate.campaign.spec import CampaignSpec, new_campaign_id
from pate.campaign.sum_terms import SumTerms
from pate.codes import AXES, DENSE, MOST_DIRECTIONS, NEAREST, code_of, usual_answer
from pate.data.embeddings import Embeddings
from pate.data.labels import clean_name
from pate.data.values import Images, Inputs, content_hash
from pate.errors import UsageError
from pate.masking.context import most_colluders, threshold_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pate.campaign.options import MechanismOptions
    from pate.noise import NoiseLawName

    Say = Callable[[str], None]
    Choose = Callable[[Inputs, int, Say], tuple[int, ...]]

#: A size of a public set that bounds no number of representatives.
_ANY: Final = 10**9
#: Fewest directions in which classes are contrasted unless an answer is stated: of fewer, geometric noise may
#: be the smaller, and a contrast has twice as much of it.
_CONTRASTED: Final = 16
#: In place of a public set's hash.
_UNREAD: Final = "0" * 64
#: Delta that a party's default policy reserves for all campaigns that may fail outright.
GATED_DELTA: Final = float(FAILING * Fraction(repr(SITE_DELTA)))


def require_sense(options: MechanismOptions) -> None:
    """Refuse options that no public set makes sense of, before one is read.

    Of neighbour votes most depends on the public set, so little of them is checked here.

    Raises:
        UsageError, BudgetError: as :func:`spec_of`.
    """
    if options.aggregator == "neighbour":
        parameters_of(options)
        _columns(options)
        code_of(options.code or NEAREST)
    else:
        spec_of(options, None)


def spec_of(
    options: MechanismOptions,
    inputs: Inputs | None,
    *,
    say: Say = lambda _: None,
    chosen: Choose | None = None,
) -> CampaignSpec:
    """Return the specification of a new campaign over a public set, from the options of its command.

    Args:
        options: of the command.
        inputs: the public set; None: it is not read, see :func:`require_sense`.
        say: called with progress lines.
        chosen: returns the representatives of neighbour votes; None: choose them here.

    Raises:
        UsageError: naming the invalid option.
        BudgetError: if no noise gives so small an epsilon.
    """
    delta = delta_of(options.publish, options.delta)
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
    # Of nearest votes the law of the noise is known first, and how many representatives it allows;
    # of others it follows from the code.
    code = options.code or _default_code(options, inputs, delta, say)
    if options.aggregator == "neighbour" and code == NEAREST:
        nearest = str(replace(code_of(NEAREST), answer=answer_of(options.answer or CLASS)))
        delta = _delta_of_matrix(options, delta, sums, count, say, nearest)
    neighbour = _neighbour_terms(options, code, inputs, delta, say, chosen)
    if neighbour is not None and code != NEAREST:
        delta = _delta_of_matrix(options, delta, sums, count, say, neighbour.code)
    # Unread, it has as many inputs as any number of directions needs.
    queries = MOST_DIRECTIONS if inputs is None else len(inputs)
    return CampaignSpec(
        name=options.campaign,
        id=new_campaign_id(),
        aggregator=options.aggregator,
        parties=roster,
        sums=sums,
        public_set=_UNREAD if inputs is None else content_hash(inputs).hex(),
        queries=queries,
        schema="unread" if inputs is None else inputs.schema(),
        classes=_columns(options),
        answer=_answer_of_teachers(options),
        release=_release(options, queries, count, delta),
        epsilon=float(options.epsilon),
        delta=float(delta),
        unit=options.unit,
        rounds=options.rounds
        if options.rounds is not None
        else 2
        if options.aggregator == "interactive-gnmax"
        else 1,
        max_queries=options.max_queries,
        first_round_share=exact("first_round_share", options.first_round_share),
        parameters=parameters_of(options),
        vote_proofs=options.vote_proofs,
        neighbour=neighbour,
        gate=gate,
        series=options.series,
    )


def _default_code(options: MechanismOptions, inputs: Inputs | None, delta: float, say: Say) -> str:
    """Return the code where none is stated, by what the public set is; a line says so.

    Two classes of an encoder's rows are rather a direction of these than clusters; more classes, and those
    of tables and images, are not. That was found on public benchmarks: docs/votes.md has the figures.
    Whatever asks for something else, or for delta 0, has the nearest representative.
    """
    if options.aggregator != "neighbour" or not isinstance(inputs, Embeddings):
        return NEAREST
    others = (options.answer, options.range, options.representatives, options.scale)
    if delta == 0 or options.noise_law == "geometric" or any(each is not None for each in others):
        return NEAREST
    columns = _columns(options)
    if columns is None:
        say(
            "records vote at the nearest representative (--code nearest); if there are two classes, name "
            "them (--classes a,b): an encoder's rows tell these apart better in directions (--code dense)"
        )
    if columns is None or len(columns) != 2:
        return NEAREST
    say(
        "records vote in directions (--code dense), since there are two classes of an encoder's rows; --code "
        "nearest is for clusters, and delta 0"
    )
    return DENSE


def _neighbour_terms(
    options: MechanismOptions,
    code: str,
    inputs: Inputs | None,
    delta: float,
    say: Say,
    chosen: Choose | None,
) -> NeighbourTerms | None:
    """Return the additional terms of neighbour votes, None for teachers."""
    given = {
        "--representatives": options.representatives,
        "--expected-records": None if _of_arrays(options) else options.expected_records,
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
        return None
    if inputs is None:
        raise ValueError("representatives are chosen among public inputs")
    from pate.campaign.representatives import (
        choose,
        default_number,
        number_for,
        settled_code,
    )

    votes, number = options.votes_per_patient or 1, options.representatives
    geometric = options.noise_law == "geometric" or options.scale is not None
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
    points = (chosen or choose)(inputs, number, say)
    settled = settled_code(code, len(points))
    if options.answer is None and not geometric and settled.places >= _CONTRASTED:
        answer = usual_answer(settled, _columns(options))
    made = replace(settled, answer=answer)
    return NeighbourTerms(points, options.most_votes or MOST_VOTES, votes, str(made))


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
        and answer_of(options.answer or CLASS).name == LABELS
        and NONE not in names
    )
    return (*names, NONE) if several else names


def _answer_of_teachers(options: MechanismOptions) -> str:
    """Return what teachers say: a class where records vote, whose answer is among their terms."""
    if options.aggregator == "neighbour":
        return CLASS
    return str(answer_of(options.answer or CLASS))


def _of_arrays(options: MechanismOptions) -> bool:
    return options.release == ARRAYS


def _release(options: MechanismOptions, queries: int, parties: int, delta: float) -> str:
    """Return what teachers' votes are released as; of arrays the number of directions is settled."""
    if not _of_arrays(options):
        return options.release or BY_LABEL
    columns = _columns(options)
    places = directions_for(
        options.epsilon,
        delta,
        options.unit,
        queries=queries,
        parties=parties,
        classes=None if columns is None else len(columns),
        records=options.expected_records,
    )
    return str(code_of(f"{AXES}-{places}"))


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
    from pate.campaign.choices import check_budget
    from pate.mechanisms.least_noise import law_of_least_noise, noise_in_words

    check_budget(options.epsilon, delta, records_vote=True)
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

    Args:
        publish: capped or gated.
        given: the coordinator's ``--delta``, if any.
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

    Args:
        publish: capped or gated.
        epsilon: of the campaign.
        delta: of the campaign.
        order: Renyi order, or None for the one at which half of epsilon goes to the conversion.
        share: part of the divergence at that order that the test may cost.

    Raises:
        UsageError: if an order is given for a capped campaign, or no gate gives so small an epsilon.
    """
    from pate.accounting.publishing.gate import GateParameters
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
