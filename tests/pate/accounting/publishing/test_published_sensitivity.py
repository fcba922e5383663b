"""Lists of local sensitivities against figures of the published code and of 50 digits."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pate.errors import AccountingError
from tests.support.accounting.published_sensitivity import (
    discounted_maximum,
    gnmax,
    threshold,
)
from tests.support.needs import others_slow

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats


def close(got: Floats, want: list[float], rel: float) -> None:
    assert got == pytest.approx(np.array(want), rel=rel, abs=1e-15)


def test_gnmax_that_gets_worse_with_distance() -> None:
    far = 5.9998130789399449
    want = [3.1350364610437169e-17, 1.6017828031089718e-8, 0.0059068178585036344, *[far] * 7]
    close(gnmax([10, 0, 0], 10, 0.5, 1.5), want, 1e-12)
    # The order of the classes does not matter.
    close(gnmax([0, 10, 0], 10, 0.5, 1.5), want, 1e-12)


def test_gnmax_that_gets_better_with_distance() -> None:
    want = [0.0] * 298 + [2.77693450548e-7, 2.10853979548e-6] + [2.73113623988e-6] * 1700
    close(gnmax([1000, 500, 300, 200, 0], 2000, 250.0, 10.0), want, 1e-8)


def test_threshold() -> None:
    low = [
        1.60212079e-01, 2.07021132e-01, 2.07021132e-01, 1.93127860e-01, 1.68302106e-01,
        1.42180452e-01, 1.16054003e-01, 9.01543266e-02, 6.45775697e-02, 3.94153241e-02,
        1.47826870e-02, 1.48454129e-04, *[0.0] * 18,
    ]  # fmt: skip
    assert threshold([20, 10, 0], 30, 2, 2.0, 10.0) == pytest.approx(np.array(low), rel=1e-7)
    beyond = [
        1.35750725752e-19, 1.88990500499e-17, 2.05403154065e-15, 1.74298153642e-13,
        1.15489723995e-11, 5.97584949325e-10, 2.41486826748e-08, 7.62150641922e-07,
        1.87846248741e-05, 0.000360973025976, 0.000360973025976, 2.76377015215e-50,
        1.00904975276e-53, 2.87254164748e-57, 6.37583360761e-61, 1.10331620211e-64,
        1.48844393335e-68, 1.56535552444e-72, 1.28328011060e-76, 8.20047697109e-81, *[0.0] * 10,
    ]  # fmt: skip
    assert threshold([20, 10, 0], 30, 50, 2.0, 10.0) == pytest.approx(
        np.array(beyond), rel=1e-10, abs=0
    )
    # Margins need not be whole; the reference rounds halves to the even number.
    got = threshold([19.5, -5.1, 0], 30, 10.1, 2.0, 10.0)
    assert got[:3] == pytest.approx([0.0620410301, 0.0875807131, 0.113451958], rel=1e-8)


def test_smooth_sensitivity() -> None:
    local = gnmax([10, 0, 0], 10, 0.5, 1.5)
    assert discounted_maximum(0.03, local) == pytest.approx(5.4834162786414009, rel=1e-12)
    # A discount that leaves only distance 0.
    assert discounted_maximum(1e9, [0.25, 7.0]) == 0.25


@pytest.mark.parametrize(
    ("votes", "order", "sigma"),
    others_slow(
        product(
            ((5000, 0), (2500, 2500), (3100, 900, 400, 300, 300), (5000, *[0] * 99)),
            (1.01, 14.0, 512.0),
            (1.0, 40.0, 5000.0),
        ),
        [
            ((5000, 0), 1.01, 1.0), ((5000, 0), 512.0, 5000.0), ((2500, 2500), 512.0, 1.0),
            ((3100, 900, 400, 300, 300), 14.0, 40.0), ((5000, *[0] * 99), 512.0, 40.0),
        ].__contains__,
    ),
)  # fmt: skip
def test_extremes_stay_numbers(votes: tuple[int, ...], order: float, sigma: float) -> None:
    local = gnmax(votes, 300, sigma, order)
    assert (local >= 0).all()
    assert (local <= order / sigma**2 * (1 + 1e-12)).all()
    assert np.isfinite(threshold(votes, 5000, 300, sigma, order)).all()


def test_what_cannot_be_is_refused() -> None:
    for call in (
        lambda: gnmax([10, 0], 0, 1.0, 2.0),
        lambda: gnmax([10, 0], 10, math.nan, 2.0),
        lambda: gnmax([10, 0], 10, 1.0, 1.0),
        lambda: gnmax([10], 10, 1.0, 2.0),
        lambda: gnmax([10, math.nan], 10, 1.0, 2.0),
        lambda: threshold([11, 0], 10, 3, 1.0, 2.0),
        lambda: threshold([math.nan], 10, 3, 1.0, 2.0),
        lambda: threshold([5, 5], 10, math.inf, 1.0, 2.0),
        lambda: threshold([], 10, 3, 1.0, 2.0),
        lambda: discounted_maximum(0.0, [1.0]),
        lambda: discounted_maximum(0.1, []),
        lambda: discounted_maximum(0.1, [-1.0]),
        lambda: discounted_maximum(0.1, [math.nan]),
    ):
        with pytest.raises(AccountingError):
            call()
