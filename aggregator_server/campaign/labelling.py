"""One round of labels: charge, then draw noise, then release, chunk by chunk.

Which queries are asked, in which order and how many at a time follows from public values alone: the
campaign's id, what was released before, and the budget. The votes decide only what a mechanism
says about them.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from pate.accounting.composition import total_cost
from pate.errors import LedgerError, StateError, UsageError
from pate.mechanisms import round_predictions
from pate.noise.exact import require_production
from pate.runtime import failpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.state import CampaignState
    from pate.mechanisms import Mechanism, Outcome
    from pate.noise.exact import Noise
    from pate.votes import Counts

#: Queries of one charge. A crash wastes at most one charge; a smaller one costs more commits.
CHUNK: Final = 64
#: Counts of votes that are read at a time. Queries come in a random order, so each such look goes
#: through all batches: a few large ones, and still no more in memory than a batch of votes.
LOOK: Final = 2**17


class Votes(Protocol):
    """Summed votes of the whole public set: a matrix, or a view of one that lies elsewhere."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Queries, classes."""

    def __getitem__(self, queries: list[int], /) -> Counts:
        """Return the rows of some queries, (queries, classes) int64."""


@dataclass(frozen=True)
class RoundSummary:
    """What a round gave, over all processes that worked on it.

    Attributes:
        round: from 1.
        asked: queries that were answered in it.
        labels: of those, how many have a label now.
        reinforced: of the labels, how many are the student's own predictions.
        spent: charged by the campaign so far.
        exhausted: whether the budget or ``max_queries`` ended the round before its queries did.
    """

    round: int
    asked: int
    labels: int
    reinforced: int
    spent: Fraction
    exhausted: bool


