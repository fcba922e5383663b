"""What all ways to release labels share: a round begins, ends, and takes a student's predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from pate.errors import LedgerError, StateError, UsageError
from pate.mechanisms import Outcome
from pate.mechanisms.rule import sums_of_predictions
from pate.noise.exact import require_production

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.state import CampaignState
    from pate.accounting.events import Charged
    from pate.noise.exact import Noise
    from protos.pate.v1 import student_pb2


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
