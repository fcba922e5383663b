"""Plans of records that vote: shares of labels against sampled votes and noise, and errors of sums."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pate.campaign.spec import CampaignSpec
from pate.campaign.terms import matrix_mechanism
from pate.errors import UsageError
from pate.planning.records import plan_records
from tests.support.server.campaigns import make_spec
from tests.support.simulated_noise import SimulatedNoise


def campaign(representatives: int, code: str = "nearest", **changes: Any) -> CampaignSpec:
    asked: dict[str, Any] = {
        "aggregator": "neighbour", "representatives": list(range(representatives)),
        "most_votes": 4095, "votes_per_patient": 1, "epsilon": 1e4, "queries": 2000,
    }  # fmt: skip
    return make_spec(**asked | ({} if code == "nearest" else {"code": code}) | changes)


NOISE: dict[str, Any] = {"sigma2": Fraction(48), "threshold": Fraction(136)}


def test_fewer_representatives_are_clearer() -> None:
    shares = [
        plan_records(campaign(each, **NOISE), records=60_000, columns=10, purity=0.95).labelled or 0
        for each in (50, 100, 200, 400, 800)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.97
    assert shares[-1] < 0.05


@pytest.mark.parametrize(
    ("terms", "columns", "purity", "at_each"),
    [
        (NOISE, 10, 0.95, 300),
        ({"sigma2": Fraction(3), "threshold": Fraction(5)}, 2, 0.6, 40),
        ({"sigma2": Fraction(5), "threshold": Fraction(9)}, 20, 0.6, 30),
        ({"scale": Fraction(6), "threshold": Fraction(20), "delta": 0.0}, 3, 0.7, 60),
    ],
)
def test_labels_are_as_frequent_and_as_right_as_sampled_ones(
    terms: dict[str, Any], columns: int, purity: float, at_each: int
) -> None:
    """Of 20,000 sampled places and the noise that ships, and of 1,000 whose votes are drawn for a plan.

    Both shares deviate by 0.5 / sqrt(1,000) = 0.016 at most: six deviations of the two together are 0.097,
    passed with 1e-8. Sizes are quantiles, so it is far less.
    """
    spec = campaign(100, **terms)
    plan = plan_records(spec, records=100 * at_each, columns=columns, purity=purity)
    draw, many = np.random.default_rng(7), 20_000
    shares = np.full(columns, (1 - purity) / 2 / max(1, columns - 2))
    shares[:2] = purity, (1 - purity) * (0.5 if columns > 2 else 1.0)
    sizes = draw.poisson(draw.gamma(4.0, at_each / 4.0, many))
    votes = draw.multinomial(sizes, shares[: max(2, columns)])
    adding = spec.wanted_parties if spec.sums.distributed else 1
    mechanism, noise = matrix_mechanism(spec, 1), SimulatedNoise(3)
    seen = votes + sum(
        mechanism.shares.draw(noise, votes.size).reshape(votes.shape) for _ in range(adding)
    )
    second, first = np.partition(seen, -2, axis=1)[:, -2:].T
    clear = first - second >= mechanism.threshold
    # A tie goes to any of the classes alike.
    top = (seen + draw.uniform(0, 0.5, seen.shape)).argmax(axis=1) == 0
    assert plan.noise == pytest.approx(mechanism.shares.spread(adding))
    assert plan.labelled == pytest.approx(clear.mean(), abs=0.02)
    assert plan.right == pytest.approx((seen.argmax(axis=1) == 0)[clear].mean(), abs=0.02)
    assert plan.top_right == pytest.approx(top.mean(), abs=0.02)
    assert plan.labels == pytest.approx(100 * (plan.labelled or 0))
    assert plan.counts == 100 * columns


def test_the_error_of_sums_is_that_of_simulated_ones() -> None:
    """Shares of a label of many votes with the noise as it is planned; within 5 of its deviations."""
    rng = np.random.default_rng(5)
    spec = campaign(50, "nearest labels-2", sigma2=Fraction(37))
    plan = plan_records(spec, records=40_000, columns=5)
    assert (plan.votes, plan.labelled) == (800, None)
    shares = (0.3 * plan.votes + rng.normal(0.0, plan.noise, 4000)) / plan.votes
    assert shares.std() == pytest.approx(plan.error, rel=5 / (2 * 4000) ** 0.5)
    dense = plan_records(campaign(8, "dense-8", sigma2=Fraction(50)), records=40_000, columns=4)
    assert (dense.votes, dense.counts) == (10_000, 32)
    assert dense.error == pytest.approx(dense.noise / 10_000)


@pytest.mark.parametrize("odd", [{"columns": 1}, {"purity": 0.1}, {"purity": 1.1}])
def test_what_makes_no_sense_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        plan_records(campaign(10, **NOISE), **{"records": 100, "columns": 10, **odd})


@pytest.mark.parametrize(
    ("terms", "labelled"),
    [
        ({"scale": Fraction(1, 64), "delta": 0.0, "threshold": Fraction(1)}, 0.99),
        ({"sigma2": Fraction(1), "threshold": Fraction(1)}, 0.99),
        ({"scale": Fraction(3000), "delta": 0.0}, 0.0),
        ({"sigma2": Fraction(2**18)}, 0.0),
    ],
)
def test_a_campaign_with_hardly_any_noise_or_with_nothing_but_noise_has_a_plan(
    terms: dict[str, Any], labelled: float
) -> None:
    plan = plan_records(campaign(50, **terms), records=5_000, columns=5)
    assert plan.labelled == pytest.approx(labelled, abs=0.02)
