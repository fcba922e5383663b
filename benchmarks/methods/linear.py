"""Linear models with privacy, on all records in one place: three ways that are not DP-SGD.

* Noisy gradients of all records at once: exactly Gaussian, so no bound of sampling is needed.
* Noisy least squares: X'X and X'Y once, with Gaussian noise (Vu and Slavkovic 2009; Wang 2018), or
  only X'Y with the public set's X'X.
* Objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011), at delta 0, for two classes: what
  diffprivlib has, of which 0.6.6 does not run with the scikit-learn of this project.
"""

from __future__ import annotations

import math
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.method import (
    Fitted,
    Method,
    Setting,
    gaussian_multiplier,
    mu,
    needed,
    product,
)  # fmt: skip
from benchmarks.problem import LONGEST, Problem, Rows
from benchmarks.record import Cost

Floats = NDArray[np.floating]
#: Of stochastic gradient descent.
MOMENTUM: Final = 0.9


def _with_one(rows: Floats) -> Floats:
    return np.hstack([rows, np.ones((len(rows), 1), dtype=rows.dtype)])


def of_curator(
    problem: Problem, rows: Rows, seconds: float, numbers: int = 0, steps: int = 0
) -> Cost:
    """Return the cost of a training where one curator has all records: each party sends its own."""
    largest = max(len(part) for part in problem.parts(0))
    up = largest * (rows.private.shape[1] + 1) * rows.private.itemsize
    return Cost(1, up, 0, 0.0, seconds, numbers, steps)


def _fitted(
    problem: Problem, rows: Rows, weights: Floats, began: float, numbers: int = 0, steps: int = 0
) -> Fitted:
    cost = of_curator(problem, rows, time.process_time() - began, numbers, steps)
    validation, test = (_with_one(each) @ weights for each in (rows.validation, rows.test))
    return Fitted(validation, test, cost)


