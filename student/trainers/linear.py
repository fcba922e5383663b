"""Class probabilities of public rows from the noisy sums of dense votes: ridge regression.

Each private record gave its directions x to its class, so the released sums are B = X'Y + noise, Y the
records' classes. Least squares on them needs X'X, which is not released; the public rows stand for it,
weighted so that they have the private records' mean (:mod:`student.trainers.covariates`). X'X is about N
times their second moments G, N being the number of records. N is estimated from B itself, with the
combination of directions that is closest to 1 on the public rows; so is the mean p of each column of Y.

What is regressed is the difference from the mean. X'(Y - p) is released as well, as B less p times the sum
of all records' x. Of B itself most would be p X'1, and by how much the public rows' mean is not that of the
private records would drown the rest.

In the principal directions of G these sums are N g w + noise, w being the weights. With weights of variance
t^2 and noise of a known variance v, the best estimate shrinks by (N g t)^2 / ((N g t)^2 + v). The t with
which the released sums are most likely (the evidence, in closed form) is taken: no label is held out, and no
record is asked again. Whether a number lies below each of several points is estimated for all points together
(:mod:`student.trainers.pooling`). Embeddings come in several views, the rows themselves and rows averaged
over their graph of neighbours; there the weights are those of one view's features F, sums N U'F w, U being
the public rows in these directions, and the view, too, is the one with which the released sums are most
likely. All of it is post-processing.

A campaign in rounds has released its model (:mod:`pate.rounds.solver`): its probabilities are taken.

Source: Rasmussen and Williams, "Gaussian processes for machine learning", 2006, section 5.4; of averaged
features: Wu et al., "Simplifying graph convolutional networks", ICML 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from pate.answers import NUMBER, RESIDUAL
from pate.codes import GRID, code_of
from pate.features.space import codes_over
from pate.formats.noisy_counts import RoundCounts
from pate.rounds.solver import Released, Start, chances, confirmed
from student.trainers.counts import LEAST_SHARE
from student.trainers.covariates import matching_weights
from student.trainers.numbers import shares_below
from student.trainers.pooling import pooled_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.formats.noisy_counts import NoisyVotes

    Floats = NDArray[np.float64]
    Sizes: TypeAlias = Literal["one", "own", "pooled"]

#: Standard deviations of the weights that are tried.
_WEIGHTS: Final = tuple(2.0 ** (power / 2) for power in range(-16, 17))
#: Second moments below this part of the largest are of no direction.
_LEAST: Final = 1e-6
#: Least mean of a column, as far as the draw of records goes.
_RAREST: Final = 0.01
#: Variances of a record's answer that are tried, relative to p (1 - p), which it is at most, and for a
#: class or label just about.
_DRAWN: Final = (1 / 16, 1 / 4, 1.0)
#: That of answers whose weights are pooled.
_DRAWN_ALIKE: Final = 1 / 2
#: Relative to these variances, of answers whose weights are those of a view: the public rows' moments are
#: not those of the private records, which adds to the sums like a draw.
_DRAWN_APART: Final = (1 / 16, 1 / 4, 1.0, 4.0)
#: Squared distances of the public rows' sums from the private records' that are tried, relative to what
#: the draw of public rows makes.
_FARTHER: Final = tuple(2.0**power for power in range(13))
#: Times that the public rows are weighted; the number of records depends on the weights.
_MATCHED: Final = 2
#: The number of records, or what rounds have found, must exceed this many standard deviations of its noise.
_CLEAR: Final = 2.0


def linear_chances(
    public: Inputs, noisy: NoisyVotes, views: Sequence[NDArray[np.floating]] = ()
) -> Floats | None:
    """Return (n, m) class probabilities of the public rows; None if the sums are only noise.

    Of a number they are the shares of the points of its range. With more than two, what is regressed is
    whether a record's number lies below each point but the first: of neighbouring points those are
    more alike than the shares are.

    Args:
        public: the public set, n inputs.
        noisy: the released sums of dense votes.
        views: (n, f) features of the public rows each, of mean squared length about one, one of which is
            weighed in place of the directions; of a class only.
    """
    classes = noisy.counts.shape[1]
    answer = code_of(noisy.code).answer
    if answer.name == RESIDUAL:
        return _of_rounds(public, noisy)
    points = answer.name == NUMBER and classes > 2
    asked: Floats = np.triu(np.ones((classes, classes)))[:, :-1] if points else np.eye(classes)
    values = _values(public, noisy, np.ones(classes), asked, "pooled" if points else "one", views)
    if values is None:
        return None
    found = np.clip(shares_below(values) if points else values, LEAST_SHARE, 1.0)
    made: Floats = found / found.sum(axis=1, keepdims=True)
    return made


def linear_labels(public: Inputs, noisy: NoisyVotes, none: int) -> list[Floats] | None:
    """Return for each label (n, 2) probabilities that a public row lacks it, and has it; None as above.

    The size of the weights is each label's own.

    Args:
        public: the public set, n inputs.
        noisy: the released sums of dense votes for several labels.
        none: the column that is no label.
    """
    columns = noisy.counts.shape[1]
    # As in records_of: a record counts once in none and a T-th of each label.
    total = np.full(columns, 1 / code_of(noisy.code).answer.most)
    total[none] = 1.0
    values = _values(public, noisy, total, np.delete(np.eye(columns), none, axis=1), "own")
    if values is None:
        return None
    has = np.clip(values, LEAST_SHARE, 1 - LEAST_SHARE).T
    return [np.stack([1 - each, each], axis=1) for each in has]


def _of_rounds(public: Inputs, noisy: NoisyVotes) -> Floats | None:
    """Return (n, m) the probabilities of the model of a campaign in rounds; None as above.

    It is taken if the records stand out of the noise of their counts, or if later rounds confirm what earlier
    ones have found: with few records that is clear before their number is.
    """
    if noisy.model is None:
        return None
    counts, sigma = noisy.class_counts
    rows, start = codes_over(public, noisy.queries.tolist()) / GRID, Start.of(counts, sigma)
    if counts.sum() <= _CLEAR * sigma * len(counts) ** 0.5:
        rounds = (*noisy.earlier[1:], RoundCounts(noisy.counts, noisy.sigma, noisy.shown))
        released = [
            Released(each.shown, each.counts / GRID, each.sigma / GRID)
            for each in rounds
            if each.shown is not None
        ]
        if confirmed(rows, start, released) <= _CLEAR:
            return None
    found = np.maximum(chances(rows, noisy.model, start), LEAST_SHARE)
    made: Floats = found / found.sum(axis=1, keepdims=True)
    return made


def _values(
    public: Inputs,
    noisy: NoisyVotes,
    total: Floats,
    asked: Floats,
    sizes: Sizes,
    views: Sequence[NDArray[np.floating]] = (),
) -> Floats | None:
    """Return (n, c) the mean answers of records at the public rows; None if all is only noise.

    Args:
        public: the public set.
        noisy: the released sums, with m columns.
        total: (m,) with which the columns add up to the codes of all records.
        asked: (m, c) sums of columns whose means are wanted.
        sizes: of the weights: one for all of them, each its own, or pooled.
        views: features of the public rows, one of which is weighed; none for the directions.
    """
    rows = codes_over(public, noisy.queries.tolist()) / GRID
    sums, sigma = noisy.counts / GRID, noisy.sigma / GRID
    every, noise = sums @ total, sigma * float(np.linalg.norm(total))
    basis = _Basis.of(rows, np.full(len(rows), 1 / len(rows)))
    for _ in range(_MATCHED):
        records = basis.number(every)
        if records <= _CLEAR * noise * float(np.linalg.norm(basis.one)):
            return None
        shares = matching_weights(rows, every / records, (noise / records) ** 2, records)
        basis = _Basis.of(rows, shares)
    basis = replace(basis, views=tuple(views))
    return basis.values(sums, sigma, total, asked, sizes)


@dataclass(frozen=True, eq=False)
class _Basis:
    """The public rows in the principal directions of their second moments.

    Attributes:
        moments: (k,) second moments, positive.
        axes: (d, k) orthonormal.
        turned: (n, k) the public rows.
        one: (k,) the combination of directions that is closest to 1 on the public rows, and 1 in the mean.
        shares: (n,) the share of the private records that each public row stands for.
        views: (n, f) features each.
    """

    moments: Floats
    axes: Floats
    turned: Floats
    one: Floats
    shares: Floats
    views: tuple[NDArray[np.floating], ...] = ()

    @classmethod
    def of(cls, rows: Floats, shares: Floats) -> _Basis:
        """Return the basis of (n, d) rows, of which each has its share of the private records."""
        moments, axes = np.linalg.eigh((rows * shares[:, None]).T @ rows)
        kept = moments > _LEAST * moments[-1]
        moments, axes = moments[kept], axes[:, kept]
        turned = rows @ axes
        mean = shares @ turned
        one = mean / (moments + 1e-3 * moments[-1])
        return cls(moments, axes, turned, one / float(mean @ one), shares)

    def number(self, sums: Floats) -> float:
        """Return how many records (d,) summed codes are of."""
        return float(self.one @ (self.axes.T @ sums))

    def values(
        self, sums: Floats, sigma: float, total: Floats, asked: Floats, sizes: Sizes
    ) -> Floats:
        """Return (n, c) the mean answers of records at the public rows.

        Args:
            sums: (d, m) codes times answers.
            sigma: standard deviation of the noise on each.
            total: (m,) with which the columns add up to the codes of all records.
            asked: (m, c) sums of columns whose means are wanted.
            sizes: of the weights: one for all of them, each its own, or pooled.
        """
        records = self.number(sums @ total)
        means = np.array([self.number(sums @ each) / records for each in asked.T])
        means = np.clip(means, _RAREST, 1 - _RAREST)
        mixed = asked - np.outer(total, means)
        seen = self.axes.T @ (sums @ mixed)
        drawn = records * self.moments[:, None] * (means * (1 - means))
        if sizes == "pooled":
            shares = np.array([self.number(each) / records for each in sums.T])
            spread = (mixed.T * np.clip(shares, _RAREST, 1)) @ mixed
            pooled: Floats = means + self.turned @ pooled_weights(
                records * self.moments, seen, sigma**2 * mixed.T @ mixed, _DRAWN_ALIKE * spread
            )
            return pooled
        part = total @ mixed / float(total @ total)
        every, left = self._everyone(sums @ total, sigma**2 * float(total @ total), records)
        mixed = mixed - np.outer(total, part)
        seen = self.axes.T @ (sums @ mixed) + np.outer(every, part)
        noise = sigma**2 * np.square(mixed).sum(axis=0) + np.outer(left, np.square(part))
        if self.views:
            viewed: Floats = means + self._viewed(seen, noise, means * (1 - means), records)
            return viewed
        groups = (
            [slice(None)] if sizes == "one" else [slice(at, at + 1) for at in range(len(means))]
        )
        apart = [self._apart(seen[:, g], noise[:, g], drawn[:, g], records) for g in groups]
        values: Floats = means + np.concatenate(apart, axis=1)
        return values

    def _everyone(self, sums: Floats, noise: float, records: float) -> tuple[Floats, Floats]:
        """Return (k,) the sums of all records, and (k,) the variance that is left in them.

        They lie between those that were released and those of the weighted public rows, by how far
        apart the two are beyond the noise.

        Args:
            sums: (d,) as released.
            noise: its variance on each.
            records: their number.
        """
        guess = records * (self.shares @ self.turned)
        apart = self.axes.T @ sums - guess
        drawn = records**2 / len(self.turned) * self.moments

        def evidence(size: float) -> float:
            spread = size * drawn + noise
            return -float((np.log(spread) + np.square(apart) / spread).sum())

        power = max(_FARTHER, key=evidence) * drawn
        return guess + power / (power + noise) * apart, power * noise / (power + noise)

    def _viewed(self, seen: Floats, noise: Floats, varied: Floats, records: float) -> Floats:
        """Return (n, c) the same by the features of the view with which the sums are most likely.

        Args:
            seen: (k, c) sums in the principal directions.
            noise: (k, c) its variance.
            varied: (c,) variance of a record's answer; the columns are divided by its root.
            records: their number.
        """
        root = np.sqrt(varied)
        even, each = seen / root, (noise / varied).mean(axis=1)
        columns = seen.shape[1]
        best, weights, chosen = -np.inf, np.zeros(0), self.views[0]
        for view in self.views:
            adds = records * ((self.turned * self.shares[:, None]).T @ view)
            for share in _DRAWN_APART:
                variances = each + share * records * self.moments
                scaled = adds / np.sqrt(variances)[:, None]
                sizes, axes = np.linalg.eigh(scaled @ scaled.T)
                told = axes.T @ (even / np.sqrt(variances)[:, None])
                energy = np.square(told).sum(axis=1)
                for size in np.square(_WEIGHTS):
                    spread = 1 + size * np.maximum(sizes, 0)
                    evidence = -float(
                        (energy / spread).sum()
                        + columns * (np.log(spread).sum() + np.log(variances).sum())
                    )
                    if evidence > best:
                        best, chosen = evidence, view
                        weights = size * scaled.T @ (axes @ (told / spread[:, None]))
        apart: Floats = chosen @ weights * root
        return apart

    def _apart(self, seen: Floats, noise: Floats, drawn: Floats, records: float) -> Floats:
        """Return (n, c) how far the public rows are from the mean, by weights of one size for all columns.

        Args:
            seen: (k, c) sums in the principal directions.
            noise: (k, c) its variance.
            drawn: (k, c) most variance that the draw of records may add.
            records: their number.
        """
        size = (records * self.moments)[:, None]
        energy = np.square(seen)

        def evidence(choice: tuple[float, float]) -> float:
            spread = np.square(size * choice[0]) + noise + choice[1] * drawn
            return float(-(np.log(spread) + energy / spread).sum())

        weight, share = max(product(_WEIGHTS, _DRAWN), key=evidence)
        power = np.square(size * weight)
        apart: Floats = self.turned @ (power / (power + noise + share * drawn) / size * seen)
        return apart
