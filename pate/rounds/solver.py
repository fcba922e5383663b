"""The next model from the noisy sums of all rounds so far, and the public rows.

Round 0 releases class counts. From then on round t shows a model W_t, and a record casts its part of the
gradient of the logistic loss there, x (p_t(x) - e_y)', scaled to length 1 if it is longer than c_t. The
sum S_t, times c_t, is the gradient g_t of the records' loss at W_t plus noise of c_t sigma_t.

The curvature there for class c is B_c = C/(C - 1) N E[p_c (1 - p_c) x x'], which public rows have, N being
known from round 0. The whole Hessian is N E[(diag(p) - pp') (x) x x'], and weights of all classes sum to 0.
Where all C classes are equally likely, diag(p) - pp' is 1/C on such weights, and p_c (1 - p_c) is (C -
1)/C^2: the factor makes up the difference. For two classes it is 2 for every p. Without it, steps would be
twice too long; where few of many classes compete, they still are, and the search below ends them. (One
curvature for all classes diverges. A factor for each row, 1/(1 - p_c), is no better with that search.)

In the eigenvectors of B_c the prior of W - W_0 has the variance S = s^2 sqrt(B), W_0 having the class shares
only. The numbers z = B (W_T - W_0) - g_T have mean B (W - W_0), and variance v of privacy noise plus d of the
draw of records. That has no factor: d is N E[p_c (1 - p_c) x x'], (C - 1)/C of B. So the next model is
W_0 + B S / (B^2 S + v + d) z; s^2 is the one with which the z of all classes are most likely. (Classes
differ more in directions in which rows do. A prior of one variance in all directions is as good where noise
is small, and up to two points of accuracy behind where it is large. There, with arrays of the least length, d
is taken as B: more shrinkage than the variance asks for, which trials had better.)

The gradient elsewhere on the way from W_T to that model is known, too: it is that at W_T and the sum of
x (p - p_T)', in which no label is, so public rows stand for it. The step ends where the slope of the
posterior along it is 0, if that is before its end. With many classes the first step would go far beyond.

For the same reason earlier rounds count. A gradient at W_t is one at W_T less the sum of x (p_T - p_t)'. How
far public rows are off is known: by N^2/n E[(x'a)^2 (p_T - p_t)^2] in direction a, which is little once
models hardly move. So each round's gradient is moved to W_T, and in each direction the mean of least variance
is taken. Therefore more rounds than needed cost next to nothing. All of it is post-processing of what was
released.

Of several labels each is a question of its own with weights and probability of its own: p_c is the logistic
function of x'W_c, W_0 has the labels' shares, and B_c has no factor. All have one s^2, and one length of
arrays. The last column, which counts records in the first release, has no weights.

Source: Newton's method with a line search; for s^2 MacKay, "Bayesian interpolation", Neural Computation 4,
1992.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.answers import RESIDUAL_LABELS
from pate.codes import GRID
from pate.errors import DataError
from pate.rounds.model import MOST_CUT, MOST_WEIGHT, WEIGHT_GRID, RoundModel
from pate.rounds.record_array import labels_unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pate.answers import Answer

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]

#: Prior variances of the weights that are tried, in the direction of largest curvature, and the power of
#: curvature that they are in proportion to. With a smaller one nothing but class shares would be left of
#: what is released: noise shrinks weights anyway.
_SIZES: Final = tuple(2.0**power for power in range(-6, 25))
_POWER: Final = 0.5
#: Eigenvalues below this part of the largest are of no direction.
_LEAST: Final = 1e-9
_TINY: Final = 1e-300
#: Up to this kappa noise is more than the draw of records in all directions together.
_LOUD: Final = 0.5
#: Least variance of a gradient's noise, in records.
_LEAST_NOISE: Final = 1e-6
#: Least variance of a combination, as a part of the sum of all variances.
_LEAST_PART: Final = 1e-10
#: Least share of a class, times the number of classes.
_RAREST: Final = 0.01
#: Halvings that find the length of a step.
_HALVED: Final = 8
#: Steps that set the intercepts.
_LEVELLED: Final = 50


@dataclass(frozen=True, eq=False)
class Start:
    """What the first release says."""

    # (C,) of the classes, positive, of sum 1; of several labels that of each, below 1
    shares: Floats
    records: float  # their number, above 0
    several: bool = False  # whether they have several labels

    @classmethod
    def of(cls, counts: Floats, sigma: float) -> Start:
        """Return it from noisy (C,) class counts.

        Counts are shrunk to their mean by as much of their variance as is noise.
        """
        wide = np.asarray(counts, dtype=np.float64)
        if (
            wide.ndim != 1
            or len(wide) < 2
            or not np.isfinite(wide).all()
            or not 0 <= sigma < np.inf
        ):
            raise DataError(f"class counts of shape {wide.shape} with noise {sigma}")
        classes = len(wide)
        mean, noise = float(wide.mean()), sigma**2
        # With few records the noise may hide all of them.
        records = max(float(wide.sum()), sigma * np.sqrt(classes), 1.0)
        spread = float(np.square(wide - mean).sum()) / (classes - 1)
        kept = max(spread - noise, 0.0) / spread if spread > 0 else 0.0
        shares = np.maximum(1 / classes + kept * (wide - mean) / records, _RAREST / classes)
        return cls(shares / shares.sum(), records)

    @classmethod
    def of_first(cls, counts: Floats, sigma: float, answer: Answer) -> Start:
        """Return it from the first row of the first release, and the noise on it, in votes."""
        if answer.name != RESIDUAL_LABELS:
            return cls.of(counts, sigma)
        records = GRID / labels_unit(len(counts))  # of a vote at one label
        return cls.of_labels(records * counts, records * sigma)

    @classmethod
    def of_labels(cls, counts: Floats, sigma: float) -> Start:
        """Return it from noisy (C + 1,) counts of labels, and of records, which come last."""
        made = cls.of(counts, sigma)
        records = max(float(counts[-1]), sigma, 1.0)
        mean, noise = float(counts[:-1].mean()), sigma**2
        spread = float(np.square(counts[:-1] - mean).sum()) / max(len(counts) - 2, 1)
        kept = max(spread - noise, 0.0) / spread if spread > 0 else 0.0
        shares = (mean + kept * (np.asarray(counts[:-1]) - mean)) / records
        return replace(
            made, shares=np.clip(shares, _RAREST, 1 - _RAREST), records=records, several=True
        )

    def likely(self, scores: Floats) -> Floats:
        """Return (n, C) probabilities of (n, C) scores: of the classes, or of each label by itself."""
        return logistic(scores) if self.several else softmax(scores)

    @property
    def logits(self) -> Floats:
        """(C,) the scores whose probabilities are the shares."""
        if self.several:
            found: Floats = np.log(self.shares / (1 - self.shares))
            return found
        logits = np.log(self.shares)
        return np.asarray(logits - logits.mean())

    @property
    def competing(self) -> float:
        """C/(C - 1), by which the curvature of a class is larger than its own; of several labels 1."""
        classes = len(self.shares)
        return 1.0 if self.several else classes / (classes - 1)

    def own(self, rounds: Sequence[Released]) -> list[Released]:
        """Return the rounds without the column that has no weights."""
        if not self.several:
            return [*rounds]
        return [
            Released(
                RoundModel(each.shown.weights[:, :-1], each.shown.cut),
                each.sums[:, :-1],
                each.sigma,
            )
            for each in rounds
        ]


@dataclass(frozen=True, eq=False)
class Released:
    """One round as it was released."""

    shown: RoundModel  # the model
    sums: Floats  # (K, C) noisy sums, in votes
    sigma: float  # standard deviation of the noise on each, in votes


def next_model(
    rows: Floats, start: Start, rounds: Sequence[Released], kappa: float = 1.0
) -> RoundModel:
    """Return the model after some rounds: that of the next one, or the final one.

    ``rows`` are (n, K) the public rows' codes / :data:`~pate.codes.GRID`. Without rounds the model is
    the class shares.
    """
    _check(rows, start, rounds)
    first = _first(rows, start)
    weights = first
    if rounds:
        weights = _step(rows, start, first, start.own(rounds), loud=kappa <= _LOUD)
    return _shown(rows, start, weights, kappa)


def chances(rows: Floats, model: RoundModel, start: Start) -> Floats:
    """Return (n, C) probabilities of the public rows, whose mean is the released shares."""
    if start.several:
        return _levelled(rows @ (model.weights[:, :-1] / WEIGHT_GRID), start.shares)
    logits = rows @ (model.weights / WEIGHT_GRID) + np.log(start.shares)
    for _ in range(_LEVELLED):
        # Of logarithms, so that not even far logits vanish.
        likely = _log_softmax(logits)
        top = likely.max(axis=0)
        logits = logits + np.log(start.shares) - top - np.log(np.exp(likely - top).mean(axis=0))
    return softmax(logits)


def confirmed(rows: Floats, start: Start, rounds: Sequence[Released]) -> float:
    """Return by how many standard deviations later rounds say that models follow records' features.

    With D the features' part of a model, its weights but for their level, the loss of records is convex, so
    g'D is at least what the loss is above that of the level. Of all rounds the sums of g'D are added, each
    over the standard deviation of its noise, which is fresh. If no model is better than its level, the result
    is that of a normal law of mean 0 or less: above 2 one time in 44. No number of records is in it.
    """
    first, mean, rounds = _first(rows, start), rows.mean(axis=0), start.own(rounds)
    level = mean / max(float(np.linalg.norm(mean)), _TINY)
    total = weight = 0.0
    for at, each in enumerate(rounds[1:], 1):
        moved = each.shown.weights / WEIGHT_GRID - first
        if not start.several:
            moved = moved - moved.mean(axis=1, keepdims=True)
        moved = moved - np.outer(level, level @ moved)
        noise = each.sigma * float(np.linalg.norm(moved))
        if noise:
            # Later models have more of what there is to be found.
            total -= np.sqrt(at) * float((each.sums * moved).sum()) / noise
            weight += at
    return total / np.sqrt(weight) if weight else 0.0


def softmax(scores: NDArray[np.floating]) -> Floats:
    """Return (n, m) probabilities of (n, m) scores."""
    wide = scores.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    found: Floats = powers / powers.sum(axis=1, keepdims=True)
    return found


def logistic(scores: Floats) -> Floats:
    """Return (n, m) the probability of each of (n, m) scores by itself."""
    powers = np.exp(-np.abs(scores))
    found: Floats = np.where(scores < 0, powers, 1.0) / (1 + powers)
    return found


def _levelled(scores: Floats, shares: Floats) -> Floats:
    """Return (n, m) probabilities of scores, each column moved so that its mean is a share."""
    least = np.log(shares / (1 - shares)) - scores.max(axis=0, initial=-np.inf)
    most = np.log(shares / (1 - shares)) - scores.min(axis=0, initial=np.inf)
    for _ in range(_LEVELLED):
        middle = (least + most) / 2
        low = logistic(scores + middle).mean(axis=0) < shares
        least, most = np.where(low, middle, least), np.where(low, most, middle)
    return logistic(scores + (least + most) / 2)


def _step(
    rows: Floats, start: Start, first: Floats, rounds: Sequence[Released], *, loud: bool
) -> Floats:
    """Return (K, C) the weights after the last round; ``loud``: most of their variance is noise."""
    part = start.records / len(rows)
    weights = rounds[-1].shown.weights / WEIGHT_GRID
    likely = start.likely(rows @ weights)
    seen = _seen(rows, start, weights - first, likely, rounds, loud=loud)
    priors = _priors(seen)
    step = np.stack(
        [each.axes @ each.step(prior) for each, prior in zip(seen, priors, strict=True)], axis=1
    )

    def slope(share: float) -> float:
        """Return that of the posterior's negative logarithm, at a share of the step."""
        moved = part * (rows.T @ (start.likely(rows @ (weights + share * step)) - likely))
        return sum(
            each.slope(prior, step[:, at], moved[:, at], share)
            for at, (each, prior) in enumerate(zip(seen, priors, strict=True))
        )

    return weights + _share(slope) * step


