"""Labels of several campaigns of one series, as those of one campaign.

Noisy counts of campaigns over one public set are added, each with a weight for its age, and labels are
made of the sum as the server makes them. All of that is post-processing. The published statement is
that of the most expensive campaign: in one composition a series costs no more (docs/proofs/composition.md).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DataError, UsageError
from pate.formats.labels import LabelRow, LabelSet, checked_statement
from pate.formats.noisy_counts import NoisyVotes
from pate.formats.privacy_statement import series_of
from pate.mechanisms.least_noise import clear_margin
from pate.mechanisms.matrix import Neighbour
from pate.noise.share_laws import GaussianShares
from student.card import withdrawn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What campaigns whose costs are compared have in common.
_ALIKE: Final = ("series", "series_key", "unit", "delta", "observer", "composition", "adjacency")
#: Rounding a weighted sum to whole votes adds at most this variance to its noise.
_ROUNDING: Final = 1 / 4


def together(labels: Sequence[LabelSet], half_life: float | None = None) -> LabelSet:
    """Return the labels of several campaigns of a series, the oldest first, as those of one.

    Votes count half after ``half_life`` campaigns; None: all alike. The dearest campaign's statement holds.
    """
    if half_life is not None and (len(labels) < 2 or not 0 < half_life < math.inf):
        raise UsageError(
            "--half-life is a number of campaigns above 0, for two or more --labels of a series"
        )
    if len(labels) == 1:
        return labels[0]
    newest = labels[-1]
    statements = [checked_statement(each.privacy) for each in labels]
    _check(labels, statements)
    ages = [len(labels) - 1 - at for at in range(len(labels))]
    weights = [1.0 if half_life is None else 2.0 ** (-age / half_life) for age in ages]
    noisy = _added([each.noisy for each in labels if each.noisy is not None], weights)
    sigma = Fraction(max(math.ceil(noisy.sigma), 1))
    threshold = clear_margin(GaussianShares(sigma), 1)
    made = Neighbour(threshold, sigma, 1, code=noisy.code).labels(noisy.counts)
    return LabelSet(
        campaign=newest.campaign,
        classes=newest.classes,
        public_set=newest.public_set,
        queries=newest.queries,
        rows=tuple(
            LabelRow(query, label, 1, "records")
            for query, label in zip(noisy.queries.tolist(), made, strict=True)
            if label is not None
        ),
        privacy=_dearest(labels, statements),
        noisy=noisy,
    )


def _check(labels: Sequence[LabelSet], statements: Sequence[Mapping[str, object]]) -> None:
    newest = labels[-1]
    for each in labels:
        if each.noisy is None:
            raise DataError("several --labels are campaigns of neighbour votes, with noisy counts")
        if (each.public_set, each.queries, each.classes) != (
            newest.public_set, newest.queries, newest.classes,
        ):  # fmt: skip
            raise DataError(
                "several --labels are of one public set and one class list; train a student on each "
                "public set by itself"
            )
    counted = [each.noisy for each in labels if each.noisy is not None]
    if len({each.code for each in counted}) > 1 or (
        counted[0].dense and any(list(each.queries) != list(counted[0].queries) for each in counted)
    ):
        raise DataError(
            "several --labels are of one --code, and dense votes of the same representatives"
        )
    if len({each.campaign for each in labels}) < len(labels):
        raise DataError("several --labels are of different campaigns: one is there twice")
    if not series_of(statements[-1]):
        raise DataError(
            "several --labels are campaigns of one series: the costs of others add up, and no "
            "statement would hold for their student"
        )
    for name in _ALIKE:
        found = [each.get(name) for each in statements]
        if any(one != found[-1] for one in found):
            raise DataError(
                f"several --labels are campaigns of one series whose costs can be compared: their "
                f"{name} differs"
            )


def _added(rounds: Sequence[NoisyVotes], weights: Sequence[float]) -> NoisyVotes:
    """Return the weighted sum of noisy counts; a query that a campaign lacks has no votes in it."""
    queries = np.unique(np.concatenate([each.queries for each in rounds]))
    sums = np.zeros((len(queries), rounds[-1].counts.shape[1]))
    for each, weight in zip(rounds, weights, strict=True):
        sums[np.searchsorted(queries, each.queries)] += weight * each.counts
    variance = sum((w * each.sigma) ** 2 for each, w in zip(rounds, weights, strict=True))
    spread = math.sqrt(variance + _ROUNDING)
    return NoisyVotes(queries, np.rint(sums).astype(np.int64), spread, rounds[-1].code)


def _dearest(labels: Sequence[LabelSet], statements: Sequence[Mapping[str, object]]) -> str:
    """Return the text of the statement without a guarantee, if there is one, else of the largest."""

    def cost(at: int) -> float:
        lost = withdrawn(statements[at]) is not None
        return math.inf if lost else float(str(statements[at]["epsilon"]))

    return labels[max(range(len(labels)), key=cost)].privacy
