from __future__ import annotations

import math
from typing import Any

import pytest

from pate.errors import UsageError
from pate.planning.neighbour import plan_representatives

SETTING: dict[str, Any] = {
    "records": 60_000,
    "classes": 10,
    "purity": 0.95,
    "sigma": 48.0,
    "threshold": 136,
}


def test_fewer_representatives_are_clearer() -> None:
    shares = [
        plan_representatives(number, **SETTING).labelled for number in (50, 100, 200, 400, 800)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.97
    assert shares[-1] < 0.05


def test_labels_of_pure_neighbourhoods_are_right_and_of_noise_alone_are_not() -> None:
    pure = plan_representatives(100, **SETTING)
    assert pure.right > 0.995
    assert pure.labels == pytest.approx(100 * pure.labelled)
    nobody = plan_representatives(100_000, **{**SETTING, "threshold": -(10**6)})
    # One in ten, within six standard deviations of 20,000 draws: false alarm below 1e-8. The one
    # vote or so that each has moves it by less than that.
    assert abs(nobody.right - 0.1) < 6 * math.sqrt(0.09 / 20_000)
    assert nobody.labelled == 1.0


def test_two_classes_have_one_rival() -> None:
    plan = plan_representatives(10, records=10_000, classes=2, purity=0.6, sigma=5.0, threshold=15)
    assert plan.labelled > 0.95
    assert plan.right > 0.99


@pytest.mark.parametrize(
    "odd",
    [{"records": 0}, {"classes": 1}, {"purity": 0.1}, {"purity": 1.1}, {"sigma": 0.0}],
)
def test_what_makes_no_sense_is_refused(odd: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        plan_representatives(10, **{**SETTING, **odd})
    with pytest.raises(UsageError):
        plan_representatives(0, **SETTING)
