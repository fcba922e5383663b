"""A published privacy statement, held against a party's own ledger.

The ledger knows the signed terms and what this party answered. It does not know what others
answered, or how many labels left; of that it can only say what cannot be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pate.accounting.composition import Composition, Gate, composition_named, total_cost
from pate.accounting.events import GatedBatch, fraction_from_text
from pate.errors import PateError
from pate.statement import ADJACENCY, PrivacyStatement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from party.ledger import CampaignRecord

#: ``unclear``: the ledger cannot tell.
Finding = Literal["ok", "differs", "unclear"]

#: The same figure, worked out by another build of the same formulas.
_SAME: Final = 1e-9


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what.
        finding: ``ok``, ``differs`` or ``unclear``.
        detail: both values where they differ, else what holds.
    """

    name: str
    finding: Finding
    detail: str

    def __str__(self) -> str:
        return f"{self.finding:<8} {self.name}: {self.detail}"


#: Looks at a statement and the record of its campaign.
_Rule: TypeAlias = Callable[[PrivacyStatement, "CampaignRecord"], Iterator[Check]]


def verify_statement(
    statement: PrivacyStatement, record: CampaignRecord | None
) -> tuple[Check, ...]:
    """Return what was checked, and what came of it.

    Args:
        statement: as published.
        record: of its campaign, from :meth:`~party.ledger.PartyLedger.find`; None if this party
            never joined it.
    """
    if record is None:
        return (
            Check(
                "campaign", "differs", f"{statement.campaign} is not in our ledger: never joined"
            ),
        )
    found = [Check("campaign", "ok", f"{statement.campaign}, joined {record.joined_at}")]
    for rule in _RULES:
        found.extend(rule(statement, record))
    return tuple(found)


def agrees(checks: tuple[Check, ...]) -> bool:
    """Return whether nothing differs."""
    return all(each.finding != "differs" for each in checks)


def _terms(said: PrivacyStatement, ours: CampaignRecord) -> Iterator[Check]:
    offer = ours.offer
    yield _same("unit", said.unit, offer.unit)
    yield _same("adjacency", said.adjacency, ADJACENCY[offer.unit])
    yield _same("delta", said.delta, offer.delta)
    yield _same("aggregation", said.aggregation, offer.aggregation)
    yield _same("noise", said.noise.partition(":")[0], offer.noise)
    if not offer.settled:
        yield Check("terms", "differs", "we never learnt the terms that follow from the roster")
        return
    yield _same("teachers", said.teachers, offer.teachers)
    steps, _ = _without_gate(said)
    yield _same("mechanism", steps, [dict(each.to_dict()) for each in offer.mechanisms or ()])
    yield _same("composition", said.composition, offer.composition)
    yield _same("cap", said.cap, str(offer.cap))


def _figures(said: PrivacyStatement, ours: CampaignRecord) -> Iterator[Check]:
    offer = ours.offer
    yield _compared(
        "announced epsilon",
        said.epsilon <= offer.epsilon * (1 + _SAME),
        said.epsilon,
        offer.epsilon,
    )
    if offer.cap is None:
        return
    try:
        worth = _composition(said).epsilon(offer.cap, offer.delta)
    except PateError as error:
        yield Check("epsilon", "differs", f"the cap cannot be worked out: {error}")
        return
    yield _compared(
        "epsilon", math.isclose(said.epsilon, worth, rel_tol=_SAME), said.epsilon, worth
    )
    try:
        realised = fraction_from_text(said.realised)
    except PateError as error:
        yield Check("realised cost", "differs", str(error))
        return
    yield _compared("realised cost", realised <= offer.cap, float(realised), float(offer.cap))


def _counts(said: PrivacyStatement, ours: CampaignRecord) -> Iterator[Check]:
    offer, asked = ours.offer, said.queries_asked
    yield _compared(
        "labels", 0 <= said.labels_released <= asked, said.labels_released, f"{asked} asked"
    )
    yield _compared(
        "labels in the public set",
        said.labels_released <= offer.public_queries,
        said.labels_released,
        offer.public_queries,
    )
    most = offer.rounds * min(ours.asked, offer.public_queries)
    rounds = "" if offer.rounds == 1 else f" in {offer.rounds} rounds"
    answered = f"we answered {ours.asked}{rounds}"
    if 0 <= asked <= most:
        yield Check("queries asked", "ok", f"{asked}; {answered}")
    elif offer.roster is None or (offer.threshold or 0) < len(offer.roster):
        within = asked <= offer.rounds * offer.public_queries
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
        yield Check("ending", "unclear", "we were never told how the campaign ended")
    else:
        told = (ours.ending.queries_asked, ours.ending.labels_released)
        yield _compared(
            "ending",
            asked <= told[0] and said.labels_released <= told[1],
            f"{asked} asked and {said.labels_released} labels",
            f"we were told {told[0]} and {told[1]}",
        )


def _observers(said: PrivacyStatement, ours: CampaignRecord) -> Iterator[Check]:
    offer = ours.offer
    by_name = {each.observer: each for each in said.statements}
    if len(by_name) != len(said.statements):
        yield Check("observers", "differs", "one of them is named twice")
    public, server = by_name.get("public"), by_name.get("server")
    if public is None or server is None:
        yield Check("observers", "differs", "a statement says what holds for public and server")
        return
    yield _same("public", (public.epsilon, public.delta), (said.epsilon, said.delta))
    if offer.noise == "central":
        yield _same("server", server.epsilon, None)
        return
    if offer.mechanisms is None or offer.composition is None:
        return
    opened = sum(each.queries for each in ours.opened)
    if server.epsilon is None:
        yield Check("server", "ok", "nothing is promised")
        return
    if server.delta != offer.delta:
        yield _same("server's delta", server.delta, offer.delta)
    composition = composition_named(offer.composition)
    worst = max(total_cost(composition, each.worst) for each in offer.mechanisms)
    least = composition.epsilon(opened * worst, offer.delta)
    yield _compared(
        "server",
        server.epsilon >= least * (1 - _SAME),
        server.epsilon,
        f"the {opened} noisy histograms that we opened come to {least:.6g}",
    )


_RULES: Final[tuple[_Rule, ...]] = (_terms, _figures, _counts, _observers)


def _without_gate(
    said: PrivacyStatement,
) -> tuple[list[dict[str, str | int]], Mapping[str, str | int] | None]:
    steps = [dict(each) for each in said.mechanism]
    if steps and steps[-1].get("mechanism") == Gate.name:
        return steps[:-1], steps[-1]
    return steps, None


def _composition(said: PrivacyStatement) -> Composition:
    """Return the composition that a statement names.

    Raises:
        PateError: if there is none of that name, or its gate is no gate.
    """
    _, gate = _without_gate(said)
    if said.composition != Gate.name or gate is None:
        return composition_named(said.composition)
    names = ("order", "target", "test", "failure")
    return Gate(GatedBatch(*(fraction_from_text(gate.get(name, "")) for name in names)))


def _same(name: str, said: object, ours: object) -> Check:
    return _compared(name, said == ours, said, ours)


def _compared(name: str, holds: bool, said: object, ours: object) -> Check:
    if holds:
        return Check(name, "ok", _shown(said))
    return Check(name, "differs", f"the statement has {_shown(said)}, our ledger {_shown(ours)}")


def _shown(value: object) -> str:
    if isinstance(value, Fraction):
        return str(value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)