def label_round(
    ledger: Ledger,
    counts: Votes,
    mechanism: Mechanism,
    noise: Noise,
    *,
    round_: int,
    order: Sequence[int],
    predictions: Probabilities | None = None,
    limit: Fraction | None = None,
    max_queries: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
    allow_simulated: bool = False,
) -> RoundSummary:
    """Answer the queries of one round, as far as the budget goes; go on with an interrupted one.

    Args:
        ledger: of the campaign; its present round must be ``round_``.
        counts: (queries, classes) int64, summed votes of the whole public set, or a view of them
            (:meth:`~aggregator_server.ledger.ledger.Ledger.votes`). A row sums to the teachers that voted
            in its batch.
        mechanism: the one that the roster fixed for this round.
        noise: where the noise comes from.
        round_: from 1.
        order: indices of queries in the order to ask them, see
            :func:`~pate.campaign.order.public_order`. It must not depend on votes.
        predictions: (queries, classes) float32, the student's; for an interactive mechanism.
        limit: what may be spent in all when the round ends, if that is less than the ledger's
            own limit for the round.
        max_queries: most queries of this round, if that is less than the campaign has left.
        progress: called after each chunk with queries done, and queries that are in the order.
        stop: asked before each chunk; once it holds, the round returns early.
        allow_simulated: let a seeded noise source through. For simulations alone: labels that are
            made with it protect nobody, and the ledger says so.

    Raises:
        UsageError: if the noise source is not fit for use, or predictions are missing.
        StateError: if the ledger is in another round or phase.
        LedgerError: if the mechanism is not the roster's, or votes are missing.
        DiskError: if the disk is full; the last charge is then spent in vain.
    """
    simulated = require_fit(noise, allow_simulated=allow_simulated)
    state = ledger.state()
    if state.spec.gate is not None:
        raise StateError("this campaign is gated: its labels leave together or not at all")
    if state.spec.records_vote:
        raise StateError("neighbour votes are one matrix: it is released as a whole")
    check_round(state, counts, mechanism, round_, predictions)
    before = len(state.answered.get(round_, ()))
    goal = len(order) if max_queries is None else min(len(order), max_queries)
    waiting = _waiting(state, round_, order)
    look = max(CHUNK, LOOK // counts.shape[1])
    rows = np.empty((0, counts.shape[1]), dtype=np.int64)
    done, stopped = 0, False
    while done < len(waiting) and not (stopped := stop is not None and stop()):
        size = _fitting(state, mechanism, limit)
        if max_queries is not None:
            size = min(size, max_queries - len(state.answered.get(round_, ())))
        if size <= 0:
            break
        chunk = waiting[done : done + size].tolist()
        if len(rows) < len(chunk):  # before the charge: a file that cannot be read wastes none
            rows = counts[waiting[done : done + look].tolist()]
        now, rows = rows[: len(chunk)], rows[len(chunk) :]
        done += len(chunk)
        charge = ledger.charge(chunk, simulated=simulated)
        failpoints.reach("charge-recorded")
        outcomes = _answers(state, chunk, now, mechanism, noise, predictions)
        failpoints.reach("noise-drawn")
        state = ledger.release(charge, outcomes)
        failpoints.reach("release-recorded")
        if progress is not None:
            progress(len(state.answered[round_]), max(goal, before))
    return summary_of(state, round_, exhausted=done < len(waiting) and not stopped)


def require_fit(noise: Noise, *, allow_simulated: bool) -> bool:
    """Return whether the noise source is a seeded one.

    Raises:
        UsageError: if it is and that was not asked for.
    """
    if not allow_simulated:
        require_production(noise)
    return noise.production is not True


def check_round(
    state: CampaignState,
    counts: Votes,
    mechanism: Mechanism,
    round_: int,
    predictions: Probabilities | None,
) -> None:
    """Check that a round may be worked on with these votes and this mechanism.

    Raises:
        StateError: if the ledger is in another round or phase.
        LedgerError: if the mechanism is not the roster's, or votes are of another shape.
        UsageError: if predictions are missing.
    """
    if state.round != round_ or state.phase not in ("voting", "labelling") or state.rounds_over:
        raise StateError(
            f"round {round_} cannot be labelled: the campaign is {state.phase}, in round {state.round}"
        )
    if mechanism.noise_inside != state.spec.sums.distributed:
        raise LedgerError(
            "no noise, no release: a mechanism over noisy sums needs a campaign with noise shares, "
            "and the other way round"
        )
    if mechanism.to_dict() != state.mechanism(round_).to_dict():
        raise LedgerError(f"the roster fixed another mechanism for round {round_}: {mechanism}")
    shape = (state.spec.queries, len(state.classes))
    if counts.shape != shape:
        raise LedgerError(f"votes of shape {counts.shape}, the campaign has {shape}")
    if mechanism.interactive and predictions is None:
        raise UsageError(f"{mechanism.name} needs the student's predictions for round {round_}")
    if predictions is not None and predictions.shape != shape:
        raise LedgerError(f"predictions of shape {predictions.shape}, the campaign has {shape}")


def _waiting(state: CampaignState, round_: int, order: Sequence[int]) -> array[int]:
    """Return the queries that are still to be asked: no label yet, not answered this round."""
    answered = state.answered.get(round_, frozenset())
    return array("q", (q for q in order if q not in state.labels and q not in answered))


def _fitting(state: CampaignState, mechanism: Mechanism, limit: Fraction | None) -> int:
    """Return how many queries may be charged next, at worst cost."""
    limit = state.limit if limit is None else min(limit, state.limit)
    fit = (limit - state.spent) // total_cost(state.composition, mechanism.worst)
    left = state.queries_left
    return min(CHUNK, fit) if left is None else min(CHUNK, fit, left)


def _answers(
    state: CampaignState,
    chunk: list[int],
    rows: Counts,
    mechanism: Mechanism,
    noise: Noise,
    predictions: Probabilities | None,
) -> tuple[Outcome, ...]:
    if not mechanism.interactive or predictions is None:
        return mechanism.answer_all(rows, noise)
    # Batches may have been answered by different teachers; how many is public.
    teachers = np.array([state.batch_of(query).teachers for query in chunk])
    expected = np.empty_like(rows)
    for each in np.unique(teachers).tolist():
        same = teachers == each
        expected[same] = round_predictions(predictions[chunk][same], each)
    return mechanism.answer_all(rows, noise, expected)


def summary_of(state: CampaignState, round_: int, *, exhausted: bool) -> RoundSummary:
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
        spent=state.spent,
        exhausted=exhausted,
    )
