"""Recording a site's bound in its ledger, with lines about it for the site's own screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from party.ledger.accountant import together
from pate.formats.privacy_statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from party.ledger.ledger import PartyLedger
    from party.policy.policy import Policy


def bind(ledger: PartyLedger, policy: Policy) -> tuple[str, ...]:
    """Record the policy's bound, and return lines about it if it is new."""
    before = ledger.bounds()
    return tuple(_lines(ledger, policy, bool(before))) if ledger.bind(policy.bound) else ()


def _lines(ledger: PartyLedger, policy: Policy, again: bool) -> Iterator[str]:
    bounds, figure = ledger.bounds(), ledger.cumulative_epsilon(policy.divided_delta)
    yield f"new bound of this party's accountant, recorded in its ledger: {bounds[-1].in_words}"
    if again:
        yield (
            f"earlier bound: {bounds[-2].in_words}; all bounds so far guarantee together: "
            f"{together(bounds)}"
        )
    if figure.epsilon == 0:
        return
    yield f"earlier answers are counted by the rules of this version: {figure.in_words}"
    most = policy.largest_epsilon
    if most is not None and figure.epsilon > most:
        worth = figure.why_none or rounded_up(figure.epsilon)
        yield f"that exceeds {most:g} ({worth}): nothing more will leave under this policy"
