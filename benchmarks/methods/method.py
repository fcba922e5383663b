"""What a method is: its settings, one training with its cost, and the noise of an epsilon.

The noise of every method of a comparison is that of one record, or patient, added or removed. That is the
adjacency of Opacus, and the one that is best for the others. This project covers an altered record too;
without that it costs less, and the campaign is started with the larger epsilon of :func:`altered_epsilon`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pate.accounting.gdp import epsilon_from_delta, mu_from_epsilon
from pate.codes import code_of
from pate.errors import AccountingError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.problem import Problem
    from benchmarks.record import Cost, Run

#: One setting of a method by name; plain values, for the results.
Setting: TypeAlias = Mapping[str, Any]
#: The failure probability of every guarantee of a comparison that has one.
DELTA: Final = 1e-5
#: Number of the first trial that chooses a setting; no dealing that is reported has such a number.
FIRST_TRIAL: Final = 1_001


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model: (n, classes) scores of the validation and of the test records, and what it cost.

    A larger score is of a likelier class. Of several models, one per party, scores are (models, n, classes).
    A campaign also has its ``run`` without figures, and its guarantee.
    """

    validation: NDArray[np.floating]
    test: NDArray[np.floating]
    cost: Cost
    run: Run | None = None
    guarantee: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to a model.

    Attributes:
        name: in rows.toml.
        settings: from which the search for the best one begins.
        fit: trains with a setting, epsilon (None: no privacy, or that of the setting), and a number that
            varies dealing and noise.
        private: whether there is a guarantee.
        rehearses: whether settings are chosen by trials on the public part. Otherwise candidates learn from
            the private records, and validation records judge them; that choice costs privacy which is not
            counted, in the method's favour.
        once: whether the training does not depend on the dealing, so that the one that was chosen counts.
        trials: of each setting, and more of the best three.
        delta: of the guarantee, as the setting has it.
        fits: whether it is for a problem.
        widens: numbers of a setting which the search multiplies and divides, and by what.
    """

    name: str
    settings: Callable[[Problem], list[Setting]]
    fit: Callable[[Problem, Setting, float | None, int], Fitted]
    private: bool = True
    rehearses: bool = False
    once: bool = False
    trials: tuple[int, int] = (1, 2)
    delta: Callable[[Setting], float] = lambda _: DELTA
    fits: Callable[[Problem], bool] = lambda _: True
    widens: Mapping[str, float] = field(default_factory=dict)


def product(**values: tuple[float | int | str, ...]) -> list[Setting]:
    """Return all combinations.

    >>> product(a=(1, 2), b=("x",))
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    made: list[dict[str, float | int | str]] = [{}]
    for name, each in values.items():
        made = [{**before, name: value} for before in made for value in each]
    return list(made)


def needed(epsilon: float | None) -> float:
    """Return the epsilon of a private method, which needs one."""
    if epsilon is None:
        raise AccountingError("a private method needs an epsilon")
    return epsilon


def mu(epsilon: float, delta: float = DELTA) -> float:
    """Return the largest sensitivity over sigma of a Gaussian release, exactly."""
    return mu_from_epsilon(epsilon, delta)


def gaussian_multiplier(epsilon: float, releases: int) -> float:
    """Return sigma over sensitivity of so many Gaussian releases of all records.

    >>> round(gaussian_multiplier(1.0, 100), 1)
    37.3
    """
    return math.sqrt(releases) / mu(epsilon)


def sampled_multiplier(epsilon: float, share: float, steps: int, kept: Path | None = None) -> float:
    """Return Opacus' noise multiplier of Poisson samples at :data:`DELTA`, by its tightest accountant.

    ``kept`` is a JSON file of multipliers found before, which takes seconds each. A share of 1 needs no such
    accountant.
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
