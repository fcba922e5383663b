"""Verification of a published privacy statement against a party's own ledger.

The ledger has the signed terms, this party's answers and the server's report of the campaign's end. It
does not have other parties' answers, or, before the end, the number of released labels; of these it can
only rule out impossible values. A statement is untrusted input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pate.accounting.composition import (
    Composition,
    Gate,
    Gdp,
    Pure,
    Zcdp,
    composition_named,
    total_cost,
)
from pate.accounting.events import GatedBatch, GeometricHistogram, NoisyCounts
from pate.codes import code_of
from pate.data.embeddings import encoder_in
from pate.errors import LedgerError, PateError
from pate.exact import fraction_from_text
from pate.formats.mechanism_words import mechanism_in_words
from pate.formats.privacy_statement import (
    ENCODER,
    PrivacyStatement,
    adjacency_of,
    noise_in_words,
    rounded_up,
)
from pate.mechanisms import rounds_cost, worst_cost
from pate.printable import printable
from pate.storage.hash_chain import Head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from party.ledger.state import Campaign
    from pate.campaign.offer import Offer, Settled

#: Relative tolerance between two builds of the same formulas.
_SAME: Final = 1e-9
_OBSERVERS: Final = ("public", "server")
#: Numbers of things, and their largest.
_NUMBERS: Final = ("teachers", "queries_asked", "labels_released")
_LARGEST: Final = 2**63
#: Checks a statement against the record of its campaign.
_Rule: TypeAlias = Callable[[PrivacyStatement, "Campaign"], Iterator["Check"]]


def verify_statement(statement: PrivacyStatement, record: Campaign | None) -> tuple[Check, ...]:
    """Return the checks of a published statement; without a record its campaign was never joined."""
    if record is None:
        return (
            Check(
                "campaign",
                "differs",
                f"{shown(statement.campaign)} is not in our ledger: never joined",
            ),
        )
    found = [same("campaign", statement.campaign, record.offer.campaign)]
    if found[0].finding == "ok":
        found = [Check("campaign", "ok", f"{statement.campaign}, joined {record.joined_at}")]
    numbers = ((name, getattr(statement, name)) for name in _NUMBERS)
    # Their types are the reader's; of thousands of digits no cost is worked out.
    if odd := [(name, number) for name, number in numbers if abs(number) > _LARGEST]:
        words = "the statement has {}, no number of things"
        return (*found, *(Check(name, "differs", words.format(shown(each))) for name, each in odd))
    for rule in _RULES:
        found.extend(rule(statement, record))
    return tuple(found)


def _terms(said: PrivacyStatement, ours: Campaign) -> Iterator[Check]:
    offer, settled = ours.offer, ours.offer.settled
    announced = offer.announced
    yield same("unit", said.unit, announced.unit)
    among = announced.neighbours
    adjacency = adjacency_of(
        announced.unit,
        records_vote=announced.records_vote,
        series=announced.series is not None,
        code=announced.code,
    )
    if said.series is not None or announced.series is not None:
        yield same("series", said.series, announced.series, lambda name: shown(name or "none"))
    if said.series_key is not None:
        yield same("series' server", said.series_key, offer.key.hex())
    ours_is, theirs = encoder_in(announced.schema), ENCODER.search(said.encoder or "")
    if ours_is or said.encoder is not None:
        named = theirs[1] if theirs else ""
        yield same("encoder", named, ours_is, lambda digest: digest[:8] or "none")
    yield same(
        "adjacency",
        said.adjacency,
        adjacency,
        lambda text: among if text == adjacency else shown(text),
    )
    yield same("delta", said.delta, announced.delta)
    yield same("aggregation", said.aggregation, announced.sums.aggregation)
    mode = said.noise.partition(": ")[0]
    if mode != announced.sums.noise:
        yield same("noise", said.noise, f"{announced.sums.noise}: …")
    elif settled is not None:
        yield same("noise", said.noise, _noise_in_words(settled))
    if settled is None:
        # As after missing the roster: there is nothing to compare with.
        yield Check(
            "terms",
            "unclear",
            "we never learnt the terms that follow from the roster: teachers, mechanism, composition "
            "and cap are not compared",
        )
        return
    yield same(
        "teachers",
        said.teachers,
        0 if announced.records_vote else settled.teachers,
        lambda count: shown(count or "none: records vote themselves"),
    )
    steps, gate = _without_gate(said)
    if settled.gate is not None:
        signed = {name: value for name, value in settled.gate.to_dict().items() if name != "event"}
        yield same("gate", gate, {"mechanism": Gate.name, **signed})
    yield same(
        "mechanism",
        steps,
        [dict(each.to_dict()) for each in settled.mechanisms],
        lambda each: shown(mechanism_in_words(each)),
    )
    yield same("composition", said.composition, settled.composition, _composition_in_words)
    yield same("cap", said.cap, str(settled.cap), _roughly)


def _figures(said: PrivacyStatement, ours: Campaign) -> Iterator[Check]:
    offer, settled = ours.offer, ours.offer.settled
    announced = offer.announced
    yield compared(
        "announced epsilon",
        said.epsilon <= announced.epsilon * (1 + _SAME),
        said.epsilon,
        announced.epsilon,
        f"{rounded_up(said.epsilon)}; {rounded_up(announced.epsilon)} was announced at most",
    )
    if settled is None:
        return
    try:
        worth = _composition(said).epsilon(settled.cap, announced.delta)
    except (PateError, ValueError, ArithmeticError) as error:
        # A gate comes from the statement, and its parameters may be invalid.
        yield Check("epsilon", "differs", f"the cap cannot be worked out: {shown(error)}")
        return
    yield compared(
        "epsilon",
        math.isclose(said.epsilon, worth, rel_tol=_SAME),
        said.epsilon,
        worth,
        f"{rounded_up(said.epsilon)} is what the cap converts to at delta {announced.delta:g}",
    )
    try:
        realised, least = fraction_from_text(said.realised), _least_cost(said, offer)
    except PateError as error:
        yield Check("realised cost", "differs", shown(error))
        return
    yield compared(
        "realised cost",
        least <= realised <= settled.cap,
        realised,
        f"a cap of {shown(settled.cap)}; {said.queries_asked} asked and {said.labels_released} "
        f"labels cost at least {shown(least)}",
        f"{_roughly(str(realised))}; within the cap, and enough for these answers",
    )


def _least_cost(said: PrivacyStatement, offer: Offer) -> Fraction:
    """Return the least possible charge for the answers of a statement, in the terms' composition.

    A label costs all events of a query, but only the first if it may be the student's own
    prediction.
    """
    settled = offer.require_settled()
    asked, labels = max(said.queries_asked, 0), max(said.labels_released, 0)
    if settled.composition == Gate.name:
        return Fraction(min(max(asked, labels), 1))  # one complete batch
    composition = composition_named(settled.composition)
    if offer.announced.one_release:
        return _of_matrices(offer, composition, max(asked, labels))
    answers = [composition.cost(each.worst[0]) for each in settled.mechanisms]
    labelled = [
        composition.cost(each.worst[0]) if each.interactive else total_cost(composition, each.worst)
        for each in settled.mechanisms
    ]
    return labels * min(labelled) + max(asked - labels, 0) * min(answers)


def _of_matrices(offer: Offer, composition: Composition, queries: int) -> Fraction:
    """Return the cost of noisy histograms of some queries; where records vote in rounds, of whole ones."""
    mechanisms = offer.require_settled().mechanisms
    if not offer.announced.in_rounds:
        return worst_cost(composition, mechanisms, queries)
    rounds = min(-(-queries // code_of(offer.announced.code).places), offer.announced.rounds)
    return rounds_cost(composition, mechanisms, rounds) if rounds else Fraction(0)


def _counts(said: PrivacyStatement, ours: Campaign) -> Iterator[Check]:
    offer, settled, asked = ours.offer, ours.offer.settled, said.queries_asked
    announced = offer.announced
    yield compared(
        "labels",
        0 <= said.labels_released <= asked,
        said.labels_released,
        f"{asked} asked",
        f"{said.labels_released} for {asked} queries asked",
    )
    yield compared(
        "labels in the public set",
        said.labels_released <= announced.queries,
        said.labels_released,
        announced.queries,
        f"{said.labels_released}, and the public set has {announced.queries} queries",
    )
    most = announced.rounds * min(ours.asked, announced.queries)
    if announced.in_rounds:  # each of them is a batch of its own
        most = ours.asked
    rounds = "" if announced.rounds == 1 else f" in {announced.rounds} rounds"
    answered = f"we answered {ours.asked}{rounds}"
    if 0 <= asked <= most:
        # Without an ending there is no upper bound.
        found: Finding = "unclear" if ours.ending is None else "ok"
        yield Check("queries asked", found, f"{asked}; {answered}")
    elif settled is None or announced.sums.min_parties < len(settled.roster):
        within = asked <= announced.rounds * announced.queries
        yield Check(
            "queries asked",
            "unclear" if within else "differs",
            f"{asked}; {answered}, and the campaign may have gone on without us"
            if within
            else f"{asked}, which is more than the public set has",
        )
    else:
        yield Check("queries asked", "differs", f"{asked}; {answered}, and all parties must answer")
    if ours.ending is None:
        yield Check(
            "ending",
            "unclear",
            "we were never told how the campaign ended: more may have been asked than is claimed",
        )
    else:
        told = (ours.ending.queries_asked, ours.ending.labels_released)
        yield compared(
            "ending",
            (asked, said.labels_released) == told,
            f"{asked} asked and {said.labels_released} labels",
            f"we were told {told[0]} and {told[1]}",
        )


def _observers(said: PrivacyStatement, ours: Campaign) -> Iterator[Check]:
    offer, settled = ours.offer, ours.offer.settled
    announced = offer.announced
    yield same("observer", said.observer, "public")
    names = [each.observer for each in said.statements]
    if sorted(map(shown, names)) != list(_OBSERVERS):
        yield Check(
            "observers",
            "differs",
            f"the statement has {shown(names)}: it says what holds for public and server, each "
            "once, and for nobody else",
        )
        return
    yield Check(
        "observers", "ok", "public and server; of what is said of them only figures are checked"
    )
    public, server = sorted(said.statements, key=lambda each: each.observer)
    yield same(
        "public", (public.epsilon, public.delta), (said.epsilon, said.delta), _promise_in_words
    )
    if not announced.sums.distributed:
        yield same("server", server.epsilon, None, _epsilon_in_words)
        return
    if settled is None:
        return
    opened = sum(each.queries for each in ours.opened)
    if server.epsilon is None:
        yield Check("server", "ok", "nothing is promised")
        return
    if server.delta != announced.delta:
        yield same("server's delta", server.delta, announced.delta)
    composition = composition_named(settled.composition)
    least = composition.epsilon(_of_matrices(offer, composition, opened), announced.delta)
    yield compared(
        "server",
        server.epsilon >= least * (1 - _SAME),
        server.epsilon,
        f"the {opened} noisy histograms that we opened come to {least:.6g}",
        f"epsilon {rounded_up(server.epsilon)} at delta {announced.delta:g}; the {opened} noisy "
        f"histograms that we opened come to {rounded_up(least)}",
    )


def _head(said: PrivacyStatement, _ours: Campaign) -> Iterator[Check]:
    try:
        known = Head.parse(said.ledger_head).seq > 0
    except LedgerError:
        known = False
    if known:
        yield Check("ledger head", "ok", f"{said.ledger_head}; whose ledger has it we cannot tell")
        return
    yield Check(
        "ledger head",
        "differs",
        f"the statement has {shown(said.ledger_head)}, and a head is NUMBER:DIGEST, the digest "
        "64 hexadecimal digits",
    )


_RULES: Final[tuple[_Rule, ...]] = (_terms, _figures, _counts, _observers, _head)


def _noise_in_words(settled: Settled) -> str:
    if settled.shares() is None:
        return noise_in_words(None)
    events = [event for each in settled.mechanisms for event in each.worst]
    shared = (each for each in events if isinstance(each, NoisyCounts | GeometricHistogram))
    return noise_in_words(min((each.honest for each in shared), default=0))


def _without_gate(
    said: PrivacyStatement,
) -> tuple[list[dict[str, str | int]], Mapping[str, str | int] | None]:
    steps = [dict(each) for each in said.mechanism]
    if steps and steps[-1].get("mechanism") == Gate.name:
        return steps[:-1], steps[-1]
    return steps, None


def _composition(said: PrivacyStatement) -> Composition:
    """Return the composition that a statement names."""
    _, gate = _without_gate(said)
    if said.composition != Gate.name or gate is None:
        return composition_named(said.composition)
    names = ("order", "target", "test", "failure")
    return Gate(GatedBatch(*(fraction_from_text(gate.get(name, "")) for name in names)))


def _composition_in_words(name: object) -> str:
    known = {
        Gdp.name: "Gaussian differential privacy",
        Pure.name: "pure differential privacy",
        Zcdp.name: "zero-concentrated (zCDP)",
    }
    return known.get(str(name), shown(name))


def _roughly(text: object) -> str:
    """Return a fraction as one decimal number, and any other text unchanged."""
    try:
        return f"about {float(fraction_from_text(str(text))):.6g}"
    except (PateError, OverflowError):
        return shown(text)


def _epsilon_in_words(epsilon: float | None) -> str:
    return "nothing is promised" if epsilon is None else f"epsilon {rounded_up(epsilon)}"


def _promise_in_words(promise: tuple[float | None, float | None]) -> str:
    epsilon, delta = promise
    return _epsilon_in_words(epsilon) + ("" if delta is None else f" at delta {delta:g}")


# --- findings -------------------------------------------------------------------------------------


#: ``unclear``: the ledger cannot decide it.
Finding = Literal["ok", "differs", "unclear"]

#: Longest valid text.
_LONGEST_SHOWN: Final = 600


@dataclass(frozen=True)
class Check:
    """One check of a statement: ``ok``, ``differs`` or ``unclear``, with both values or the reason."""

    name: str
    finding: Finding
    detail: str

    def __str__(self) -> str:
        return f"{self.finding:<8} {self.name}: {self.detail}"


def agrees(checks: tuple[Check, ...]) -> bool:
    """Return whether nothing differs."""
    return all(each.finding != "differs" for each in checks)


def unclear(checks: tuple[Check, ...]) -> list[str]:
    """Return the names of the checks that this party's ledger cannot decide."""
    return [each.name for each in checks if each.finding == "unclear"]


def same(name: str, said: Any, ours: Any, words: Callable[[Any], str] | None = None) -> Check:
    """Return whether a statement's value is that of our ledger; ``words`` formats one for people."""
    if words is None or (said != ours and words(said) == words(ours)):
        words = shown
    return Check(
        name,
        "ok" if said == ours else "differs",
        words(said)
        if said == ours
        else f"the statement has {words(said)}, our ledger {words(ours)}",
    )


def compared(name: str, holds: bool, said: object, ours: object, words: str = "") -> Check:
    """Return whether a statement's value may be so by our ledger; ``words`` say it if it holds."""
    if holds:
        return Check(name, "ok", words or shown(said))
    return Check(name, "differs", f"the statement has {shown(said)}, our ledger {shown(ours)}")


def shown(value: object) -> str:
    """Return a value as part of one line, without control characters and not too long."""
    if isinstance(value, Fraction):
        return f"{value} (about {float(value):.6g})"
    if isinstance(value, float):
        return f"{value:.10g}"
    text = str(value)
    return printable(text, _LONGEST_SHOWN)
