"""The exact cost of an answer: the largest divergence over every neighbour, each computed.

For votes that are public, a unit of one vote and few classes: a neighbour has one vote in another
class, or one vote more or fewer. A threshold test is joined neighbour by neighbour: whose vote
moves decides which way its statistic goes. The cost is one-sided and depends on all votes: whoever
publishes it publishes something about them.

Source: own. Proof: docs/proofs/theorem-6-plus.md, section 10.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from pate.accounting.arrays import (
    Floats,
    blocks,
    check_histograms,
    check_orders,
    check_rdp,
    on_all_cores,
)
from pate.accounting.bounds import threshold as test
from pate.accounting.bounds.laws import DiscreteGaussian
from pate.accounting.bounds.outcomes import TAIL_ERROR, Chances, far_behind
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from pate.accounting.bounds.sharp import GaussianSetting
    from pate.accounting.units import Neighbours

    Places = NDArray[np.intp]

#: Their neighbours are m (m - 1), each with m outcomes: more would take hours.
MOST_CLASSES: Final = 20
#: Less noise moves a chance too far for the nodes of the sum.
LEAST_SIGMA: Final = 8.0
#: Beyond this exponent no chance is multiplied: the cost without votes is given.
_LARGE: Final = 500.0
_ROUNDING: Final = 2.0**-50


def rdp(
    votes: ArrayLike, setting: GaussianSetting, neighbours: Neighbours, orders: ArrayLike
) -> Floats:
    """Return the largest divergence of an answer from any neighbour's, (queries, orders) nats.

    An answer is the label, or, with a threshold test of the largest count, that there is none.
    Rounded up by a relative 1e-7 or so; more at high orders where a class is 20 sigma behind or farther,
    whose chance is only bounded. Ties go to the class that is first.

    >>> from pate.accounting.bounds.laws import Gaussian
    >>> from pate.accounting.bounds.sharp import GaussianSetting
    >>> from pate.accounting.units import Neighbours
    >>> setting = GaussianSetting(label=Gaussian(40.0))
    >>> made = rdp([[214, 10, 8, 7, 4, 4, 2, 1]], setting, Neighbours(), [2, 14])
    >>> [f"{x:.3e}" for x in made[0]]
    ['5.504e-06', '6.267e-05']
    """
    counts, orders = check_histograms(votes), check_orders(orders)
    if (counts % 1.0).any():
        raise AccountingError("every neighbour is tried of whole numbers of votes only")
    if neighbours.votes != 1 or counts.shape[1] > MOST_CLASSES:
        raise AccountingError(
            f"every neighbour is tried of units of one vote and up to {MOST_CLASSES} classes"
        )
    if setting.label.sigma < LEAST_SIGMA:
        raise AccountingError(f"every neighbour is tried from sigma {LEAST_SIGMA:g} on")
    if not isinstance(setting.label, DiscreteGaussian):  # without ties classes have no order
        counts = -np.sort(-counts, axis=1)
    kinds, kind = np.unique(counts, axis=0, return_inverse=True)
    found = _Moves(setting, neighbours, orders - 1.0, kinds.shape[1])

    def of_share(share: slice) -> Floats:
        part = kinds[share]
        # One histogram has up to m (m - 1) neighbours, of each the ratios of m labels.
        return np.concatenate(
            [found.largest(part[rows]) for rows in blocks(len(part), found.width)]
        )

    if not len(kinds):
        return np.zeros((0, orders.size))
    made = np.concatenate(on_all_cores(of_share, len(kinds), found.width * 8))
    return check_rdp(made[kind.ravel()], "the cost by every neighbour")


class _Moves:
    """Every neighbour of some histograms."""

    def __init__(
        self, setting: GaussianSetting, neighbours: Neighbours, excess: Floats, classes: int
    ) -> None:
        self._setting, self._law, self._excess = setting, setting.label, excess
        self._change = neighbours.adjacency == "change"
        self._mu = math.sqrt(neighbours.squared_distance) * self._law.mu_of_step
        self._chances = Chances(self._law, classes)
        self._discrete = isinstance(self._law, DiscreteGaussian)
        self._error = classes * TAIL_ERROR[self._discrete]
        self.width = classes * max(self._chances.width, classes * classes, excess.size)

    def largest(self, counts: Floats) -> Floats:
        """Return (queries, orders) divergences."""
        rows = self._chances.of(counts)
        log_p = np.full_like(counts, -np.inf)
        np.put_along_axis(log_p, rows.order, np.column_stack([rows.log_star, rows.log_p]), axis=1)
        query, ratio, top = self._neighbours(counts)
        star = rows.order[:, 0]
        held = np.exp(rows.log_star)[query]
        p = np.exp(log_p)
        p[np.arange(len(p)), star] = 0.0
        p = p[query]
        # The plurality has what is left, here farther from what it had by all errors: W rises either way.
        shift = p * ratio
        wrong = 4.0 * self._error * (p + np.abs(shift)).sum(axis=1)
        wrong += 2.0 * np.exp(special.log_ndtr(special.ndtri_exp(rows.log_far) + self._mu))[query]
        total = shift.sum(axis=1)
        total += np.copysign(wrong, total)
        with np.errstate(divide="ignore"):
            left = np.log1p(np.maximum(-total / (held * (1.0 - self._error)), -1.0))
        made = self._cost(held, left)
        for label in range(counts.shape[1]):
            log_r = np.log1p(np.where(p[:, label] > 0.0, ratio[:, label], 0.0))
            made += self._cost(p[:, label], log_r + np.copysign(8.0 * self._error, log_r))
        made += far_behind(rows.log_far, self._excess, self._mu)[query]
        worst = np.full((3, len(counts), self._excess.size), -1.0)
        np.maximum.at(worst, (top, query), check_rdp(made, "the cost by every neighbour"))
        return self._joined(counts.max(axis=1), worst) / self._excess

    def _neighbours(self, counts: Floats) -> tuple[Places, Floats, Places]:
        """Return of each neighbour its query, (., classes) P'/P - 1, and how its top moves, 0, 1 or 2."""
        classes = counts.shape[1]
        z = self._chances.winning(counts)
        terms = self._chances.log_terms(z)
        shares = np.exp(terms - special.logsumexp(terms, axis=2, keepdims=True))
        factors = {
            (before, votes): np.expm1(
                self._chances.log_rival(z - votes, before=before)
                - self._chances.log_rival(z, before=before)
            )
            for before in (True, False)
            for votes in (-1.0, 1.0)
        }
        # (queries, classes, from, to), the last of either is nowhere.
        ratios = np.zeros((len(counts), classes, classes + 1, classes + 1))
        for label in range(classes):
            parts = []
            for votes in (-1.0, 1.0):
                part = np.zeros((len(counts), classes + 1, z.shape[2]))
                part[:, :label] = factors[True, votes][:, :label]
                part[:, label + 1 : classes] = factors[False, votes][:, label + 1 :]
                # The label's own count: the density, at a noise that is less by these votes.
                part[:, label] = np.expm1(votes * (z[:, label] - votes / 2.0) / self._law.sigma**2)
                parts.append(part)
            gone, come = parts
            weighted = gone * shares[:, label, None]
            ratios[:, label] = weighted @ come.transpose(0, 2, 1)
            ratios[:, label] += weighted.sum(axis=2)[:, :, None]
            ratios[:, label] += (come @ shares[:, label, :, None]).transpose(0, 2, 1)
        there = np.zeros((len(counts), classes + 1, classes + 1), np.bool_)
        voted = (counts > 0.0)[:, :, None]
        if self._change:
            there[:, :-1, :-1] = voted & ~np.eye(classes, dtype=np.bool_)
        else:
            there[:, :-1, -1:] = voted
            there[:, -1, :-1] = True
        query, gone_from, come_to = np.nonzero(there)
        steps = np.vstack([np.eye(classes), np.zeros(classes)])
        tops = (counts[query] - steps[gone_from] + steps[come_to]).max(axis=1)
        moves = np.rint(tops - counts.max(axis=1)[query]).astype(np.intp) + 1
        return query, ratios[query, :, gone_from, come_to], moves

    def _cost(self, p: Floats, log_r: Floats) -> Floats:
        """Return p W(r) at each order, rounded up; infinite beyond e^500."""
        exponent = np.multiply.outer(-log_r, self._excess)
        first = p[:, None] * np.expm1(np.minimum(exponent, _LARGE))
        second = np.multiply.outer(p * np.expm1(log_r), self._excess)
        made = np.maximum(first + second, 0.0)
        made += _ROUNDING * (
            np.abs(first) * (1.0 + np.minimum(np.abs(exponent), _LARGE)) + np.abs(second)
        )
        made[exponent > _LARGE] = np.inf
        return made

    def _joined(self, top: Floats, worst: Floats) -> Floats:
        """Return the log of the largest moment; ``worst``: (3, queries, orders), by how the top moves.

        Below 0 where no neighbour's does.
        """
        cap = self._excess * (self._excess + 1.0) * self._mu**2 / 2.0 * (1.0 + _ROUNDING)
        none = worst < 0.0
        logs = np.minimum(np.log1p(np.where(none, 0.0, worst)), cap) * (1.0 + 4.0 * _ROUNDING)
        check = self._setting.check
        if check is None:
            alone: Floats = logs.max(axis=0)
            return alone
        down, up = test.neighbouring_bits(top, self._setting.threshold, check, 1)
        passes = np.exp(test.log_pass(top, self._setting.threshold, check))[:, None]
        with np.errstate(over="ignore"):
            stays = np.log1p(passes * np.expm1(logs[1])) * (1.0 + 8.0 * _ROUNDING)
        moved = [
            np.where(none[at], 0.0, bits.log_moment(self._excess, logs[at]))
            for at, bits in ((0, down), (2, up))
        ]
        made: Floats = np.maximum(stays, np.maximum(*moved))
        return made
