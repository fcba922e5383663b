"""The law and the size of a campaign's noise, and the terms that follow from them."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from aggregator_server.options import CampaignOptions
from pate.accounting.composition import composition_named
from pate.campaign.defaults import default_noise, lead_in_sigmas
from pate.campaign.settings import spec_of
from pate.campaign.spec import CampaignSpec
from pate.campaign.terms import (
    budget,
    composition_of,
    matrix_mechanism,
    noise_of,
    recorded_terms,
    resolve,
)
from pate.data.embeddings import Embeddings
from pate.data.values import Images, Inputs, Table
from pate.errors import PateError, UsageError
from pate.mechanisms import DistributedGNMax, DistributedNeighbour, Neighbour, worst_cost
from pate.noise.shares import total_sigma
from pate.planning.chances import chances, gaussian_law
from tests.support.server.campaigns import make_parties, make_spec

PUBLIC = Table(("x",), (np.arange(300.0),))
PICTURES = Images(np.random.default_rng(1).integers(0, 255, (90, 8, 8, 1)).astype(np.uint8))


def made(say: Any = lambda _: None, **options: Any) -> CampaignSpec:
    fields: dict[str, Any] = {
        "aggregator": "neighbour", "parties": "5", "epsilon": 0.1, "classes": "a,b",
        "representatives": 20,
    }  # fmt: skip
    return spec_of(CampaignOptions(**(fields | options)), PUBLIC, say=say)


def test_by_default_noise_is_geometric_and_delta_0() -> None:
    said: list[str] = []
    spec = made(said.append)
    assert spec.delta == 0.0
    assert any("geometric, standard deviation 36.51, at delta 0" in line for line in said)
    assert any("(Gaussian: 56.14, at delta 1e-05)" in line for line in said)
    mechanism = matrix_mechanism(spec, 1)
    assert isinstance(mechanism, DistributedNeighbour)
    assert (mechanism.scale, mechanism.share, mechanism.honest) == (Fraction(20), None, 3)
    composition = composition_of(spec, [mechanism])
    cap = budget(spec, [mechanism], composition)
    assert (composition.name, cap) == ("pure", Fraction(1, 10))
    assert composition.epsilon(cap, spec.delta) == 0.1
    assert CampaignSpec.from_dict(spec.to_dict()) == spec
    made().require_same(spec)  # a start with the same options continues it


ROWS = Embeddings(
    np.random.default_rng(0).integers(-300, 300, (90, 24)).astype(np.int16), "texts", "a" * 64
)


@pytest.mark.parametrize(
    ("public", "options", "code", "said"),
    [
        (ROWS, {}, "dense-64 residual", "since the classes are named"),
        (ROWS, {"classes": "a,b,c"}, "dense-64 residual", "since the classes are named"),
        (ROWS, {"classes": None}, "nearest", "name the classes (--classes a,b)"),
        (ROWS, {"series": "s", "unit": "patient"}, "nearest", ""),
        (ROWS, {"delta": 0.0}, "nearest", ""),
        (ROWS, {"noise_law": "geometric"}, "nearest", ""),
        (ROWS, {"representatives": 20}, "nearest", ""),
        (ROWS, {"answer": "ordered"}, "nearest ordered", ""),
        (ROWS, {"code": "nearest"}, "nearest", ""),
        (PUBLIC, {}, "dense-128 residual", "since the classes are named"),
        (PUBLIC, {"delta": 0.0}, "nearest", ""),
        (PICTURES, {}, "nearest", ""),
    ],
    ids=itertools.count(),
)
def test_the_code_follows_from_what_the_public_set_is(
    public: Inputs, options: dict[str, Any], code: str, said: str
) -> None:
    fields: dict[str, Any] = {"aggregator": "neighbour", "epsilon": 1.0, "classes": "a,b"}
    lines: list[str] = []
    spec = spec_of(CampaignOptions(**(fields | options)), public, say=lines.append)
    assert spec.code == code
    assert any(said in line for line in lines)
    # Why it is so is said where nobody stated it, and only there.
    assert any("--code" in line for line in lines) == bool(said)


def test_the_same_where_the_server_draws_it() -> None:
    mechanism = matrix_mechanism(made(parties="2"), 1)
    assert isinstance(mechanism, Neighbour)
    assert (mechanism.scale, mechanism.sigma) == (Fraction(20), None)


@pytest.mark.parametrize(
    ("options", "delta"),
    [
        ({"noise_law": "gaussian"}, 1e-5),
        ({"noise_law": "gaussian", "delta": 1e-6}, 1e-6),
        ({"sigma2": "200"}, 1e-5),
        ({"delta": 1e-2}, 1e-2),  # Gaussian noise is the smaller one
        ({"delta": 1e-2, "noise_law": "geometric"}, 0.0),
        ({"delta": 0.0}, 0.0),
        ({"scale": "25"}, 0.0),
        ({"scale": "25", "noise_law": "geometric", "delta": 0.0}, 0.0),
    ],
)
def test_the_law_can_be_stated(options: dict[str, Any], delta: float) -> None:
    spec = made(**options)
    mechanism = matrix_mechanism(spec, 1)
    assert spec.delta == delta
    assert (mechanism.scale is None) == (delta > 0)
    assert composition_of(spec, [mechanism]).name == ("gdp" if delta else "pure")
    if "scale" in options:
        assert mechanism.scale == 25


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sigma2": "200", "scale": "20"}, "two laws"),
        ({"sigma2": "200", "noise_law": "geometric"}, "two laws"),
        ({"scale": "20", "noise_law": "gaussian"}, "two laws"),
        ({"delta": 0.0, "noise_law": "gaussian"}, "two laws"),
        ({"delta": 0.0, "sigma2": "200"}, "two laws"),
        ({"delta": -1e-9}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"aggregator": "gnmax", "noise_law": "geometric", "representatives": None}, "--noise-law"),
        (
            {"aggregator": "gnmax", "delta": 0.0, "representatives": None},
            "delta 0 is for neighbour",
        ),
        (
            {"aggregator": "lnmax", "delta": 0.0, "representatives": None},
            "delta 0 is for neighbour",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        made(**options)


def test_a_specification_with_noise_of_the_other_law_is_refused() -> None:
    text = made().to_dict()
    with pytest.raises(UsageError, match="sigma2 has no meaning for geometric noise"):
        CampaignSpec.from_dict(text | {"sigma2": "200"})
    with pytest.raises(UsageError, match="scale has no meaning for Gaussian noise"):
        CampaignSpec.from_dict(text | {"scale": "20", "delta": 1e-5})


def test_recorded_terms_have_the_law_of_the_specification() -> None:
    spec, other = made(parties="4"), made(parties="4", noise_law="gaussian")
    parties = make_parties(4095)
    of_law = {each.delta: (matrix_mechanism(each, 1),) for each in (spec, other)}
    good = recorded_terms(spec, parties, of_law[0.0], "pure", Fraction(1, 10))
    assert good.name == "pure"
    cap = composition_named("gdp").budget(0.1, 1e-5)
    for mechanisms, name, most in (
        (of_law[0.0], "pure", Fraction(1, 9)),
        (of_law[0.0], "zcdp", Fraction(1, 200)),
        (of_law[0.0], "gdp", Fraction(1, 10)),
        (of_law[1e-5], "gdp", cap),
        (of_law[1e-5], "pure", Fraction(1, 10)),
    ):
        with pytest.raises(PateError):
            recorded_terms(spec, parties, mechanisms, name, most)


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_a_class_that_leads_by_so_many_sigmas_wins_eight_times_in_ten(classes: int) -> None:
    """By the discrete law that votes get, which is computed elsewhere and otherwise."""
    sigma = 200
    votes = np.zeros((1, classes), np.int64)
    votes[0, 0] = round(lead_in_sigmas(classes) * sigma)
    law = gaussian_law(Fraction(sigma))
    _, right = chances(votes, np.zeros(1, np.int64), law, [(None, None)])
    assert right[0, 0] == pytest.approx(0.8, abs=2e-3)


def paid(aggregator: str, teachers: int, queries: int, epsilon: float) -> tuple[int, int]:
    """Queries that the budget pays for at worst, and sigma2."""
    rounds = 2 if aggregator == "interactive-gnmax" else 1
    spec = make_spec(
        aggregator=aggregator, queries=queries, epsilon=epsilon, parties=3, rounds=rounds
    )
    noise = noise_of(spec, teachers, 1, 2)
    assert noise is not None
    mechanisms = resolve(spec, teachers, 1, 2)
    composition = composition_of(spec, mechanisms)
    cap = composition.budget(epsilon, 1e-5)
    return int(cap / worst_cost(composition, mechanisms, 1)), noise.sigma2


@pytest.mark.parametrize("aggregator", ["gnmax", "confident-gnmax"])
def test_the_least_noise_that_pays_for_enough_labels_between_two_bounds(aggregator: str) -> None:
    """0.16 of 30 teachers is 5, 0.588 is 17; 40 labels are 20 of each of two classes."""
    assert paid(aggregator, 30, 400, 10.0)[1] == 5
    number, most = paid(aggregator, 30, 400, 1.5)
    assert most == 17
    assert number < 40
    number, between = paid(aggregator, 30, 400, 4.0)
    assert number >= 40
    assert 5 < between < 17
    sigmas = {"sigma1": Fraction(3 * between)} if aggregator == "confident-gnmax" else {}
    less = make_spec(aggregator=aggregator, sigma2=Fraction(between - 1), **sigmas)
    mechanisms = resolve(less, 30, 1, 2)
    composition = composition_of(less, mechanisms)
    assert composition.budget(4.0, 1e-5) / worst_cost(composition, mechanisms, 1) < 40
    # No more labels are wanted than there are queries.
    assert paid(aggregator, 30, 25, 4.0)[1] < between
    assert paid(aggregator, 30, 10, 4.0)[0] >= 10


def test_the_rule_answers_several_times_the_labels_of_the_fixed_shares() -> None:
    """30 teachers and 400 queries of two classes; 40 teachers, 3,000 of ten: as hospitals have them."""
    for teachers, classes, queries, before in ((30, 2, 400, 10), (40, 10, 3000, 20)):
        spec = make_spec(aggregator="gnmax", queries=queries, epsilon=4.0)
        shares = make_spec(
            aggregator="gnmax",
            queries=queries,
            epsilon=4.0,
            sigma2=Fraction(-(-teachers * 4 // 25)),
        )
        numbers = []
        for each in (shares, spec):
            mechanisms = resolve(each, teachers, 1, classes)
            composition = composition_of(each, mechanisms)
            cap = composition.budget(4.0, 1e-5)
            numbers.append(int(cap / worst_cost(composition, mechanisms, 1)))
        assert numbers[0] == before
        assert numbers[1] > 1.6 * before


@pytest.mark.parametrize("epsilon", [1.5, 2.0])
def test_interactive_campaigns_want_half_the_labels_since_the_student_adds_as_many(
    epsilon: float,
) -> None:
    number, sigma2 = paid("interactive-gnmax", 60, 500, epsilon)
    assert 20 <= number < 40
    assert 10 < sigma2 < paid("confident-gnmax", 60, 500, epsilon)[1]


def test_what_is_stated_stays_and_so_does_what_goes_with_it() -> None:
    for stated in ({"sigma2": Fraction(16)}, {"sigma1": Fraction(50)}):
        spec = make_spec(queries=10**6, **stated)
        assert noise_of(spec, 100, 1, 10) is None
        (made,) = resolve(spec, 100, 1, 10)
        assert (made.to_dict()["sigma1"], made.to_dict()["sigma2"]) == ("50", "16")
    spec = make_spec(queries=10**6, epsilon=4.0, threshold=Fraction(60))  # a threshold is no noise
    (made,) = resolve(spec, 100, 1, 10)
    assert (made.to_dict()["threshold"], made.to_dict()["sigma1"], made.to_dict()["sigma2"]) == (
        60, "72", "23",
    )  # fmt: skip


def test_labels_carry_no_more_noise_where_shares_are_added_that_nobody_counts() -> None:
    """Of four parties the shares of two count: labels carry root two times what is counted."""
    shared = {"aggregation": "masked", "noise": "distributed", "min_parties": 3, "colluders": 1}
    spec = make_spec(aggregator="gnmax", epsilon=0.1, **shared)
    central = noise_of(make_spec(aggregator="gnmax", epsilon=0.1), 400, 1, 2)
    noise = noise_of(spec, 400, 1, 2)
    assert noise is not None
    assert central is not None
    (made,) = resolve(spec, 400, 1, 2)
    assert isinstance(made, DistributedGNMax)
    carried = float(total_sigma(made.share, 4))
    assert carried == pytest.approx(central.sigma2, rel=0.01)
    assert noise.sigma2 < central.sigma2


@pytest.mark.parametrize("epsilon", [0.5, 1e4])
def test_the_reason_names_the_number_that_the_mechanism_has(epsilon: float) -> None:
    spec = make_spec(aggregator="lnmax", epsilon=epsilon)
    noise = noise_of(spec, 100, 1, 2)
    (made,) = resolve(spec, 100, 1, 2)
    assert noise is not None
    assert f"scale {made.to_dict()['scale']}" in noise.reason
    assert "sigma2" not in noise.reason
    assert "16 %" not in noise.reason


def test_the_rule_is_quick_and_sure_for_any_roster() -> None:
    for teachers in (1, 2, 3, 7, 2**17):
        for classes in (2, 1000):
            noise = default_noise(teachers, classes, 1000, lambda _: 0)
            assert 1 <= noise.least <= noise.sigma2
            assert noise == default_noise(teachers, classes, 1000, lambda _: 0)
    spec = make_spec(epsilon=1e-3)
    assert noise_of(spec, 3, 1, 2) is not None  # it pays for nothing, and that is for others to say
