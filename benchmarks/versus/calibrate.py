"""The noise of every method at one epsilon: one record, or patient, added or removed.

That is the adjacency of Opacus, and the one that is best for the others. Ours covers an altered record
too; without that it costs less, and the campaign is started with the larger epsilon of
:func:`altered_epsilon`.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from benchmarks.versus.method import DELTA
from pate.accounting.gdp import epsilon_from_delta, mu_squared_from_epsilon
from pate.codes import code_of

if TYPE_CHECKING:
    from pathlib import Path


def mu(epsilon: float, delta: float = DELTA) -> float:
    """Return the largest sensitivity over sigma of a Gaussian release, exactly."""
    return math.sqrt(mu_squared_from_epsilon(epsilon, delta))


def gaussian_multiplier(epsilon: float, releases: int) -> float:
    """Return sigma over sensitivity of so many Gaussian releases of all records.

    >>> round(gaussian_multiplier(1.0, 100), 1)
    37.3
    """
    return math.sqrt(releases) / mu(epsilon)


def sampled_multiplier(epsilon: float, share: float, steps: int, kept: Path | None = None) -> float:
    """Return Opacus' noise multiplier of Poisson samples, by its tightest accountant.

    Args:
        epsilon: at :data:`~benchmarks.versus.method.DELTA`.
        share: of the records in a sample; 1: all of them, which needs no such accountant.
        steps: number of samples.
        kept: a JSON file of multipliers found before, which takes seconds each.
    """
    if share == 1:
        return gaussian_multiplier(epsilon, steps)
    known: dict[str, float] = json.loads(kept.read_text()) if kept and kept.is_file() else {}
    # Opacus adds the error to its bound: of the default, 0.01, a tenth would be lost at epsilon 0.1.
    error = epsilon / 100
    key = f"{epsilon:g} {share:g} {steps} {error:g}"
    if key not in known:
        from opacus.accountants.utils import get_noise_multiplier

        known[key] = get_noise_multiplier(
            target_epsilon=epsilon, target_delta=DELTA, sample_rate=share, steps=steps,
            accountant="prv", epsilon_tolerance=error, eps_error=error,
        )  # fmt: skip
        if kept:
            kept.write_text(json.dumps(known, indent=1))
    return known[key]


def altered_epsilon(epsilon: float, code: str, delta: float) -> float:
    """Return the epsilon of a campaign that costs ``epsilon`` where a record is added or removed.

    With geometric noise, delta 0, an altered record moves the counts twice as far. With Gaussian noise
    the distance grows from the length of one array to the root of the code's ``change.squared``.

    >>> altered_epsilon(0.5, "nearest", 0.0)
    1.0
    """
    if delta == 0.0:
        return 2 * epsilon
    one = code_of(code)
    ratio = math.sqrt(one.change(1).squared) / one.grid
    return epsilon_from_delta(ratio * mu(epsilon, delta) * (1 - 1e-12), delta)
