"""Exact divergences of what mechanisms release: by quadrature, or by sums over the integers.

Written apart from the accountant, and by other means: all outcomes of all neighbours, each with its
probability. A probability of 1e-200 has as many good digits as one of 1/2; tests ask for nine.

Divergences are of the histogram at hand (first) against its neighbours.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pate.accounting.units import Neighbours

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class Noise(Protocol):
    """One law of noise, and where to integrate it."""

    def nodes(self, counts: Counts) -> tuple[Floats, Floats]:
        """Return where to evaluate, and logarithms of the weights: for noisy ``counts``."""

    def log_mass(self, z: Floats) -> Floats:
        """Return the logarithm of the density, or of the mass."""

    def log_upto(self, z: Floats) -> Floats:
        """Return log P[Z <= z]."""

    def log_below(self, z: Floats) -> Floats:
        """Return log P[Z < z]."""


@dataclass(frozen=True)
class Gaussian:
    """N(0, sigma^2). The trapezoidal rule converges faster than any power for such integrands."""

    sigma: float

    def nodes(self, counts: Counts) -> tuple[Floats, Floats]:
        step = self.sigma / 8.0
        x = np.arange(counts.min() - 13.0 * self.sigma, counts.max() + 13.0 * self.sigma, step)
        return x, np.full(x.size, np.log(step))

    def log_mass(self, z: Floats) -> Floats:
        made: Floats = -0.5 * (z / self.sigma) ** 2 - np.log(self.sigma * np.sqrt(2.0 * np.pi))
        return made

    def log_upto(self, z: Floats) -> Floats:
        made: Floats = special.log_ndtr(z / self.sigma)
        return made

    log_below = log_upto


@dataclass(frozen=True)
class Laplace:
    """Density gamma/2 exp(-gamma |z|); between two counts all is a sum of exponentials."""

    gamma: float

    def nodes(self, counts: Counts) -> tuple[Floats, Floats]:
        places = np.unique(counts).astype(np.float64)
        far = 32.0 / self.gamma
        ends = [np.linspace(places[0] - far, places[0], 65)]
        for low, high in itertools.pairwise(places):
            ends.append(np.linspace(low, high, int(np.ceil((high - low) * self.gamma * 2.0)) + 1))
        ends.append(np.linspace(places[-1], places[-1] + far, 65))
        edges = np.unique(np.concatenate(ends))
        at, weight = np.polynomial.legendre.leggauss(12)
        half = np.diff(edges)[:, None] / 2.0
        x = edges[:-1, None] + half * (1.0 + at)
        return x.ravel(), np.log(half * weight).ravel()

    def log_mass(self, z: Floats) -> Floats:
        made: Floats = np.log(self.gamma / 2.0) - self.gamma * np.abs(z)
        return made

    def log_upto(self, z: Floats) -> Floats:
        half = np.log(0.5) - self.gamma * np.abs(z)
        made: Floats = np.where(z < 0.0, half, np.log1p(-np.exp(half)))
        return made

    log_below = log_upto


@dataclass(frozen=True)
class Lattice:
    """A law on the integers by its unnormalised log mass, which falls with the distance from 0."""

    kind: str  # ``gaussian``, mass exp(-z^2 / (2 scale^2)), or ``geometric``, exp(-|z| / scale)
    scale: float  # in votes

    def nodes(self, counts: Counts) -> tuple[Floats, Floats]:
        reach = int((13.0 if self.kind == "gaussian" else 32.0) * self.scale) + 2
        x = np.arange(counts.min() - reach, counts.max() + reach + 1.0)
        return x, np.zeros(x.size)

    def log_mass(self, z: Floats) -> Floats:
        return self._weight(z) - self._log_total()

    def log_upto(self, z: Floats) -> Floats:
        whole = np.arange(min(z.min(), 0.0) - 60.0 * self.scale, max(z.max(), 0.0) + 1.0).round()
        # Sums of masses from their own end: both tails keep their digits.
        low = np.logaddexp.accumulate(self.log_mass(whole))
        above = np.logaddexp.accumulate(self.log_mass(-whole))  # P[Z >= -whole]
        place = np.searchsorted(whole, z)
        lower = low[place]
        # P[Z <= z] = 1 - P[Z >= z + 1], the second by symmetry P[Z <= -z - 1].
        upper_at = np.searchsorted(whole, np.minimum(-z - 1.0, 0.0))
        upper = np.log1p(-np.exp(above[upper_at]))
        made: Floats = np.where(z < 0.0, lower, upper)
        return made

    def log_below(self, z: Floats) -> Floats:
        return self.log_upto(z - 1.0)

    def _weight(self, z: Floats) -> Floats:
        made: Floats = (
            -0.5 * (z / self.scale) ** 2 if self.kind == "gaussian" else -np.abs(z) / self.scale
        )
        return made

    def _log_total(self) -> float:
        z = np.arange(1.0, 1000.0 * max(self.scale, 1.0))
        return float(np.log1p(2.0 * np.exp(self._weight(z)).sum()))


def log_labels(histograms: Counts, noise: Noise) -> Floats:
    """Return log P[argmax_j (n_j + Z_j) = label], (histograms, classes); ties go to the first class.

    ``histograms``: (histograms, classes), best all near to each other; ``noise``: on each count,
    independent.
    """
    x, log_weight = noise.nodes(histograms)
    counts, place = np.unique(histograms, return_inverse=True)
    place = place.reshape(histograms.shape)
    shifted = x[None, :] - counts[:, None]
    shape = shifted.shape
    mass = noise.log_mass(shifted.ravel()).reshape(shape)[place]
    upto = noise.log_upto(shifted.ravel()).reshape(shape)[place]
    below = noise.log_below(shifted.ravel()).reshape(shape)[place]
    # Class j must be above all classes before it, and not below any after it.
    terms = mass + log_weight
    running = np.zeros(mass[:, 0].shape)
    for j in range(1, histograms.shape[1]):
        running += below[:, j - 1]
        terms[:, j] += running
    running[...] = 0.0
    for j in range(histograms.shape[1] - 2, -1, -1):
        running += upto[:, j + 1]
        terms[:, j] += running
    largest = terms.max(axis=2, keepdims=True)
    terms -= largest
    made: Floats = np.log(np.exp(terms, out=terms).sum(axis=2)) + largest[:, :, 0]
    return made


def divergences(log_p: Floats, log_others: Floats, orders: ArrayLike) -> Floats:
    """Return D_order(p || other) for laws on the same outcomes, (others, orders) nats.

    The sum of p'_j h(ln(p_j / p'_j)) with h(x) = e^(order x) - 1 - order (e^x - 1), which is never
    negative, is E[(p/p')^order] - 1. So nothing cancels, however near the laws are.

    ``log_p``: (outcomes,); ``log_others``: (others, outcomes); ``orders``: (orders,).
    """
    alphas = np.asarray(orders, np.float64)
    likeliest = int(log_p.argmax())
    rest = np.arange(log_p.size) != likeliest
    ratio = log_p - log_others
    # The likeliest outcome's probabilities differ by what those of all others differ by.
    q, other_q = np.exp(log_p[rest]), np.exp(log_others[:, rest])
    change = (other_q * -np.expm1(ratio[:, rest])).sum(axis=1)
    left = 1.0 - other_q.sum(axis=1)
    near = np.abs(change) < 0.5 * left
    ratio[near, likeliest] = np.log1p(change[near] / left[near])
    log_others = log_others.copy()
    log_others[near, likeliest] = np.log(left[near])
    assert q.sum() < 1.0
    x, log_q = ratio[:, :, None], log_others[:, :, None]
    scaled = alphas * x
    series = np.zeros(np.broadcast_shapes(x.shape, scaled.shape))
    small = np.abs(scaled) + np.abs(x) < 0.1
    x_small, factorial = np.where(small, x, 0.0), 1.0
    for n in range(2, 14):
        factorial *= n
        series += (alphas**n - alphas) * x_small**n / factorial
    by_series = np.exp(log_q) * series
    # ln p^order p'^(1 - order): beyond floats for outcomes that only this histogram can have.
    log_terms = alphas * log_p[:, None] - (alphas - 1.0) * log_others[:, :, None]
    direct = (
        np.exp(np.minimum(log_terms, 50.0))
        + (alphas - 1.0) * np.exp(log_q)
        - alphas * np.exp(log_p[:, None])
    )
    summed = np.log1p(np.where(small, by_series, direct).sum(axis=1))
    large = log_terms.max(axis=1) > 40.0
    made: Floats = np.where(large, special.logsumexp(log_terms, axis=1), summed) / (alphas - 1.0)
    return made


def every_neighbour(histogram: Counts, neighbours: Neighbours) -> Counts:
    """Return all histograms that one unit can make of this one, itself left out.

    For few classes and votes: their number grows like classes^(2 votes).
    """
    k, classes = neighbours.votes, histogram.size
    found = set()
    for gone in itertools.combinations_with_replacement(range(classes), k):
        left = histogram - np.bincount(gone, minlength=classes)
        if (left < 0).any():
            continue
        if neighbours.adjacency == "remove":
            for part in range(1, k + 1):
                less = np.bincount(gone[:part], minlength=classes)
                found |= {tuple(histogram - less), tuple(histogram + less)}
        else:
            for come in itertools.combinations_with_replacement(range(classes), k):
                found.add(tuple(left + np.bincount(come, minlength=classes)))
    found -= {tuple(histogram)}
    return np.array(sorted(found), np.int64)


def some_neighbours(
    histogram: Counts, neighbours: Neighbours, random: np.random.Generator, mixed: int
) -> Counts:
    """Return neighbours that matter: one class to one class, and ``mixed`` at random.

    Votes move (go, come) between the plurality, the runner-up, the last class and two others, from
    each to each, all k of them or as many as there are. The rest are moves of k votes from random
    classes to random classes.
    """
    k, classes = neighbours.votes, histogram.size
    ranked = np.argsort(-histogram, kind="stable")
    few = np.unique(np.concatenate([ranked[:2], ranked[-1:], random.integers(0, classes, 2)]))
    found = set()
    for a, b in itertools.permutations(few, 2):
        moved = min(k, int(histogram[a]))
        made = histogram.copy()
        made[a] -= moved
        if neighbours.adjacency == "remove":
            found.add(tuple(made))
            more = histogram.copy()
            more[b] += k
            found.add(tuple(more))
        else:
            made[b] += moved
            found.add(tuple(made))
    for _ in range(mixed):
        voters = random.choice(np.repeat(np.arange(classes), histogram), k, replace=False)
        made = histogram - np.bincount(voters, minlength=classes)
        if neighbours.adjacency == "change":
            made = made + np.bincount(random.integers(0, classes, k), minlength=classes)
        found.add(tuple(made))
    found -= {tuple(histogram)}
    return np.array(sorted(found), np.int64)
