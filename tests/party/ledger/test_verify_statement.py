"""A published statement against a party's own ledger: true ones pass, each lie is named."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from aggregator_server.ledger.state import CampaignState
from aggregator_server.results.statement import privacy_statement
from party.ledger.ledger import PartyLedger
from party.ledger.state import Campaign
from party.ledger.verify import Check, agrees, unclear, verify_statement
from pate.accounting.composition import Gate, Gdp, total_cost
from pate.accounting.events import GatedBatch
from pate.campaign.offer import Offer
from pate.formats.privacy_statement import (
    ADJACENCY,
    ObserverStatement,
    PrivacyStatement,
    adjacency_of,
)
from pate.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, Neighbour
from pate.votes import Histogram
from tests.support.party.offers import (
    KEY,
    altered,
    answer,
    answer_and_open,
    joining,
    noisy,
    queries,
    settled,
)
from tests.support.server.campaigns import NAMES, label, make_spec, make_votes, start

#: Gdp of the cap 1/10 of the offers at delta 1e-5.
WORTH = Gdp().epsilon(Fraction(1, 10), 1e-5)
NOISE = {
    "central": "central: exact discrete noise, drawn by the server",
    "distributed": "distributed: exact discrete noise, a share from each party, of which 4 are "
    "counted",
}
#: What an answer of the offers costs: of a Gaussian step all labels cost the same.
ANSWER = total_cost(Gdp(), GNMax(Fraction(40), 1).worst)


def observers(epsilon: float, server: float | None = None) -> tuple[ObserverStatement, ...]:
    return (
        ObserverStatement("public", epsilon, 1e-5, "labels"),
        ObserverStatement("server", server, None if server is None else 1e-5, "sums"),
    )


#: Somebody of whom no statement of ours speaks.
OTHER = ObserverStatement("hospital_b", 0.001, 1e-9, "nothing to see")


def published(offer: Offer, **changes: Any) -> PrivacyStatement:
    """What an honest server says of an offer after 4 labels for 5 queries."""
    announced, terms = offer.announced, offer.require_settled()
    made: dict[str, Any] = {
        "campaign": offer.campaign,
        "epsilon": WORTH,
        "delta": announced.delta,
        "unit": announced.unit,
        "adjacency": ADJACENCY[announced.unit],
        "mechanism": tuple(each.to_dict() for each in terms.mechanisms),
        "aggregation": announced.sums.aggregation,
        "noise": NOISE[announced.sums.noise],
        "teachers": terms.teachers,
        "queries_asked": 5,
        "labels_released": 4,
        "composition": terms.composition,
        "cap": str(terms.cap),
        "realised": "1/100",
        "ledger_head": "9:" + "ab" * 32,
        "statements": observers(WORTH),
    }
    return PrivacyStatement(**made | changes)


def answered(ledger: PartyLedger, offer: Offer, *, count: int = 5, told: bool = True) -> Campaign:
    ledger.join(Offer(key=offer.key, announced=offer.announced))
    answer_and_open(ledger, offer, queries(0, count))
    if told:
        ledger.end(offer.campaign, queries_asked=5, labels_released=4, epsilon=1.7, delta=1e-5)
    found = ledger.find(offer.campaign)
    assert found is not None
    return found


def wrong(checks: tuple[Check, ...]) -> list[str]:
    assert agrees(checks) == (not any(each.finding == "differs" for each in checks))
    return [each.name for each in checks if each.finding == "differs"]


def test_an_honest_statement_agrees(ledger: PartyLedger) -> None:
    record = answered(ledger, settled())
    checks = verify_statement(published(settled()), record)
    assert {each.finding for each in checks} == {"ok"}
    assert {
        "unit", "delta", "mechanism", "cap", "epsilon", "queries asked", "server", "ending",
    } <= {each.name for each in checks}  # fmt: skip
    assert str(checks[0]).startswith("ok       campaign: c1c1")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"unit": "patient", "adjacency": ADJACENCY["patient"]}, ["unit", "adjacency"]),
        ({"adjacency": "none"}, ["adjacency"]),
        ({"delta": 1e-4}, ["delta", "public"]),
        ({"aggregation": "plain"}, ["aggregation"]),
        ({"noise": "distributed: shares"}, ["noise"]),
        ({"noise": "simulated: from a seed"}, ["noise"]),
        ({"noise": "central: none was drawn at all"}, ["noise"]),
        ({"noise": NOISE["distributed"]}, ["noise"]),
        ({"noise": "central"}, ["noise"]),
        ({"noise": ""}, ["noise"]),
        ({"observer": "nobody"}, ["observer"]),
        ({"teachers": 251}, ["teachers"]),
        (
            {"mechanism": ({"mechanism": "gnmax", "sigma": "41", "votes_per_unit": 1},)},
            ["mechanism"],
        ),
        ({"mechanism": ()}, ["mechanism"]),
        ({"composition": "zcdp"}, ["composition", "epsilon"]),
        ({"composition": "hearsay"}, ["composition", "epsilon"]),
        ({"cap": "1/11"}, ["cap"]),
        ({"epsilon": 1.0, "statements": observers(1.0)}, ["epsilon"]),
        ({"epsilon": 2.5, "statements": observers(2.5)}, ["announced epsilon", "epsilon"]),
        ({"epsilon": WORTH * (1 - 1e-6), "statements": observers(WORTH * (1 - 1e-6))}, ["epsilon"]),
        ({"realised": "1/9"}, ["realised cost"]),
        ({"realised": "-1/9"}, ["realised cost"]),
        ({"realised": "0"}, ["realised cost"]),
        ({"realised": "1/1000000000"}, ["realised cost"]),
        ({"realised": str(5 * ANSWER - Fraction(1, 10**9))}, ["realised cost"]),
        ({"realised": "9" * 400}, ["realised cost"]),
        ({"queries_asked": 0, "labels_released": 0, "realised": "0"}, ["ending"]),
        ({"queries_asked": 4}, ["ending"]),
        ({"labels_released": 3}, ["ending"]),
        ({"queries_asked": 10**1000}, ["queries_asked"]),
        ({"ledger_head": "rubbish"}, ["ledger head"]),
        ({"ledger_head": "9:" + "ab" * 31}, ["ledger head"]),
        ({"ledger_head": "0:" + "ab" * 32}, ["ledger head"]),
        ({"ledger_head": "9:" + "AB" * 32}, ["ledger head"]),
        ({"ledger_head": "9:" + "ab" * 32 + "\n"}, ["ledger head"]),
        ({"labels_released": 6, "realised": "1/50"}, ["labels", "ending"]),
        ({"labels_released": 5}, ["ending"]),
        ({"queries_asked": 6}, ["ending"]),
        ({"queries_asked": 101, "realised": "1/10"}, ["queries asked", "ending"]),
        (
            {"queries_asked": 102, "labels_released": 101, "realised": "1/10"},
            ["labels in the public set", "queries asked", "ending"],
        ),
        ({"queries_asked": -1, "labels_released": -2}, ["labels", "ending"]),
        ({"statements": observers(1.0)}, ["public"]),
        ({"statements": observers(WORTH, 1.0)}, ["server"]),
        ({"statements": observers(WORTH)[:1]}, ["observers"]),
        ({"statements": observers(WORTH) * 2}, ["observers"]),
        ({"statements": observers(WORTH)[:1] * 2}, ["observers"]),
        ({"statements": (*observers(WORTH), OTHER)}, ["observers"]),
        ({"statements": (*observers(WORTH)[:1], OTHER)}, ["observers"]),
    ],
)
def test_each_lie_is_named(ledger: PartyLedger, change: dict[str, Any], names: list[str]) -> None:
    record = answered(ledger, settled())
    assert wrong(verify_statement(published(settled(), **change), record)) == names


RECORD = Neighbour(3, Fraction(40), 1)
GEOMETRIC = Neighbour(3, votes_per_unit=1, scale=Fraction(20))
VOTING = settled(aggregator="neighbour", mechanisms=(RECORD,))
SERIES = altered(VOTING, series="monthly")
PURE = settled(
    aggregator="neighbour", mechanisms=(GEOMETRIC,), composition="pure", cap=Fraction(1, 10),
    epsilon=0.1, delta=0.0,
)  # fmt: skip


def of_records(offer: Offer, **changes: Any) -> PrivacyStatement:
    """What an honest server says of a campaign in which records vote."""
    series = offer.announced.series
    of_series = {"series": series, "series_key": offer.key.hex()}
    of_pure = {
        "epsilon": 0.1,
        "realised": "1/10",
        "statements": (ObserverStatement("public", 0.1, 0.0, "labels"), observers(0.1)[1]),
    }
    made = {
        "adjacency": adjacency_of("record", records_vote=True, series=series is not None),
        "teachers": 0,
        **(of_series if series else {}),
        **(of_pure if offer is PURE else {}),
    }
    return published(offer, **made | changes)


@pytest.mark.parametrize(
    ("offer", "change", "names"),
    [
        (VOTING, {}, []),
        (VOTING, {"adjacency": adjacency_of("record", records_vote=False)}, ["adjacency"]),
        (VOTING, {"teachers": 40}, ["teachers"]),
        (VOTING, {"mechanism": (Neighbour(3, Fraction(40), 2).to_dict(),)}, ["mechanism"]),
        (VOTING, {"realised": str(total_cost(Gdp(), RECORD.worst) / 2)}, ["realised cost"]),
        (SERIES, {}, []),
        (SERIES, {"series": None, "series_key": None}, ["series"]),
        (SERIES, {"series": "weekly"}, ["series"]),
        (SERIES, {"series_key": "ab" * 32}, ["series' server"]),
        (SERIES, {"adjacency": adjacency_of("record", records_vote=True)}, ["adjacency"]),
        (PURE, {}, []),
        (PURE, {"delta": 1e-5, "statements": observers(0.1)}, ["delta"]),
        (PURE, {"composition": "zcdp"}, ["composition", "epsilon"]),
        (PURE, {"realised": "1/20"}, ["realised cost"]),
        (PURE, {"mechanism": (RECORD.to_dict(),)}, ["mechanism"]),
    ],
)
def test_a_statement_of_records_votes_is_held_against_the_ledger(
    ledger: PartyLedger, offer: Offer, change: dict[str, Any], names: list[str]
) -> None:
    record = replace(answered(ledger, settled()), offer=offer)
    assert wrong(verify_statement(of_records(offer, **change), record)) == names


def test_the_encoder_is_that_of_the_signed_terms(ledger: PartyLedger) -> None:
    digest = "ab" * 32
    offer = settled(schema=f"embeddings 6 by {digest} of images")
    record = replace(answered(ledger, settled()), offer=offer)
    words = "an encoder, SHA-256 {}, trained by somebody"
    checks = verify_statement(published(offer, encoder=words.format(digest)), record)
    assert {each.finding for each in checks} == {"ok"}
    for said in (None, words.format("cd" * 32), "an encoder"):
        assert wrong(verify_statement(published(offer, encoder=said), record)) == ["encoder"]
    plain = replace(record, offer=settled())
    told = published(settled(), encoder=words.format(digest))
    assert wrong(verify_statement(told, plain)) == ["encoder"]


def test_what_was_not_looked_at_is_said(ledger: PartyLedger) -> None:
    checks = verify_statement(published(settled()), answered(ledger, settled()))
    details = {each.name: each.detail for each in checks}
    assert details["observers"].endswith("only figures are checked")
    assert details["ledger head"].endswith("we cannot tell")


def test_no_text_of_a_statement_can_move_a_cursor(ledger: PartyLedger) -> None:
    record = answered(ledger, settled())
    hostile = "\x1b[2K\r\nok       all: is well" * 10_000
    statement = published(
        settled(),
        noise=hostile,
        aggregation=hostile,
        adjacency=hostile,
        composition=hostile,
        cap=hostile,
        realised=hostile,
        ledger_head=hostile,
        observer=hostile,
        mechanism=({"mechanism": hostile},),
        statements=(ObserverStatement(hostile, None, None, hostile),),
    )
    lines = [str(each) for each in verify_statement(statement, record)]
    lines += [str(each) for each in verify_statement(replace(statement, campaign="ab" * 16), None)]
    assert all(line.isprintable() and len(line) < 2000 for line in lines)


def test_before_the_end_less_may_be_claimed(ledger: PartyLedger) -> None:
    record = answered(ledger, settled(), told=False)
    less = published(settled(), queries_asked=3, labels_released=1, realised=str(3 * ANSWER))
    checks = verify_statement(less, record)
    assert wrong(checks) == []
    assert {each.name for each in checks if each.finding == "unclear"} == {
        "queries asked",
        "ending",
    }


def test_the_least_that_labels_cost_is_that_of_the_mechanisms(tmp_path: Path) -> None:
    """Of 5 asked and 4 labels: a check costs the first event, a label both, reinforced the first."""
    confident = ConfidentGNMax(150, Fraction(200), Fraction(40), 1)
    interactive = InteractiveGNMax(150, Fraction(200), Fraction(40), Fraction(9, 10), 1)
    check = Gdp().cost(confident.worst[0])
    label = total_cost(Gdp(), confident.worst)
    for number, (mechanisms, least) in enumerate(
        (((confident,), 4 * label + check), ((confident, interactive), 5 * check))
    ):
        offer = settled(mechanisms=mechanisms, rounds=len(mechanisms))
        record = answered(PartyLedger(tmp_path / f"{number}.db"), offer)
        for realised, names in ((least, []), (least * Fraction(999, 1000), ["realised cost"])):
            statement = published(offer, realised=str(realised))
            assert wrong(verify_statement(statement, record)) == names


def test_a_campaign_that_was_never_joined(ledger: PartyLedger) -> None:
    checks = verify_statement(published(settled()), ledger.find("c1" * 16))
    assert wrong(checks) == ["campaign"]


def test_a_party_that_missed_the_roster_accuses_nobody_of_what_it_cannot_tell(
    ledger: PartyLedger,
) -> None:
    ledger.join(joining())
    checks = verify_statement(published(settled()), ledger.find("c1" * 16))
    assert wrong(checks) == []
    assert unclear(checks) == ["terms", "queries asked", "ending"]
    # What it was offered it can tell all the same.
    for lie, name in (
        ({"unit": "party", "adjacency": ADJACENCY["party"]}, "unit"),
        ({"delta": 1e-4}, "delta"),
        ({"aggregation": "plain"}, "aggregation"),
        ({"epsilon": 1e6}, "announced epsilon"),
    ):
        assert name in wrong(verify_statement(published(settled(), **lie), ledger.find("c1" * 16)))


def test_a_party_may_have_been_away_if_others_were_enough(ledger: PartyLedger) -> None:
    """Five of six are enough: then one query more than we answered is no lie that we can tell."""
    record = answered(ledger, settled(), count=4, told=False)
    checks = verify_statement(published(settled()), record)
    assert wrong(checks) == []
    assert [each.name for each in checks if each.finding == "unclear"] == [
        "queries asked",
        "ending",
    ]


def test_where_all_must_answer_no_query_is_asked_that_we_did_not(tmp_path: Path) -> None:
    for rounds, names in ((1, ["queries asked"]), (2, [])):
        ledger = PartyLedger(tmp_path / f"{rounds}.db")
        offer = settled(threshold=6, rounds=rounds)
        ledger.join(offer)
        answer(ledger, offer, queries(0, 4))
        record = ledger.find(offer.campaign)
        assert wrong(verify_statement(published(offer), record)) == names


def test_a_servers_own_figure_is_not_less_than_what_we_opened_for_it(ledger: PartyLedger) -> None:
    offer = noisy()
    record = answered(ledger, offer, count=5)
    (mechanism,) = offer.require_settled().mechanisms
    five = Gdp().epsilon(5 * total_cost(Gdp(), mechanism.worst), 1e-5)
    for server, names in (
        (five, []),
        (five * 1.5, []),  # others opened batches that we were not in
        (five * 0.999, ["server"]),
        (None, []),  # less than it might promise
    ):
        statement = published(offer, statements=observers(WORTH, server))
        assert wrong(verify_statement(statement, record)) == names
    other = (observers(WORTH)[0], ObserverStatement("server", five, 1e-4, "sums"))
    statement = published(offer, statements=other)
    assert wrong(verify_statement(statement, record)) == ["server's delta"]


def test_a_gated_statement_is_worth_what_its_gate_is(ledger: PartyLedger) -> None:
    batch = GatedBatch(Fraction(10), Fraction(17, 20), Fraction(3, 20), Fraction(1, 100_000))
    worth = Gate(batch).epsilon(Fraction(1), 1e-5)
    offer = settled(composition="gate", cap=Fraction(1), gate=batch)
    record = answered(ledger, offer)
    steps = tuple(each.to_dict() for each in offer.require_settled().mechanisms)
    gate = {key: value for key, value in batch.to_dict().items() if key != "event"}
    gated = {
        "mechanism": (*steps, {"mechanism": "gate", **gate}),
        "epsilon": worth,
        "statements": observers(worth),
        "realised": "1",
    }
    assert wrong(verify_statement(published(offer, **gated), record)) == []
    for less in ("0", "1/2"):
        statement = published(offer, **gated | {"realised": less})
        assert wrong(verify_statement(statement, record)) == ["realised cost"]
    wider = {**gated, "mechanism": (*steps, {"mechanism": "gate", **gate, "target": "2"})}
    assert wrong(verify_statement(published(offer, **wider), record)) == ["gate", "epsilon"]
    broken = {**gated, "mechanism": (*steps, {"mechanism": "gate", "order": "10"})}
    assert wrong(verify_statement(published(offer, **broken), record)) == ["gate", "epsilon"]
    # Worth the same, and another gate all the same.
    other = {
        **gated,
        "mechanism": (*steps, {"mechanism": "gate", **gate, "target": "4/5", "test": "1/5"}),
    }
    assert wrong(verify_statement(published(offer, **other), record)) == ["gate"]
    without = {**gated, "mechanism": steps}
    assert wrong(verify_statement(published(offer, **without), record)) == ["gate", "epsilon"]


def offered(state: CampaignState) -> Offer:
    """What the server of a campaign tells its parties."""
    offer = Offer(key=KEY, announced=state.spec.announced)
    return offer.settle(state.classes, state.settled)


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
def test_the_statement_of_a_real_server_agrees(
    ledger: PartyLedger, tmp_path: Path, aggregation: str
) -> None:
    spec = make_spec(aggregation=aggregation)
    with start(tmp_path / "server.db", spec, voted=False) as server:
        votes = make_votes(spec.queries)
        for first in (0, 100):
            if aggregation == "masked":
                server.record_unmasking(first, 100, NAMES)
            server.record_votes(first, Histogram(votes[first : first + 100], 100), NAMES)
        label(server)
        state = server.state()
    statement = PrivacyStatement.from_json(privacy_statement(state).to_json())
    offer = offered(state)
    for first in (0, 100):
        if aggregation == "plain":
            answer(ledger, offer, queries(first, 100))
        else:
            answer_and_open(ledger, offer, queries(first, 100), offer.require_settled().names)
    assert wrong(verify_statement(statement, ledger.find(offer.campaign))) == []
    ledger.end(
        offer.campaign,
        queries_asked=state.queries_asked,
        labels_released=len(state.labels),
        epsilon=state.epsilon,
        delta=offer.announced.delta,
    )
    checks = verify_statement(statement, ledger.find(offer.campaign))
    assert {each.finding for each in checks} == {"ok"}
    assert statement.queries_asked > statement.labels_released > 0
    assert statement.noise == NOISE["central"]
    assert wrong(verify_statement(replace(statement, cap="1/3"), ledger.find(offer.campaign))) == [
        "cap"
    ]


def test_the_servers_figure_of_a_real_server_with_noise_shares(
    ledger: PartyLedger, tmp_path: Path
) -> None:
    spec = make_spec(
        aggregation="masked", noise="distributed", min_parties=4, colluders=1, epsilon=4.0
    )
    with start(tmp_path / "server.db", spec, voted=False) as server:
        state = server.state()
    statement = privacy_statement(state)
    offer = offered(state)
    voted = len(state.voted)
    assert 0 < voted < spec.queries
    answer_and_open(ledger, offer, queries(0, voted), offer.require_settled().names)
    assert wrong(verify_statement(statement, ledger.find(offer.campaign))) == []
    more = queries(voted, 1)  # the server had one more query answered than it lets on
    answer_and_open(ledger, offer, more, offer.require_settled().names)
    assert wrong(verify_statement(statement, ledger.find(offer.campaign))) == ["server"]
