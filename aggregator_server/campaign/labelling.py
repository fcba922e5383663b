"""Release of teachers' labels: capped, chunk by chunk, or gated, a whole batch at once.

The choice, order and number of queries depend only on public values: the campaign's id, earlier
releases, and the budget. The votes determine only the mechanism's answers, and whether a gate opens.
Every charge is durable before its noise is drawn, and noise is drawn before anything is released.
"""

from __future__ import annotations

from array import array
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

import numpy as np

from pate.accounting.composition import Gate, total_cost
from pate.accounting.units import Neighbours
from pate.campaign.order import public_order, public_ranking
from pate.errors import LedgerError, StateError, UsageError
from pate.mechanisms import ConfidentGNMax, GNMax, Outcome, round_predictions
from pate.mechanisms.rule import sums_of_predictions
from pate.noise.exact import require_production
from pate.runtime import failpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager

    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.state import CampaignState
    from pate.accounting.bounds.sharp import GaussianSetting, Tables
    from pate.accounting.events import Charged
    from pate.accounting.gate import GateParameters
    from pate.accounting.nearby import Batch, Bound
    from pate.mechanisms import Mechanism
    from pate.noise.exact import Noise
    from pate.votes import Counts
    from protos.pate.v1 import student_pb2

    #: Shows progress under a title; yields a function of (done, total).
    Bar = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]


@dataclass(frozen=True)
class RoundSummary:
    """The result of a round, over all processes that worked on it."""

    round: int
    asked: int
    labels: int
    reinforced: int  # number of labels that are the student's own predictions
    exhausted: bool  # whether the budget or ``max_queries`` ended the round early
    remark: str = ""  # a line for the server's screen, "" for none


class Release(Protocol):
    """A way to release labels: which queries are charged and released together."""

    def label(self, ledger: Ledger, noise: Noise) -> RoundSummary:
        """Answer the current round as the budget allows; an interrupted one continues, or is over."""


def begin_round(ledger: Ledger, noise: Noise) -> CampaignState:
    """Return the state of a campaign whose current round may be answered."""
    require_production(noise)
    state = ledger.state()
    if state.phase not in ("voting", "labelling") or state.rounds_over:
        raise StateError(
            f"round {state.round} cannot be labelled: the campaign is {state.phase}, in round "
            f"{state.round}"
        )
    if state.mechanism(state.round).noise_inside != state.spec.sums.distributed:
        raise LedgerError(
            "no release without noise: a mechanism over noisy sums needs a campaign with noise "
            "shares, and vice versa"
        )
    return state


def outcomes_of(
    labels: Iterable[int | None],
    source: Literal["teachers", "records"],
    events: tuple[Charged, ...],
) -> list[Outcome]:
    """Return outcomes with one common charge, from their labels."""
    return [Outcome(label, None if label is None else source, events) for label in labels]


def summary_of(
    state: CampaignState, round_: int, *, exhausted: bool, remark: str = ""
) -> RoundSummary:
    """Return the summary of a round, from the state of the ledger."""
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


def checked_predictions(message: student_pb2.Predictions, state: CampaignState) -> Probabilities:
    """Return the probabilities of a message: (queries, classes) float32."""
    rows, classes = state.spec.queries, len(state.classes)
    if (message.rows, message.classes) != (rows, classes):
        raise UsageError(
            f"predictions are ({message.rows}, {message.classes}), expected ({rows}, {classes})"
        )
    if len(message.probabilities) != 4 * rows * classes:
        raise UsageError(
            f"predictions have {len(message.probabilities)} bytes, expected {4 * rows * classes}"
        )
    made = np.frombuffer(message.probabilities, dtype="<f4").reshape(rows, classes)
    sums_of_predictions(made, UsageError)
    return made.astype(np.float32)


def checked_accuracy(message: student_pb2.Predictions) -> float | None:
    """Return the student's stated accuracy, from 0 to 1, or None."""
    if not message.HasField("accuracy"):
        return None
    if not 0 <= message.accuracy <= 1:  # NaN fails here, too
        raise UsageError("an accuracy is NaN, negative or above 1")
    return float(message.accuracy)


