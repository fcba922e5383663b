"""Which law the noise of neighbour votes has, and the terms that follow from it."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from aggregator_server.options import CampaignOptions
from pate.accounting.composition import composition_named
from pate.campaign.settings import spec_of
from pate.campaign.spec import CampaignSpec
from pate.campaign.terms import budget, composition_of, matrix_mechanism, recorded_terms
from pate.data.embeddings import Embeddings
from pate.data.values import Images, Inputs, Table
from pate.errors import PateError, UsageError
from pate.mechanisms import DistributedNeighbour, Neighbour
from tests.support.server.campaigns import make_parties

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
