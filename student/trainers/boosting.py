"""Boosted trees fitted to class probabilities instead of labels, for noisy counts.

Each round the probabilities of all public rows are adjusted to agree with the released counts, and
the trees are fitted to the result: an expectation-maximisation in which the counts constrain the
rows of a cell jointly, and the trees distinguish them. Trees find the interactions that the
additive first guess cannot.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np

from student.trainers.base import Effort
from student.trainers.counts import LEAST_SHARE, Cells, tilt
from student.trainers.proportions import guess_shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from student.trainers.model import Model

    Floats = NDArray[np.float64]

ROUNDS: Final = 4
TREES: Final = 100
_FAR: Final = 8.0  # trees times learning rate
#: The same where chances are a smooth function of the rows, with nothing random in them to stop short of.
CLOSELY: Final = 20.0
#: A leaf holds enough rows to expect this many of the second most frequent class.
_SECOND_PER_LEAF: Final = 5
_LEAF: Final = (5, 200)  # rows, at least and at most
_IGNORED: Final = 0.01  # a smaller probability adds no row


def train_on_counts(
    rows: NDArray[np.float32],
    cells: Cells,
    *,
    seed: int,
    effort: Effort | None = None,
    guess: Floats | None = None,
) -> Model:
    """Return boosted trees that agree with noisy counts.

    Args:
        rows: (n, d) float32, the encoded public rows.
        cells: the released counts over them.
        seed: of the trees.
        effort: ``steps`` is the number of boosting rounds per fit; ``seconds`` ends it early.
        guess: (n, m) initial probabilities, to which the trees are then fitted in one round; None
            to start with an additive model. More rounds would forget the guess.
    """
    effort = effort or Effort()
    started = time.monotonic()
    chances = guess_shares(rows, cells) if guess is None else guess
    rounds = ROUNDS if guess is None else 1
    for number in range(rounds):
        wanted = tilt(cells, _inside(chances))
        model = fit_chances(rows, wanted, seed=seed + number, trees=effort.steps or TREES)
        if effort.seconds is not None and time.monotonic() - started > effort.seconds:
            break
        chances = np.zeros_like(wanted)
        chances[:, model.classes_] = model.predict_proba(rows)
    return model


def fit_chances(
    rows: NDArray[np.float32],
    chances: Floats,
    *,
    seed: int,
    trees: int = TREES,
    far: float = _FAR,
) -> Model:
    """Return boosted trees fitted to each row once per class, weighted by the class's probability.

    Args:
        rows: (n, d) float32.
        chances: (n, m) probabilities.
        seed: of the trees.
        trees: boosting rounds.
        far: how far they go in all, trees times learning rate.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    row, label, weight = _repeated(chances)
    second = np.sort(np.bincount(label, weight))[-2] / len(rows)
    leaf = np.clip(_SECOND_PER_LEAF / second, *_LEAF)
    model: Model = HistGradientBoostingClassifier(
        max_iter=trees,
        # The total step length is fixed, whatever the number of trees.
        learning_rate=min(0.5, far / trees),
        max_leaf_nodes=8,
        min_samples_leaf=round(float(leaf)),
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed % 2**32,
    )
    return model.fit(rows[row], label, weight)


def _repeated(chances: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return row, class and weight of each row once per class that it may have."""
    kept = chances * (chances >= _IGNORED)
    # At least two classes are needed.
    two = np.argsort(-chances.sum(axis=0), kind="stable")[:2]
    kept[:, two] = np.maximum(chances[:, two], LEAST_SHARE)
    row, label = np.nonzero(kept)
    return row, label.astype(np.int64), kept[row, label]


def _inside(chances: Floats) -> Floats:
    floored = np.maximum(chances, LEAST_SHARE)
    inside: Floats = floored / floored.sum(axis=1, keepdims=True)
    return inside