def _gradients(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
    rows, labels = problem.rows(str(setting["kind"])), problem.split.private.labels
    inputs = _with_one(rows.private)
    steps, clip = int(setting["steps"]), float(setting["clip"])
    sigma = clip * gaussian_multiplier(needed(epsilon), steps)
    random = np.random.default_rng(seed)
    began = time.process_time()
    length = np.sqrt(np.square(inputs).sum(axis=1))
    weights = np.zeros((inputs.shape[1], problem.classes), dtype=np.float32)
    moved, mean = np.zeros_like(weights), np.zeros_like(weights)
    rate = float(setting["rate"]) / clip
    targets = np.eye(problem.classes, dtype=np.float32)[labels]
    for step in range(steps):
        logits = inputs @ weights
        logits -= logits.max(axis=1, keepdims=True)
        chances = np.exp(logits)
        chances /= chances.sum(axis=1, keepdims=True)
        apart = chances - targets
        # The gradient of a record is the product of its row and its error: so is its norm.
        norm = np.sqrt(np.square(apart).sum(axis=1)) * length
        apart *= np.minimum(1, clip / np.maximum(norm, 1e-12))[:, None]
        noisy = inputs.T @ apart + sigma * random.normal(size=weights.shape)
        moved = MOMENTUM * moved + (noisy / len(inputs)).astype(np.float32)
        weights = weights - rate * moved
        if step >= steps // 2:
            mean += weights / (steps - steps // 2)
    return _fitted(problem, rows, mean, began, mean.size, steps)


def _least_squares(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
    rows, labels = problem.rows(str(setting["kind"])), problem.split.private.labels
    random, began = np.random.default_rng(seed), time.process_time()
    shrink = np.float32(1 / np.hypot(LONGEST, 1))  # no row is longer than 1
    inputs, public = (
        shrink * _with_one(each).astype(np.float64) for each in (rows.private, rows.public)
    )
    targets = np.eye(problem.classes)[labels] - 1 / problem.classes
    # A record adds x x' and x y', of length 1 and below 1: with a weight on the first, both at once.
    weight = float(setting["gram"])
    sigma = np.hypot(weight, 1) / mu(needed(epsilon))
    width = inputs.shape[1]
    told = inputs.T @ targets + sigma * random.normal(size=(width, problem.classes))
    if weight:
        drawn = np.triu(random.normal(size=(width, width)) * sigma / weight)
        # Entries beside the diagonal are released once, and count twice in the norm.
        gram = inputs.T @ inputs + (drawn + np.triu(drawn, 1).T) / np.where(
            np.eye(width), 1, np.sqrt(2)
        )
        moments, axes = np.linalg.eigh(gram)
        gram = (axes * np.maximum(moments, 0)) @ axes.T
    else:
        gram = public.T @ public * (len(inputs) / len(public))
    ridge = float(setting["ridge"]) * sigma * np.sqrt(width)
    weights = np.linalg.solve(gram + ridge * np.eye(width), told)
    numbers = weights.size + (width * (width + 1) // 2 if weight else 0)
    return _fitted(problem, rows, shrink * weights, began, numbers, 1)


def _objective(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
    from scipy.optimize import minimize

    rows, labels = problem.rows(str(setting["kind"])), problem.split.private.labels
    random, began = np.random.default_rng(seed), time.process_time()
    shrink = np.float32(1 / np.hypot(LONGEST, 1))
    inputs = shrink * _with_one(rows.private).astype(np.float64)
    signed = inputs * (2.0 * labels[:, None] - 1.0)
    count, width = inputs.shape
    budget, ridge = objective_terms(needed(epsilon), float(setting["ridge"]) / count, count)
    noise = random.normal(size=width)
    # A vector whose density falls with its length, as exp(-budget * length).
    noise = noise * random.gamma(width, 1 / budget) / float(np.linalg.norm(noise))

    def loss(weights: Floats) -> tuple[float, Floats]:
        margins = signed @ weights
        slope = -1 / (1 + np.exp(np.minimum(margins, 500)))
        value = np.logaddexp(0, -margins).mean() + ridge / 2 * weights @ weights
        gradient = signed.T @ slope / count + ridge * weights
        return float(value + noise @ weights / count), gradient + noise / count

    found = minimize(loss, np.zeros(width), jac=True, method="L-BFGS-B", tol=1e-10).x
    return _fitted(problem, rows, shrink * np.stack([-found, found], axis=1), began)


def objective_terms(epsilon: float, ridge: float, count: int) -> tuple[float, float]:
    """Return the rate of the noise in the objective, and the ridge that it may need.

    Logistic loss, rows of length 1 at most, one record added or removed: its gradient is at most 1 long,
    and the Jacobian changes by 1 + 1/(4 count ridge) at most (Chaudhuri et al. 2011, lemma 10, for one
    record in the place of two). That cost is subtracted from epsilon; where less than half is left, the
    ridge is larger.
    """
    needed_ridge = 1 / (4 * count * math.expm1(epsilon / 2))
    ridge = max(ridge, needed_ridge)
    return epsilon - math.log1p(1 / (4 * count * ridge)), ridge


METHODS: Final = (
    Method(
        name="dp-gradients", fit=_gradients, widens={"rate": 4, "clip": 5, "steps": 4},
        settings=lambda problem: product(
            kind=problem.kinds, steps=(40,), rate=(0.06, 0.25, 1.0), clip=(0.1, 0.5)
        ),
    ),
    Method(
        name="dp-least-squares", fit=_least_squares, widens={"gram": 3, "ridge": 3},
        settings=lambda problem: product(
            kind=problem.kinds, gram=(0.0, 0.3, 1.0), ridge=(0.1, 1.0, 10.0)
        ),
    ),
    Method(
        name="dp-objective", fit=_objective, widens={"ridge": 3},
        settings=lambda problem: product(kind=problem.kinds, ridge=(0.1, 1.0, 10.0, 100.0)),
        fits=lambda problem: problem.classes == 2, delta=lambda _: 0.0,
    ),
)  # fmt: skip
