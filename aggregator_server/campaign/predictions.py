"""Validation of the student's predictions: a distribution over the classes for each query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import UsageError

if TYPE_CHECKING:
    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.state import CampaignState
    from protos.pate.v1 import student_pb2

#: Tolerance of the sum of a predicted distribution, for float32.
_SUM_TOLERANCE: Final = 1e-3


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
    # NaN fails here, too. Infinity would pass a test of only the lower end.
    if not bool(np.all((made >= 0) & (made <= 1 + _SUM_TOLERANCE))):
        raise UsageError("a prediction is NaN, negative or above 1")
    sums = made.sum(axis=1, dtype=np.float64)
    if not bool(np.all(np.abs(sums - 1) <= _SUM_TOLERANCE)):
        row = int(np.argmax(np.abs(sums - 1)))
        raise UsageError(f"the predictions of query {row} sum to {sums[row]:.6g}, not to 1")
    return made.astype(np.float32)


def checked_accuracy(message: student_pb2.Predictions) -> float | None:
    """Return the student's stated accuracy, from 0 to 1, or None."""
    if not message.HasField("accuracy"):
        return None
    if not 0 <= message.accuracy <= 1:  # NaN fails here, too
        raise UsageError("an accuracy is NaN, negative or above 1")
    return float(message.accuracy)