@dataclass(frozen=True, eq=False)
class _Seen:
    """What all rounds say of one class at the last model, in the k eigenvectors of its curvature."""

    axes: Floats  # (K, k) the eigenvectors
    curved: Floats  # (k,) B, positive
    from_first: Floats  # (k,) W_T - W_0
    gradient: Floats  # (k,) g_T, the mean of all rounds
    spread: Floats  # (k,) v + d, its variance

    @property
    def apart(self) -> Floats:
        """Return (k,) z, of mean B (W - W_0)."""
        return self.curved * self.from_first - self.gradient

    def step(self, prior: Floats) -> Floats:
        """Return (k,) from W_T to the weights that are most likely, with (k,) prior variances."""
        power = self.curved * prior
        found: Floats = power / (self.curved * power + self.spread) * self.apart - self.from_first
        return found

    def slope(self, prior: Floats, step: Floats, moved: Floats, share: float) -> float:
        """Return the slope at a ``share`` of a (K,) step from W_T.

        ``moved`` (K,) is how far the gradient is from that at W_T.
        """
        along = self.axes.T @ step
        gradient = self.gradient + self.axes.T @ moved
        pull = (self.from_first + share * along) / prior
        return float(along @ (self.curved / self.spread * gradient + pull))


def _seen(
    rows: Floats,
    start: Start,
    from_first: Floats,
    likely: Floats,
    rounds: Sequence[Released],
    *,
    loud: bool,
) -> list[_Seen]:
    """Return what each class's gradients say, moved to the last model.

    ``from_first`` (K, C) is W_T - W_0, ``likely`` (n, C) the probabilities of the last model.
    """
    part = start.records / len(rows)
    cuts = np.array([each.shown.cut / GRID for each in rounds])
    noise = np.maximum(np.square(cuts * [each.sigma for each in rounds]), _LEAST_NOISE)
    moved = [likely - start.likely(rows @ (each.shown.weights / WEIGHT_GRID)) for each in rounds]
    gradients = [
        cut * each.sums + part * (rows.T @ apart)
        for cut, each, apart in zip(cuts, rounds, moved, strict=True)
    ]
    seen = []
    for at in range(likely.shape[1]):
        curved, axes = _curvature(rows, part * start.competing, likely[:, at])
        off = part * np.stack([apart[:, at] for apart in moved], axis=1)
        mean, left = _mean(
            axes.T @ np.stack([each[:, at] for each in gradients], axis=1),
            _mismatch(rows @ axes, off) + np.diag(noise),
        )
        drawn = curved if loud else curved / start.competing
        seen.append(_Seen(axes, curved, axes.T @ from_first[:, at], mean, left + drawn))
    return seen