class GatedRelease:
    """All labels of one batch are released together, if a private test passes."""

    def label(self, ledger: Ledger, noise: Noise) -> RoundSummary:
        """Answer the one batch, the first in public order, unless it was tried; see ``Release.label``."""
        state = begin_round(ledger, noise)
        if not isinstance(state.composition, Gate):
            raise StateError(
                "this campaign is not gated: its labels are released as they are answered"
            )
        if state.left < 1:  # an interrupted process has spent it: there is no second attempt
            return summary_of(
                state,
                1,
                exhausted=True,
                remark="the one attempt at this batch was interrupted: there are no labels",
            )
        queries = list(public_order(state.spec.id, state.spec.queries)[: state.spec.max_queries])
        gate, mechanism = state.composition.parameters, state.mechanism(1)
        from pate.accounting.bounds.theorem6_plus import Table  # its mathematics loads slowly

        bound = bound_of(mechanism, gate.order, Table.build)
        charge = ledger.charge(queries)
        failpoints.reach("charge-recorded")
        # Not earlier: an interruption after reading votes would waste the attempt.
        rows = ledger.counts_of(queries)
        batch = batch_of(rows, mechanism, gate.order, bound)
        labels = labels_behind(gate, batch, rows, mechanism, noise)
        failpoints.reach("noise-drawn")
        state = ledger.release(
            charge,
            outcomes_of(labels or [None] * len(queries), "teachers", charge.events),
            gate="closed" if labels is None else "open",
        )
        failpoints.reach("release-recorded")
        return summary_of(state, 1, exhausted=False, remark=f"the gate is {state.gate}")


def bound_of(mechanism: Mechanism, order: float, tables: Tables) -> Bound:
    """Return the data-dependent bound function of a gate, at its order. It reads no votes."""
    from pate.accounting.bounds.sharp import sharp_bound

    setting, neighbours = _setting(mechanism)
    return sharp_bound(setting, neighbours, np.array([order]), tables)


def batch_of(rows: Counts, mechanism: Mechanism, order: float, bound: Bound) -> Batch:
    """Return the gate's input from (queries, classes) votes. Secret."""
    from pate.accounting import nearby

    setting, neighbours = _setting(mechanism)
    return nearby.batch_of(rows, setting, neighbours, bound, np.array([order]))


def labels_behind(
    gate: GateParameters, batch: Batch, rows: Counts, mechanism: Mechanism, noise: Noise
) -> list[int | None] | None:
    """Return the labels of a batch, None if the gate stays closed. Call once, after the charge."""
    if not gate.decide(batch, noise):
        return None
    return [each.label for each in mechanism.answer_all(rows, noise)]


def _setting(mechanism: Mechanism) -> tuple[GaussianSetting, Neighbours]:
    """Return the bound's parameters of the mechanism, with the noise that is actually drawn."""
    from pate.accounting.bounds.laws import DiscreteGaussian
    from pate.accounting.bounds.sharp import GaussianSetting

    if isinstance(mechanism, GNMax):
        setting = GaussianSetting(label=DiscreteGaussian(float(mechanism.sigma)))
    elif isinstance(mechanism, ConfidentGNMax):
        setting = GaussianSetting(
            label=DiscreteGaussian(float(mechanism.sigma2)),
            check=DiscreteGaussian(float(mechanism.sigma1)),
            threshold=mechanism.threshold,
        )
    else:
        raise StateError(f"no data-dependent bound is known for {mechanism.name}")
    return setting, Neighbours(mechanism.votes_per_unit)


#: Queries of one charge. A crash wastes at most one charge; a smaller one costs more commits.
CHUNK: Final = 64
#: Counts of votes read at a time. Queries come in a random order, so each read goes through all
#: batches: a few large reads, with no more in memory than a batch of votes.
LOOK: Final = 2**17


class CappedRelease:
    """Labels are released as they are answered, under a data-independent cap; ``bar`` shows the progress."""

    def __init__(self, bar: Bar = lambda _: nullcontext(lambda _done, _total: None)) -> None:
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
