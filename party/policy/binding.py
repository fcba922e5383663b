"""Fixing a site's bound in its ledger, and what is to be said of it on the site's own screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from party.ledger.bounds import together
from pate.formats.privacy_statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from party.ledger.ledger import PartyLedger
    from party.policy.policy import Policy


def bind(ledger: PartyLedger, policy: Policy) -> tuple[str, ...]:
    """Record what the policy's own accountant keeps, and return lines about it if that is new.

    Raises:
        DiskError: if it cannot be recorded; then nothing may leave.
    """
    before = ledger.bounds()
    return tuple(_lines(ledger, policy, bool(before))) if ledger.bind(policy.bound) else ()


def _lines(ledger: PartyLedger, policy: Policy, again: bool) -> Iterator[str]:
    bounds, figure = ledger.bounds(), ledger.cumulative_epsilon(policy.divided_delta)
    yield f"our own accountant keeps from now on, as our ledger has it: {bounds[-1].in_words}"
    if again:
        yield (
            f"before it kept {bounds[-2].in_words}; all bounds so far promise together: "
            f"{together(bounds)}"
        )
    if figure.epsilon == 0:
        return
    yield f"what left before is counted in, by the rules of this version: {figure.in_words}"
    most = policy.largest_epsilon
    if most is not None and figure.epsilon > most:
        worth = figure.why_none or rounded_up(figure.epsilon)
        yield f"that is more than {most:g} ({worth}): nothing more will leave under this policy"
