"""One query put to a mechanism."""

from __future__ import annotations

from pate.mechanisms import Mechanism, Outcome
from pate.mechanisms.contract import Votes
from pate.noise.exact import Noise


def answer(
    mechanism: Mechanism, row: Votes, noise: Noise, prediction: Votes | None = None
) -> Outcome:
    """The outcome of one query of (classes,) votes."""
    predictions = None if prediction is None else prediction[None]
    (outcome,) = mechanism.answer_all(row[None], noise, predictions)
    return outcome
