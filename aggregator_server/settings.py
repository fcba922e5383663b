"""From what the coordinator typed to a campaign's specification."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from aggregator_server.matrix import MOST_VOTES, NeighbourTerms
from aggregator_server.spec import CampaignSpec, new_campaign_id
from pate.accounting.filters import FAILING, SITE_DELTA, Delta
from pate.data.values import Inputs, content_hash
from pate.errors import UsageError
from pate.masking.context import most_colluders, threshold_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aggregator_server.options import CampaignOptions
    from pate.accounting.publishing.gate import GateParameters

#: Options that are exact numbers, typed as text.
_FRACTIONS: Final = (
    "first_round_share", "threshold", "interactive_threshold", "sigma1", "sigma2", "scale",
    "confidence",
)  # fmt: skip
#: What a party without a policy of its own sets aside for all campaigns that may fail outright.
GATED_DELTA: Final = float(FAILING * Fraction(repr(SITE_DELTA)))


def spec_of(
    options: CampaignOptions,
    inputs: Inputs,
    *,
    say: Callable[[str], None] = lambda _: None,
    chosen: Callable[[Inputs, int, Callable[[str], None]], tuple[int, ...]] | None = None,
) -> CampaignSpec:
    """Return the specification of a new campaign over a public set, from the options of its command.

    Args:
        options: of the command.
        inputs: the public set.
        say: told what happens.
        chosen: returns the representatives of neighbour votes; None: those that a campaign has.

    Raises:
        UsageError: naming the option that makes no sense.
        BudgetError: if no noise is worth so little.
    """
    delta = delta_of(options.publish, options.delta)
    return make_spec(
        inputs,
        name=options.campaign,
        aggregator=options.aggregator,
        parties=options.parties,
        min_parties=options.min_parties,
        classes=options.classes,
        epsilon=options.epsilon,
        delta=delta,
        unit=options.unit,
        rounds=options.rounds,
        max_queries=options.max_queries,
        fractions={name: getattr(options, name) for name in _FRACTIONS},
        publish=options.publish,
        gate=make_gate(
            options.publish, options.epsilon, delta, options.gate_order, options.gate_share
        ),
        aggregation=options.aggregation,
        noise=options.noise,
        colluders=options.colluders,
        vote_proofs=options.vote_proofs,
        class_quota=options.class_quota,
        matrix=make_matrix(
            inputs,
            options.aggregator,
            epsilon=options.epsilon,
            delta=delta,
            number=options.representatives,
            records=options.expected_records,
            most_votes=options.most_votes,
            votes_per_patient=options.votes_per_patient,
            say=say,
            chosen=chosen,
        ),
    )


def make_spec(
    inputs: Inputs,
    *,
    name: str,
    aggregator: str,
    parties: str,
    min_parties: int | None,
    classes: str | None,
    epsilon: float,
    delta: float,
    unit: str,
    rounds: int | None,
    max_queries: int | None,
    fractions: Mapping[str, str | None],
    publish: str = "capped",
    gate: GateParameters | None = None,
    aggregation: str | None = None,
    noise: str | None = None,
    colluders: int | None = None,
    vote_proofs: bool = False,
    class_quota: bool = False,
    matrix: NeighbourTerms | None = None,
) -> CampaignSpec:
    """Return the specification of a new campaign over a public set.

    Args:
        inputs: the public set.
        name: of the campaign.
        aggregator: name of the mechanism.
        parties: how many, or names, comma separated.
        min_parties: or None for two thirds of them, at least one; more than that if masked.
        classes: names, comma separated, or None to take the parties'.
        epsilon: hard budget.
        delta: at which it holds.
        unit: record, patient or party.
        rounds: or None for the least that the mechanism has.
        max_queries: or None.
        publish: capped or gated.
        gate: for gated.
        aggregation: plain or masked, or None for masked from three parties on.
        noise: central or distributed, or None for central; of neighbour votes distributed if masked.
        colluders: or None for the most that masked sums of so many parties stand.
        vote_proofs: whether masked votes are proved to be votes.
        class_quota: whether later rounds ask first for classes with few labels.
        matrix: what neighbour votes need beside, None for teachers.
        fractions: text of each fractional parameter, or None; "40", "2.5" and "1/3" are exact.

    Raises:
        UsageError: naming the option that makes no sense.
    """
    roster = _roster(parties)
    count = roster if isinstance(roster, int) else len(roster)
    if aggregation is None:
        aggregation = "masked" if count >= 3 else "plain"
    if aggregation == "masked":
        if min_parties is None:
            min_parties, colluders = threshold_for(count, colluders)
        elif colluders is None:
            colluders = most_colluders(count, min_parties)
    if noise is None:
        noise = "distributed" if matrix is not None and aggregation == "masked" else "central"
    return CampaignSpec(
        name=name,
        id=new_campaign_id(),
        aggregator=aggregator,
        parties=roster,
        min_parties=min_parties if min_parties is not None else max(1, -(-2 * count // 3)),
        public_set=content_hash(inputs).hex(),
        queries=len(inputs),
        schema=inputs.schema(),
        classes=tuple(c.strip() for c in classes.split(",")) if classes else None,
        epsilon=float(epsilon),
        delta=float(delta),
        unit=unit,
        rounds=rounds if rounds is not None else 2 if aggregator == "interactive-gnmax" else 1,
        max_queries=max_queries,
        first_round_share=exact("first_round_share", fractions.get("first_round_share") or "1/2"),
        threshold=_maybe(fractions, "threshold"),
        interactive_threshold=_maybe(fractions, "interactive_threshold"),
        sigma1=_maybe(fractions, "sigma1"),
        sigma2=_maybe(fractions, "sigma2"),
        scale=_maybe(fractions, "scale"),
        confidence=_maybe(fractions, "confidence"),
        aggregation=aggregation,
        noise=noise,
        colluders=colluders or 0,
        vote_proofs=vote_proofs,
        class_quota=class_quota,
        representatives=None if matrix is None else matrix.representatives,
        most_votes=None if matrix is None else matrix.most_votes,
        votes_per_patient=None if matrix is None else matrix.votes_per_patient,
        publish=publish,
        gate_order=None if gate is None else _decimal(gate.order),
        gate_target=None if gate is None else _decimal(gate.target),
        gate_test=None if gate is None else _decimal(gate.test),
        gate_failure=None if gate is None else _decimal(gate.failure),
    )


def make_matrix(
    inputs: Inputs,
    aggregator: str,
    *,
    epsilon: float,
    delta: float,
    number: int | None = None,
    records: int | None = None,
    most_votes: int | None = None,
    votes_per_patient: int | None = None,
    say: Callable[[str], None] = lambda _: None,
    chosen: Callable[[Inputs, int, Callable[[str], None]], tuple[int, ...]] | None = None,
) -> NeighbourTerms | None:
    """Return what neighbour votes need beside all else, None for teachers.

    Args:
        inputs: the public set.
        aggregator: name of the mechanism.
        epsilon: of the campaign.
        delta: of the campaign.
        number: of representatives, or None for one that suits ``records`` and the budget.
        records: about how many all parties have, or None for a middling guess.
        most_votes: of one party on one count, or None for the default.
        votes_per_patient: or None for 1.
        say: told what happens.
        chosen: returns the representatives; None: those that a campaign has.

    Raises:
        UsageError: if any of them is given for teachers.
        BudgetError: if no noise is worth so little.
    """
    given = {
        "--representatives": number,
        "--expected-records": records,
        "--most-votes": most_votes,
        "--votes-per-patient": votes_per_patient,
    }
    if aggregator != "neighbour":
        for option, value in given.items():
            if value is not None:
                raise UsageError(f"{option} is for --aggregator neighbour: leave it out")
        return None
    from aggregator_server.representatives import RECORDS, choose, default_number

    votes = votes_per_patient or 1
    if number is None:
        number = default_number(records or RECORDS, len(inputs), epsilon, delta, votes)
    points = (chosen or choose)(inputs, number, say)
    return NeighbourTerms(points, most_votes or MOST_VOTES, votes)


def delta_of(publish: str, given: float | None) -> float:
    """Return the delta of a campaign: as given, or one that fits parties without a policy of their own.

    Args:
        publish: capped or gated.
        given: what the coordinator typed, if anything.
    """
    if given is not None:
        return given
    return GATED_DELTA if publish == "gated" else SITE_DELTA


def of_gated_delta(publish: str, delta: float) -> str:
    """Return a line about a promise that most parties refuse, "" if they don't.

    Arguments are as above.
    """
    if publish != "gated" or Fraction(delta) <= Delta(SITE_DELTA).for_failing:
        return ""
    return (
        f"a gated campaign at delta {delta:g}: parties keep {GATED_DELTA:g} for campaigns that may fail "
        f"outright unless their policy.toml says more, and refuse this one; give --delta {GATED_DELTA:g}, or "
        "have them raise delta or failing_share"
    )


def make_gate(
    publish: str, epsilon: float, delta: float, order: float | None, share: float
) -> GateParameters | None:
    """Return the gate that is worth the whole (epsilon, delta), None for a capped campaign.

    Args:
        publish: capped or gated.
        epsilon: of the campaign.
        delta: of the campaign.
        order: Renyi order, or None for the one at which half of epsilon goes to the conversion.
        share: part of the divergence at that order that the test may cost.

    Raises:
        UsageError: if an order is given that is not used, or no gate is worth so little.
    """
    from pate.accounting.publishing.gate import GateParameters
    from pate.errors import AccountingError

    if publish != "gated":
        if order is not None:
            raise UsageError("--gate-order is for --publish gated")
        return None
    if order is None and epsilon > 0 and 0 < delta < 1:
        order = round(2 * (1 + 2 * math.log(1 / delta) / epsilon)) / 2
    try:
        return GateParameters.worth(epsilon, delta, order=order or 0.0, share=share)
    except AccountingError as error:
        raise UsageError(f"no gate can be made of these: {error}") from error


def _decimal(value: float) -> Fraction:
    """Return the short exact number that reads back as the same float."""
    return Fraction(repr(value))


def _roster(parties: str) -> int | tuple[str, ...]:
    if parties.strip().isdecimal():
        return int(parties)
    return tuple(sorted(name.strip() for name in parties.split(",")))


def _maybe(fractions: Mapping[str, str | None], field: str) -> Fraction | None:
    text = fractions.get(field)
    return None if text is None else exact(field, text)


def exact(field: str, text: str) -> Fraction:
    """Return the number that was typed for an option; "40", "2.5" and "1/3" are exact.

    Raises:
        UsageError: naming the option, for anything else.
    """
    try:
        return Fraction(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        option = field.replace("_", "-")
        raise UsageError(
            f"--{option} must be a number such as 40, 2.5 or 1/3, got {text!r}"
        ) from error
