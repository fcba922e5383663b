"""Class probabilities of public rows from the noisy sums of dense votes: ridge regression; and from rounds.

Each private record gave its directions x to its class, so the released sums are B = X'Y + noise, Y the
records' classes. Least squares on them needs X'X, which is not released; the public rows stand for it,
weighted so that they have the private records' mean (:func:`matching_weights`). X'X is about N times their
second moments G, N being the number of records. N is estimated from B itself, with the combination of
directions that is closest to 1 on the public rows; so is the mean p of each column of Y.

What is regressed is the difference from the mean. X'(Y - p) is released as well, as B less p times the sum
of all records' x. Of B itself most would be p X'1, and by how much the public rows' mean is not that of the
private records would drown the rest.

In the principal directions of G these sums are N g w + noise, w being the weights. With weights of variance
t^2 and noise of a known variance v, the best estimate shrinks by (N g t)^2 / ((N g t)^2 + v). The t with
which the released sums are most likely (the evidence, in closed form) is taken: no label is held out, and no
record is asked again. Whether a number lies below each of several points is estimated for all points together
(:func:`pooled_weights`). Embeddings come in several views, the rows themselves and rows averaged over their
graph of neighbours; there the weights are those of one view's features F, sums N U'F w, U being the public
rows in these directions, and the view, too, is the one with which the released sums are most likely.

A campaign in rounds has released its model (:mod:`pate.rounds.solver`): its probabilities are taken.

Source: Rasmussen and Williams, "Gaussian processes for machine learning", 2006, section 5.4; of averaged
features: Wu et al., "Simplifying graph convolutional networks", ICML 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from pate.answers import NUMBER
from pate.codes import GRID, code_of
from pate.data.embeddings import Embeddings
from pate.features.space import codes_over
from pate.formats.noisy_counts import RoundCounts
from pate.rounds.plan import noise_ratio
from pate.rounds.solver import Released, Start, chances, confirmed, invertible
from student.chances.cells import LEAST_SHARE, of_sum_one, shares_below
from student.chances.neighbours import averaged, neighbour_graph, points_of

if TYPE_CHECKING:
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
#: Variances of the parts of a tilt t that are tried; what keeps t finite where the mean is at the rim of what
#: the rows can have; least share of the rows that weights may leave, as an effective number: below it they
#: are equal.
_TILTS: Final = tuple(2.0 ** (power / 2) for power in range(-20, 17))
_RIDGE: Final = 1e-5
_ENOUGH: Final = 0.1
#: Of pooled weights: steps, the variance to start from, and what keeps noises apart that are almost one,
#: relative to the largest.
_POOLINGS: Final = 100
_START: Final = 1e-2
_APART: Final = 1e-9
#: The number of records must exceed this many standard deviations of its noise; that of records in rounds,
#: and what later rounds confirm, together this many.
_CLEAR: Final = 2.0
_TOGETHER: Final = 1.7
#: Of the views of embeddings: edges from each row, weights of neighbours, and the constant coordinate.
_NEIGHBOURS: Final = 10
_MEMORIES: Final = (0.0, 0.5, 0.8)
_CONSTANT: Final = 0.35
#: A model whose noise is below so much of what the draw of records adds is copied closely; of another the
#: student is the better for not copying the noise. Chosen on AG News and CIFAR-10.
_HIDDEN: Final = 10.0


def rounds_chances(public: Inputs, noisy: NoisyVotes) -> Floats | None:
    """Return (n, m) the probabilities of the model of a campaign in rounds; None if it is only noise.

    Of several labels they are those of each by itself.
    It is taken if the records stand out of the noise of their counts, and later rounds confirm what earlier
    ones have found, together by more standard deviations than noise has one time in 22: with few records
    each by itself is seldom clear.
    """
    if noisy.model is None:
        return None
    counts, sigma = noisy.class_counts
    rows, start = codes_over(public, noisy.queries.tolist()) / GRID, _start_of(noisy)
    known, wanted = counts.sum(), len(counts) ** 0.5
    if start.several:
        known, wanted = counts[-1], 1.0
    if sigma:
        rounds = (*noisy.earlier[1:], RoundCounts(noisy.counts, noisy.sigma, noisy.shown))
        released = [
            Released(each.shown, each.counts / GRID, each.sigma / GRID)
            for each in rounds
            if each.shown is not None
        ]
        # Both have the variance 1, and without records no mean above 0.
        told = [known / (sigma * wanted), confirmed(rows, start, released)]
        if sum(told) <= _TOGETHER * len(told) ** 0.5:
            return None
    elif known <= 0:
        return None
    found = chances(rows, noisy.model, start)
    if start.several:
        return found
    return of_sum_one(np.maximum(found, LEAST_SHARE))


def _start_of(noisy: NoisyVotes) -> Start:
    """Return what the first round of a campaign in rounds says."""
    return Start.of_first(*noisy.class_counts, code_of(noisy.code).answer)


def is_clear(noisy: NoisyVotes) -> bool:
    """Return whether counts are of a campaign in rounds whose noise hides little of its model."""
    if noisy.model is None or noisy.shown is None:
        return False
    sigmas = [*(each.sigma for each in noisy.earlier[1:]), noisy.sigma]
    if not all(sigmas):
        return True
    mu = sum((GRID / sigma) ** 2 for sigma in sigmas) ** 0.5
    records = _start_of(noisy).records
    directions, classes = noisy.counts.shape
    return mu > 0 and noise_ratio(classes, directions, records, mu) <= _HIDDEN


def linear_chances(public: Inputs, noisy: NoisyVotes) -> Floats | None:
    """Return (n, m) class probabilities of the public rows; None if the sums are only noise.

    Of a number they are the shares of the points of its range. With more than two, what is regressed is
    whether a record's number lies below each point but the first: of neighbouring points those are
    more alike than the shares are.
    """
    classes = noisy.counts.shape[1]
    points = code_of(noisy.code).answer.name == NUMBER and classes > 2
    asked: Floats = np.triu(np.ones((classes, classes)))[:, :-1] if points else np.eye(classes)
    views = _views(public) if isinstance(public, Embeddings) and not points else ()
    values = _values(public, noisy, np.ones(classes), asked, "pooled" if points else "one", views)
    if values is None:
        return None
    return of_sum_one(np.clip(shares_below(values) if points else values, LEAST_SHARE, 1.0))


def linear_labels(public: Inputs, noisy: NoisyVotes, none: int) -> list[Floats] | None:
    """Return for each label (n, 2) probabilities that a public row lacks it, and has it; None as above.

    The size of the weights is each label's own. ``none`` is the column that is no label.
    """
    columns = noisy.counts.shape[1]
    # As in records_of: a record counts once in none and a T-th of each label.
    total = np.full(columns, 1 / code_of(noisy.code).answer.most)
    total[none] = 1.0
    values = _values(public, noisy, total, np.delete(np.eye(columns), none, axis=1), "own")
    return None if values is None else having(values)


def having(values: Floats) -> list[Floats]:
    """Return for each of (n, l) labels (n, 2) probabilities that a row lacks it, and has it."""
    has = np.clip(values, LEAST_SHARE, 1 - LEAST_SHARE).T
    return [np.stack([1 - each, each], axis=1) for each in has]


def _values(
    public: Inputs,
    noisy: NoisyVotes,
    total: Floats,
    asked: Floats,
    sizes: Sizes,
    views: tuple[NDArray[np.floating], ...] = (),
) -> Floats | None:
    """Return (n, c) the mean answers of records at the public rows; None if all is only noise.

    Of views of the public rows one is weighed; without any the directions are. Others: :meth:`_Basis.values`.
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
    basis = replace(basis, views=views)
    return basis.values(sums, sigma, total, asked, sizes)


