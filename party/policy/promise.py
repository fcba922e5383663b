"""What a campaign announces, checked against its signed terms, whatever a site's policy says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from party.ledger.accountant import cost_of
from pate.accounting.composition import Gate, composition_named
from pate.errors import AccountingError, RefusedError
from pate.formats.privacy_statement import rounded_up

if TYPE_CHECKING:
    from party.ledger.accountant import LedgerView
    from pate.campaign.offer import Offer

#: Tolerance between builds of the same formulas.
_ROUNDING: Final = 1.0 + 1e-9


def check_promise(offer: Offer) -> None:
    """Check that the terms convert to the announced guarantee, whatever the policy file."""
    announced = offer.announced
    name, settled = f"campaign {offer.campaign[:8]}", offer.settled
    gated = settled is not None and settled.composition == Gate.name
    if gated and announced.rounds != 1:
        raise RefusedError(
            f"{name} is gated and has {announced.rounds} rounds: a gate allows only one"
        )
    if announced.in_rounds and announced.sums.exact:
        raise RefusedError(
            f"{name} asks our records in {announced.rounds} rounds for exact sums at models of the server's "
            "choice: only with noise by the parties (--noise distributed) do they vote in masked rounds"
        )
    try:
        worth = offer.worth
    except AccountingError as error:
        raise RefusedError(f"{name}: its terms give no guarantee: {error}") from error
    if worth is not None and worth > announced.epsilon * _ROUNDING:
        raise RefusedError(
            f"{name} announces epsilon {announced.epsilon:g}, but its terms convert to "
            f"{rounded_up(worth)}"
        )
    if gated and settled is not None and settled.cap != 1:
        # A cap below its gate, so the gate was not checked.
        raise RefusedError(f"{name} is gated and its cap is {settled.cap} batches: it must be one")


def check_cap(offer: Offer, view: LedgerView) -> None:
    """Check that noisy sums are requested only for as many queries as the campaign's cap covers.

    Every answer shows the server a noisy histogram, so the cap holds for the server, too.
    """
    settled = offer.settled
    if not offer.announced.sums.distributed or not offer.queries or settled is None:
        return
    here = view.of(offer.campaign)
    if settled.composition == Gate.name:
        return
    cost = cost_of(here, composition_named(settled.composition))
    if cost > settled.cap:
        raise RefusedError(
            f"campaign {offer.campaign[:8]} asks for noisy sums of {here.asked} queries, more "
            "than its cap covers"
        )