def _curvature(rows: Floats, size: float, likely: Floats) -> tuple[Floats, Floats]:
    """Return (k,) the eigenvalues of a class's curvature, and (K, k) its eigenvectors."""
    varied = size * likely * (1 - likely)
    curved, axes = np.linalg.eigh((rows * varied[:, None]).T @ rows)
    kept = curved > _LEAST * max(float(curved[-1]), _TINY)
    return curved[kept], axes[:, kept]


def _mismatch(turned: Floats, off: Floats) -> Floats:
    """Return (k, T, T) the covariance of what (n, k) public rows add when gradients are moved.

    ``off`` (n, T) is what each adds to the gradient of a round, along itself.
    """
    rounds = off.shape[1]
    pairs = (off[:, :, None] * off[:, None, :]).reshape(len(off), -1)
    return (np.square(turned).T @ pairs).reshape(-1, rounds, rounds)


def invertible(covariances: Floats) -> Floats:
    """Return (k, T, T) covariances that have an inverse, whatever the sums they were made of.

    A party that lies can make sums so large that noise is nothing beside them.
    """
    least = _LEAST_PART * np.trace(covariances, axis1=1, axis2=2)
    found: Floats = covariances + least[:, None, None] * np.eye(covariances.shape[1])
    return found


def _mean(seen: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Return (k,) the means of least variance of (k, T) numbers, and (k,) these variances."""
    inverse = np.linalg.inv(invertible(covariance)).sum(axis=2)
    left = 1 / inverse.sum(axis=1)
    return left * (inverse * seen).sum(axis=1), left


def _priors(seen: Sequence[_Seen]) -> list[Floats]:
    """Return (k,) prior variances of each class's weights: those with which all z are most likely."""
    curved, apart, given = (
        np.concatenate(each)
        for each in zip(*[(one.curved, one.apart, one.spread) for one in seen], strict=True)
    )
    most = max(float(curved.max(initial=0)), _TINY)

    def evidence(size: float) -> float:
        spread = curved**2 * size * (curved / most) ** _POWER + given
        return -float((np.log(spread) + np.square(apart) / spread).sum())

    size = max(_SIZES, key=evidence)
    return [size * (one.curved / most) ** _POWER for one in seen]


def _share(slope: Callable[[float], float]) -> float:
    """Return the share of a step at which the slope is 0; 1 if it is below 0 up to there."""
    least, most = 0.0, 1.0
    share = most
    if slope(share) > 0:
        for _ in range(_HALVED):
            share = (least + most) / 2
            least, most = (least, share) if slope(share) > 0 else (share, most)
    return share


def _first(rows: Floats, start: Start) -> Floats:
    """Return (K, C) weights whose logits are closest to those of the class shares."""
    mean = rows.mean(axis=0)
    moments = rows.T @ rows / len(rows)
    largest = max(float(np.linalg.eigvalsh(moments)[-1]), 1e-12)
    one = np.linalg.solve(moments + 1e-3 * largest * np.eye(len(mean)), mean)
    return np.outer(one, start.logits)


def _shown(rows: Floats, start: Start, weights: Floats, kappa: float) -> RoundModel:
    """Return the model with its cut: kappa times the usual length that the model itself predicts."""
    whole = np.clip(np.rint(weights * WEIGHT_GRID), -MOST_WEIGHT, MOST_WEIGHT)
    likely = start.likely(rows @ (whole / WEIGHT_GRID))
    varied = (likely * (1 - likely)).sum(axis=1)
    if not start.several:
        varied = 1 - np.square(likely).sum(axis=1)
    cut = kappa * float(np.sqrt((np.square(rows).sum(axis=1) * varied).mean()))
    if start.several:
        whole = np.hstack([whole, np.zeros((len(whole), 1))])
    return RoundModel(whole.astype(np.int64), int(np.clip(np.rint(cut * GRID), 1, MOST_CUT)))


def _log_softmax(logits: Floats) -> Floats:
    below = logits - logits.max(axis=1, keepdims=True)
    made: Floats = below - np.log(np.exp(below).sum(axis=1, keepdims=True))
    return made


def _check(rows: Floats, start: Start, rounds: Sequence[Released]) -> None:
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise DataError(f"public rows of shape {rows.shape}, or not finite")
    shape = (rows.shape[1], len(start.shares) + start.several)
    for each in rounds:
        if each.sums.shape != shape or each.shown.weights.shape != shape:
            raise DataError(f"sums of shape {each.sums.shape}, not {shape}")
        if not np.isfinite(each.sums).all() or not 0 <= each.sigma < np.inf:
            raise DataError("sums, or their noise, are not finite")