def _views(public: Embeddings) -> tuple[NDArray[np.floating], ...]:
    """Return the rows with a constant coordinate, and averaged over their graph."""
    points = points_of(public)
    if len(points) < 2:
        return ()
    lifted = np.hstack([points, np.full((len(points), 1), _CONSTANT)]).astype(np.float32)
    graph = neighbour_graph(points, _NEIGHBOURS)
    return tuple(averaged(graph, lifted, memory) for memory in _MEMORIES)


@dataclass(frozen=True, eq=False)
class _Basis:
    """The public rows in the principal directions of their second moments."""

    moments: Floats  # (k,) second moments, positive
    axes: Floats  # (d, k) orthonormal
    turned: Floats  # (n, k) the public rows
    # (k,) the combination of directions that is closest to 1 on the public rows, and 1 in the mean
    one: Floats
    shares: Floats  # (n,) the share of the private records that each public row stands for
    views: tuple[NDArray[np.floating], ...] = ()  # (n, f) features each

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

        ``sums``: (d, m) codes times answers; ``sigma``: standard deviation of the noise on each;
        ``total``: (m,) with which the columns add up to the codes of all records; ``asked``: (m, c)
        sums of columns whose means are wanted; ``sizes``: of the weights: one for all of them, each
        its own, or pooled.
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

        Columns are divided by the roots of ``varied``, (c,) the variances of a record's answer.
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

        ``seen`` are (k, c) sums in the principal directions, with ``noise`` its variance, and ``drawn`` the
        most that the draw of records may add to it.
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


