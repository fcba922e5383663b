"""The seven cases of the rule against the papers' algorithms, one query after another in whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from pate.errors import UsageError
from pate.mechanisms import (
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedGNMax,
    DistributedInteractiveGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    TeacherRule,
    round_predictions,
)
from pate.mechanisms.contract import Votes
from tests.support.simulated_noise import SimulatedNoise

_SIGMA, _SURE = Fraction(5, 2), Fraction(3, 5)
CASES: tuple[TeacherRule, ...] = (
    LNMax(Fraction(2), 1), GNMax(_SIGMA, 1), ConfidentGNMax(9, Fraction(3), _SIGMA, 1),
    InteractiveGNMax(4, Fraction(3), _SIGMA, _SURE, 1), DistributedGNMax(_SIGMA, 3, 1),
    DistributedConfidentGNMax(9, _SIGMA, 3, 1),
    DistributedInteractiveGNMax(4, _SIGMA, 3, _SURE, 1),
)  # fmt: skip


def plainly(
    mechanism: TeacherRule, rows: Votes, predicted: Votes, noise: SimulatedNoise
) -> list[tuple[int | None, str | None, int]]:
    """Return label, source and number of events of each query."""
    given, inside = mechanism.to_dict(), mechanism.noise_inside
    tests, asked = [0] * len(rows), [True] * len(rows)
    if "sigma1" in given:
        tests = noise.gaussian(Fraction(given["sigma1"]), len(rows)).tolist()
    if "threshold" in given:
        for at, row in enumerate(rows.tolist()):
            less = predicted[at].tolist() if "confidence" in given else [0] * len(row)
            margin = max(count - expected for count, expected in zip(row, less, strict=True))
            asked[at] = margin + tests[at] >= int(given["threshold"])
    number = sum(asked) * rows.shape[1]
    if inside:
        draws = iter([0] * number)
    elif "scale" in given:
        draws = iter(noise.laplace(Fraction(given["scale"]), number).tolist())
    else:
        draws = iter(
            noise.gaussian(Fraction(given.get("sigma", given.get("sigma2", 0))), number).tolist()
        )
    found: list[tuple[int | None, str | None, int]] = []
    for at, row in enumerate(rows.tolist()):
        if asked[at]:
            noisy = [count + next(draws) for count in row]
            found.append((noisy.index(max(noisy)), "teachers", 2 if "sigma1" in given else 1))
            continue
        sure = predicted[at].tolist()
        if "confidence" in given and max(sure) > Fraction(given["confidence"]) * sum(sure):
            found.append((sure.index(max(sure)), "reinforced", 1))
        else:
            found.append((None, None, 1))
    return found


@pytest.mark.parametrize("mechanism", CASES, ids=lambda each: each.name)
def test_a_case_answers_as_its_algorithm(mechanism: TeacherRule) -> None:
    rng = np.random.default_rng(7)
    shares = rng.dirichlet(np.full(4, 0.4), 3000)
    rows = np.array([rng.multinomial(12, share) for share in shares])
    predicted = round_predictions(rng.dirichlet(np.full(4, 0.3), 3000), 12)
    if mechanism.noise_inside:
        rows += SimulatedNoise(2).gaussian(_SIGMA, rows.size).reshape(rows.shape)
    noise, same = SimulatedNoise(3), SimulatedNoise(3)
    outcomes = mechanism.answer_all(rows, noise, predicted)
    assert [(each.label, each.source, len(each.events)) for each in outcomes] == plainly(
        mechanism, rows, predicted, same
    )
    assert all(each.events == mechanism.worst[: len(each.events)] for each in outcomes)
    assert noise.gaussian(Fraction(999), 4).tolist() == same.gaussian(Fraction(999), 4).tolist()
    sources = {each.source for each in outcomes}
    assert len(sources) == (
        3 if mechanism.interactive else 2 if hasattr(mechanism, "threshold") else 1
    )


@dataclass(frozen=True)
class OnlyTested(TeacherRule):
    """A case with noise of its test, and none of its labels."""

    threshold: int
    sigma1: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "only-tested"


def test_a_case_without_noise_of_its_labels_releases_nothing() -> None:
    case = OnlyTested(1, Fraction(1), 1)
    with pytest.raises(UsageError, match="nothing is released"):
        case.answer_all(np.array([[90, 10]]), SimulatedNoise(1))
