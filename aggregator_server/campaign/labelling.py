"""What every way to release labels begins with and ends in: the round that is due, and what it gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from pate.errors import LedgerError, StateError
from pate.mechanisms import Outcome
from pate.noise.exact import require_production

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.state import CampaignState
    from pate.accounting.events import Charged
    from pate.noise.exact import Noise


@dataclass(frozen=True)
class RoundSummary:
    """What a round gave, over all processes that worked on it.

    Attributes:
        round: from 1.
        asked: queries that were answered in it.
        labels: of those, how many have a label now.
        reinforced: of the labels, how many are the student's own predictions.
        exhausted: whether the budget or ``max_queries`` ended the round before its queries did.
        remark: a line for the server's screen, "" for none.
    """

    round: int
    asked: int
    labels: int
    reinforced: int
    exhausted: bool
    remark: str = ""


class Release(Protocol):
    """A way to release labels: what is charged together, and what leaves together."""

    def label(self, ledger: Ledger, noise: Noise) -> RoundSummary:
        """Answer the queries of the present round, as far as the budget goes.

        An interrupted round is gone on with, or is over, as the way has it.

        Args:
            ledger: of the campaign.
            noise: where the noise comes from; not asked if the parties' is in the votes.

        Raises:
            UsageError: if the noise source is not fit for use, or predictions are missing.
            StateError: if the ledger is in another phase, or the campaign releases in another way.
            LedgerError: if votes are missing.
            DiskError: if the disk is full; the last charge is then spent in vain.
        """


def begin_round(ledger: Ledger, noise: Noise) -> CampaignState:
    """Return where a campaign stands whose present round may be worked on.

    Raises:
        UsageError: if the noise source is not fit for use.
        StateError: if the ledger is in another phase.
        LedgerError: if the mechanism expects noise of the parties that they do not add, or the other
            way round.
    """
    require_production(noise)
    state = ledger.state()
    if state.phase not in ("voting", "labelling") or state.rounds_over:
        raise StateError(
            f"round {state.round} cannot be labelled: the campaign is {state.phase}, in round "
            f"{state.round}"
        )
    if state.mechanism(state.round).noise_inside != state.spec.sums.distributed:
        raise LedgerError(
            "no noise, no release: a mechanism over noisy sums needs a campaign with noise shares, "
            "and the other way round"
        )
    return state


def outcomes_of(
    labels: Iterable[int | None],
    source: Literal["teachers", "records"],
    events: tuple[Charged, ...],
) -> list[Outcome]:
    """Return answers that were charged as one, from their labels."""
    return [Outcome(label, None if label is None else source, events) for label in labels]


def summary_of(
    state: CampaignState, round_: int, *, exhausted: bool, remark: str = ""
) -> RoundSummary:
    """Return what a round gave, from where the ledger stands."""
    labels = reinforced = 0
    for label in state.labels.values():
        labels += label.round == round_
        reinforced += label.round == round_ and label.source == "reinforced"
    return RoundSummary(
        round=round_,
        asked=len(state.answered.get(round_, ())),
        labels=labels,
        reinforced=reinforced,
        exhausted=exhausted,
        remark=remark,
    )
