"""A capped campaign: charge, then draw noise, then release, chunk by chunk.

The choice, order and number of queries depend only on public values: the campaign's id, earlier
releases, and the budget. The votes determine only the mechanism's answers.
"""

from __future__ import annotations

from array import array
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import numpy as np

from aggregator_server.campaign.labelling import begin_round, summary_of
from pate.accounting.composition import total_cost
from pate.campaign.order import public_ranking
from pate.errors import LedgerError, StateError, UsageError
from pate.mechanisms import round_predictions
from pate.runtime import failpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager

    from aggregator_server.campaign.labelling import RoundSummary
    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.state import CampaignState
    from pate.mechanisms import Mechanism, Outcome
    from pate.noise.exact import Noise
    from pate.votes import Counts

    #: Shows progress under a title; yields a function of (done, total).
    Bar = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]

#: Queries of one charge. A crash wastes at most one charge; a smaller one costs more commits.
CHUNK: Final = 64
#: Counts of votes read at a time. Queries come in a random order, so each read goes through all
#: batches: a few large reads, with no more in memory than a batch of votes.
LOOK: Final = 2**17


class CappedRelease:
    """Labels are released as they are answered, under a data-independent cap; ``bar`` shows the progress."""

    def __init__(self, bar: Bar = lambda _: nullcontext(_show_nothing)) -> None:
        self._bar = bar

    def label(self, ledger: Ledger, noise: Noise) -> RoundSummary:
        """Answer the queries of a round; see :class:`~aggregator_server.campaign.labelling.Release`."""
        state = begin_round(ledger, noise)
        if state.spec.gate is not None:
            raise StateError(
                "this campaign is gated: its labels are released together or not at all"
            )
        if state.spec.one_release:
            raise StateError("this campaign's votes are one matrix, which is released as a whole")
        predictions = _predictions(ledger, state)
        order = _order(state)
        with self._bar(f"round {state.round}: queries") as progress:
            left = _ask(ledger, noise, order, predictions, progress)
            summary = summary_of(ledger.state(), state.round, exhausted=left > 0)
            progress(summary.asked, summary.asked)  # the budget may have ended it early
        return summary


def _show_nothing(_done: int, _total: int) -> None:
    pass


def _ask(
    ledger: Ledger,
    noise: Noise,
    order: Sequence[int],
    predictions: Probabilities | None,
    progress: Callable[[int, int], None],
) -> int:
    """Answer queries without a label that were not answered this round; return how many are left."""
    state = ledger.state()
    mechanism = state.mechanism(state.round)
    answered: AbstractSet[int] = state.answered.get(state.round, frozenset())
    goal = max(len(order), len(answered))
    waiting = array("q", (q for q in order if q not in state.labels and q not in answered))
    look = max(CHUNK, LOOK // len(state.classes))
    rows = np.empty((0, len(state.classes)), dtype=np.int64)
    done = 0
    while done < len(waiting) and (size := _fitting(state, mechanism)) > 0:
        chunk = waiting[done : done + size].tolist()
        if len(rows) < len(chunk):  # before the charge: an unreadable file wastes none
            rows = ledger.counts_of(waiting[done : done + look].tolist())
        now, rows = rows[: len(chunk)], rows[len(chunk) :]
        done += len(chunk)
        charge = ledger.charge(chunk)
        failpoints.reach("charge-recorded")
        outcomes = _answers(state, chunk, now, mechanism, noise, predictions)
        failpoints.reach("noise-drawn")
        state = ledger.release(charge, outcomes)
        failpoints.reach("release-recorded")
        progress(len(state.answered[state.round]), goal)
    return len(waiting) - done


def _predictions(ledger: Ledger, state: CampaignState) -> Probabilities | None:
    """Return the student's predictions for the current round, (queries, classes) float32."""
    mechanism, found = state.mechanism(state.round), ledger.predictions(state.round)
    if mechanism.interactive and found is None:
        raise UsageError(
            f"{mechanism.name} needs the student's predictions for round {state.round}"
        )
    shape = (state.spec.queries, len(state.classes))
    if found is not None and found.shape != shape:
        raise LedgerError(f"predictions of shape {found.shape}, the campaign has {shape}")
    return found


def _order(state: CampaignState) -> Sequence[int]:
    """Return the queries with votes in order."""
    order = public_ranking(state.spec.id, state.spec.queries)
    return array("q", (query for query in map(int, order) if query in state.voted))


def _fitting(state: CampaignState, mechanism: Mechanism) -> int:
    """Return how many queries may be charged next, at worst cost."""
    fit = (state.limit - state.spent) // total_cost(state.currency, mechanism.worst)
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
    # Batches may have different teachers; their number is public.
    teachers = np.array([state.batch_of(query).teachers for query in chunk])
    expected = np.empty_like(rows)
    for each in np.unique(teachers).tolist():
        same = teachers == each
        expected[same] = round_predictions(predictions[chunk][same], each)
    return mechanism.answer_all(rows, noise, expected)
