from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest

from pate.accounting.composition import Gdp, Zcdp, total_cost
from pate.campaign.offer import Offer
from pate.campaign.spec import CampaignSpec, new_campaign_id
from pate.campaign.terms import budget, composition_of, resolve
from pate.errors import BudgetError, ProtocolError, StateError, UsageError
from pate.exact import read
from pate.storage.hash_chain import canonical
from tests.support.server.campaigns import CLASSES, make_spec


@pytest.mark.parametrize(
    "spec",
    [
        make_spec(),
        make_spec(parties=("a", "b", "c"), classes=("x", "y"), epsilon=0.1, delta=1 / 3),
        make_spec(aggregator="lnmax", scale=Fraction(1, 3), max_queries=7, unit="party"),
        make_spec(
            aggregator="interactive-gnmax",
            rounds=3,
            first_round_share=Fraction(2, 7),
            threshold=Fraction(200),
            interactive_threshold=Fraction(50),
            sigma1=Fraction(150),
            sigma2=Fraction("40.5"),
            confidence=Fraction(19, 20),
        ),
    ],
)
def test_json_gives_the_same_value_back(spec: CampaignSpec) -> None:
    assert CampaignSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", " "),
        ("name", "two\nlines"),
        ("id", "0F" * 16),
        ("aggregator", "majority"),
        ("parties", 0),
        ("parties", True),
        ("parties", ("a", "a")),
        ("parties", ("a", "")),
        ("min_parties", 5),
        ("min_parties", 0),
        ("public_set", "ab"),
        ("queries", 0),
        ("queries", 2.0),
        ("classes", ("only",)),
        ("classes", ("a", "a")),
        ("epsilon", 0.0),
        ("epsilon", float("nan")),
        ("epsilon", float("inf")),
        ("epsilon", 2),
        ("delta", 1.0),
        ("unit", "hospital"),
        ("rounds", 0),
        ("first_round_share", Fraction(3, 2)),
        ("first_round_share", 0.5),
        ("max_queries", 0),
        ("sigma1", Fraction(0)),
        ("sigma2", 40.0),
        ("scale", Fraction(20)),  # of LNMax only
        ("confidence", Fraction(1, 2)),  # of Interactive-GNMax only
        ("aggregation", "secret"),
        ("noise", "distributed"),
        ("publish", "all"),
        ("gate_order", Fraction(10)),  # of gated campaigns only
    ],
)
def test_a_senseless_value_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=field):
        make_spec(**{field: value})


def test_interactive_needs_a_second_round() -> None:
    with pytest.raises(UsageError, match="rounds"):
        make_spec(aggregator="interactive-gnmax", rounds=1)


@pytest.mark.parametrize("change", ["missing", "unknown", "2/4", 0.5])
def test_a_changed_text_form_is_refused(change: str | float) -> None:
    body = make_spec(sigma2=Fraction(1, 2)).to_dict()
    if change == "missing":
        del body["unit"]
    elif change == "unknown":
        body["seed"] = 1
    else:
        body["sigma2"] = change
    with pytest.raises(UsageError, match=r"sigma2|unit|seed"):
        CampaignSpec.from_dict(body)


def test_a_resume_with_other_parameters_names_the_field() -> None:
    spec = make_spec(sigma2=Fraction(40))
    spec.require_same(make_spec(sigma2=Fraction(40), id=new_campaign_id()))
    with pytest.raises(StateError, match=r"sigma2 = 40, but 1/3 was given"):
        spec.require_same(make_spec(sigma2=Fraction(1, 3)))
    eight, nine = (
        make_spec(
            aggregator="neighbour", code=f"dense-{number}", representatives=tuple(range(number)),
            most_votes=9, votes_per_patient=1, classes=CLASSES, epsilon=float(number),
        )
        for number in (8, 9)
    )  # fmt: skip
    with pytest.raises(StateError, match=r"has epsilon = 8.0, but 9.0 was given"):
        eight.require_same(nine)  # the code follows from epsilon