def matching_weights(rows: Floats, mean: Floats, noise: float, records: float) -> Floats:
    """Return (n,) positive weights, with sum 1, with which public rows have the mean of the private records.

    Public and private rows may be drawn differently: another hospital, another year, one record of a patient
    in place of all. Of all weights with that mean those closest to equal ones (least relative entropy) are
    exp(t.x), t being a vector: an exponential tilt. Its parts that may be noise are shrunk by the evidence.

    ``noise`` is the variance of the mean in each coordinate; the draw of the records is noise as well.

    Source: Hainmueller, "Entropy balancing for causal effects", Political Analysis 20(1), 2012.
    """
    equal = np.full(len(rows), 1 / len(rows))
    middle = rows.mean(axis=0)
    apart = rows - middle
    variances, axes = np.linalg.eigh(apart.T @ apart / len(rows))
    kept = variances > _LEAST * variances[-1]
    variances, axes = variances[kept], axes[:, kept]
    moved = axes.T @ (mean - middle)
    noises = noise + variances * (1 / len(rows) + 1 / records)

    def evidence(size: float) -> float:
        spread = np.square(variances) * size + noises
        return float(-(np.log(spread) + np.square(moved) / spread).sum())

    power = np.square(variances) * max(_TILTS, key=evidence)
    goal = power / (power + noises) * moved
    turned = apart @ axes

    def tilted(t: Floats) -> tuple[Floats, float]:
        heights = turned @ t
        highest = float(heights.max())
        raised = np.exp(heights - highest)
        return raised / raised.sum(), highest + float(np.log(raised.mean()))

    def value(t: Floats) -> tuple[float, Floats]:
        weights, log_mean = tilted(t)
        return (
            log_mean - float(t @ goal) + _RIDGE / 2 * float(t @ t),
            weights @ turned - goal + _RIDGE * t,
        )

    def curvature(t: Floats) -> Floats:
        weights, _ = tilted(t)
        at = turned - weights @ turned
        curved: Floats = (at * weights[:, None]).T @ at + _RIDGE * np.eye(len(t))
        return curved

    from scipy import optimize  # slow to import

    found = optimize.minimize(
        value, np.zeros(len(goal)), jac=True, hess=curvature, method="trust-exact"
    )
    weights, _ = tilted(found.x)
    enough = 1 / np.square(weights).sum() >= _ENOUGH * len(rows)
    return weights if np.isfinite(weights).all() and enough else equal


def pooled_weights(size: Floats, seen: Floats, noise: Floats, drawn: Floats) -> Floats:
    """Return (k, c) weights for answers that are like each other, as whether a number is below each point.

    In each direction the weights of all answers are drawn together, with one covariance C for all
    directions: what is said of one answer then tells of the others. The C with which the released sums are
    most likely is found by expectation and maximisation.

    Source: Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM algorithm", JRSS B
    39, 1977; Efron and Morris, "Empirical Bayes on vector observations", Biometrika 59(2), 1972.

    ``size``: (k,) what a weight of 1 adds to the sum in each direction, positive; ``seen``: (k, c)
    the sums of c answers; ``noise``: (c, c) covariance of their noise, the same in each direction;
    ``drawn``: (c, c) what the draw of records adds to it, relative to ``size``.
    """
    count = seen.shape[1]
    noise = noise + _APART * np.diag(noise).max() * np.eye(count)
    errors = noise + size[:, None, None] * drawn
    covariance = _START * np.eye(count)
    made = np.zeros_like(seen)
    for _ in range(_POOLINGS):
        spread = invertible(np.square(size)[:, None, None] * covariance + errors)
        # C h S^-1: the transpose of what solves S x = h C, as both are symmetric.
        gain = np.linalg.solve(spread, size[:, None, None] * covariance).transpose(0, 2, 1)
        made = (gain @ seen[:, :, None])[:, :, 0]
        left = covariance - size[:, None, None] * (gain @ covariance)
        covariance = (made.T @ made + left.sum(axis=0)) / len(size)
    return made