def test_defaults_follow_the_number_of_teachers() -> None:
    (confident,) = resolve(make_spec(), 250, 1)
    assert confident.to_dict() == {
        "mechanism": "confident-gnmax", "threshold": 188, "sigma1": "125", "sigma2": "40",
        "votes_per_unit": 1,
    }  # fmt: skip
    (lnmax,) = resolve(make_spec(aggregator="lnmax", epsilon=1e3), 250, 3)
    assert lnmax.to_dict() == {"mechanism": "lnmax", "scale": "20", "votes_per_unit": 3}
    (tiny,) = resolve(make_spec(aggregator="gnmax"), 1, 1)
    assert tiny.to_dict()["sigma"] == "1"
    first, later = resolve(make_spec(aggregator="interactive-gnmax", rounds=2), 250, 1)
    assert first == confident
    assert later.to_dict() | {"mechanism": "", "confidence": ""} == (
        confident.to_dict() | {"mechanism": "", "threshold": 125, "confidence": ""}
    )


def test_given_parameters_win_and_a_threshold_is_rounded_up() -> None:
    spec = make_spec(threshold=Fraction("199.5"), sigma1=Fraction(150), sigma2=Fraction(40))
    (mechanism,) = resolve(spec, 1000, 1)
    assert (mechanism.to_dict()["threshold"], mechanism.to_dict()["sigma1"]) == (200, "150")


def test_the_budget_is_what_epsilon_is_worth_or_what_the_plan_can_cost() -> None:
    spec = make_spec(queries=10_000, epsilon=4.0)
    mechanisms = resolve(spec, 100, 1)
    few = make_spec(queries=10_000, epsilon=4.0, max_queries=5)
    for way in (Gdp(), Zcdp()):
        cap = budget(spec, mechanisms, way)
        assert way.epsilon(cap, 1e-5) <= 4.0 < way.epsilon(cap * Fraction("1.0001"), 1e-5)
        worst = total_cost(way, mechanisms[0].worst)
        assert budget(few, mechanisms, way) == 5 * worst
        assert budget(make_spec(queries=3, epsilon=4.0), mechanisms, way) == 3 * worst


def test_costs_add_up_in_the_tightest_way_that_the_noise_allows() -> None:
    def name(**fields: object) -> str:
        spec = make_spec(**fields)
        return composition_of(spec, resolve(spec, 100, 1)).name

    assert name() == name(aggregator="interactive-gnmax", rounds=2) == "gdp"
    assert name(aggregator="lnmax") == "zcdp"
    assert name(sigma2=Fraction(3, 2)) == "zcdp"  # too narrow for the theorem


def test_a_budget_for_less_than_one_answer_is_refused() -> None:
    spec = make_spec(epsilon=0.1)
    with pytest.raises(BudgetError, match="more teachers"):
        budget(spec, resolve(spec, 10, 1), Gdp())


@pytest.mark.parametrize("text", ["1e999999999", "1e5", "0x10", " 1", "2/4", "1" + "0" * 400])
@pytest.mark.parametrize("field", ["sigma2", "gate_order"])
def test_a_hostile_fraction_is_refused_at_once(field: str, text: str) -> None:
    body = make_spec(aggregator="gnmax").to_dict()
    with pytest.raises(UsageError, match=field):
        CampaignSpec.from_dict(body | {field: text})


@pytest.mark.parametrize("field", ["gate_order", "gate_target", "gate_test", "gate_failure"])
def test_a_gate_of_absurd_size_is_refused(field: str) -> None:
    gate = {"gate_order": "10", "gate_target": "1", "gate_test": "1/5", "gate_failure": "1/100000"}
    body = make_spec(aggregator="gnmax").to_dict() | {"publish": "gated"} | gate
    assert CampaignSpec.from_dict(body).gate is not None
    for text in ("1" + "0" * 30, "1/" + "1" + "0" * 99):
        with pytest.raises(UsageError, match=field.removeprefix("gate_")):
            CampaignSpec.from_dict(body | {field: text})


RECORDED: Final = json.loads(Path(__file__).with_name("offer_texts.json").read_text("ascii"))


@pytest.mark.parametrize("kind", RECORDED)
def test_each_kind_of_offer_is_written_as_it_was(kind: str) -> None:
    offer = read(Offer, json.loads(RECORDED[kind]), error=ProtocolError, what="an offer")
    assert canonical(offer.to_dict()) == RECORDED[kind]
