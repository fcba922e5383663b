"""What a party's screens say: the neighbouring worlds, who votes, and how a campaign ended."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from party.ledger.accountant import Totals, cumulative_epsilon
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.voting.ending import Ending, ended_in_words
from pate.accounting import Adjacency
from pate.accounting.composition import Gdp
from pate.accounting.filters import Delta
from pate.campaign.choices import EARLY_ENDS
from pate.campaign.offer import Offer
from pate.errors import ProtocolError
from pate.formats.privacy_statement import in_words, neighbours_of
from pate.mechanisms import Neighbour, TeacherLabels
from tests.party.test_cli_ledger import typed
from tests.party.voting.test_neighbour_voter import Site
from tests.support.party.offers import SIX, altered, answer, queries, settled

ALTERED = "adjacency: one record added, removed or altered; observer"
MOVED = "adjacency: one record added or removed; observer"


def voting(campaign: str = "c1" * 16, unit: str = "record") -> Offer:
    return settled(
        campaign=campaign, aggregator="neighbour", mechanisms=(Neighbour(5, Fraction(40), 1),),
        most_votes=4095, unit=unit,
    )  # fmt: skip


def test_the_ledgers_screen(tmp_path: Path) -> None:
    ledger = PartyLedger(tmp_path / LEDGER_FILE)
    answer(ledger, voting(), queries(0, 3))
    ledger.end("c1" * 16, queries_asked=3, labels_released=2, epsilon=1.5, delta=1e-5)
    shown = typed("ledger", "--home", str(tmp_path)).stdout
    # Promised, ended, its own figure, and all together.
    assert shown.count(ALTERED) == 4
    assert MOVED not in shown
    assert f"with 6 parties ({', '.join(SIX)}), records vote, at most 4095 of a party on a" in shown
    assert "teacher" not in shown
    made = json.loads(typed("ledger", "--home", str(tmp_path), "--json").stdout)
    assert made["own_figure"]["neighbours"] == neighbours_of("record", records_vote=True)


def test_our_own_delta_is_said_where_the_promise_is_at_another(tmp_path: Path) -> None:
    """A smaller delta makes a larger epsilon of the same noise, which looks like a broken promise."""
    ledger = PartyLedger(tmp_path / LEDGER_FILE)
    answer(ledger, settled(delta=1e-4), queries(0, 3))
    answer(ledger, settled(campaign="d2" * 16, delta=1e-5), queries(3, 3))
    shown = typed("ledger", "--home", str(tmp_path)).stdout
    lines = [line.split(" (unit")[0] for line in shown.splitlines() if "epsilon" in line]
    promised, at_theirs, at_ours, _, alone, _ = lines
    assert promised == "  promised: epsilon 2 at delta 0.0001"
    assert at_theirs.startswith("  by our own accountant: epsilon 0.")
    assert at_theirs.endswith(" at delta 0.0001")
    assert at_ours.startswith(
        "  the same at our own, smaller delta (so epsilon is larger): epsilon 0."
    )
    assert at_ours.endswith(" at delta 1e-05")
    assert alone.startswith("  by our own accountant: epsilon")


def test_one_campaign_of_teachers_is_enough_to_take_alterations_away(tmp_path: Path) -> None:
    ledger = PartyLedger(tmp_path / LEDGER_FILE)
    answer(ledger, voting(), queries(0, 3))
    answer(ledger, settled(campaign="d2" * 16), queries(3, 3))
    shown = typed("ledger", "--home", str(tmp_path)).stdout
    assert shown.splitlines()[-1].count(MOVED) == 1
    assert shown.count(ALTERED) == 2  # of the first: promised, and its own figure
    assert "250 teachers" in shown


@pytest.mark.parametrize(
    ("offers", "words"),
    [
        ([voting()], "one record added, removed or altered"),
        ([settled()], "one record added or removed"),
        ([voting(), settled(campaign="d2" * 16)], "one record added or removed"),
        ([voting(), settled(campaign="d2" * 16, unit="party")], "one record added, removed or"),
        # A record that is altered may become another patient's: two patients change.
        ([voting(), voting("d2" * 16, unit="patient")], "one record added or removed"),
        ([voting(unit="patient")], "all records of one patient at one party added, removed or"),
        ([settled(unit="party")], "all data of one party altered"),
    ],
)
def test_the_own_figure_is_for_what_all_campaigns_cover(offers: list[Offer], words: str) -> None:
    totals = [Totals(replace(each), 10, 10) for each in offers]
    figure = cumulative_epsilon(totals, Delta(1e-5))
    assert figure.neighbours.startswith(words)
    assert f"adjacency: {figure.neighbours}; observer" in figure.in_words


def at_once(sigma: int, unit: str = "party", **changes: Any) -> Offer:
    """A campaign of arrays in one release."""
    adjacency: Adjacency = "remove" if unit == "party" else "change"
    mechanism = TeacherLabels(0, Fraction(sigma), 1, code="axes-8", adjacency=adjacency)
    cap = Gdp().cost(mechanism.worst[0])
    return settled(unit=unit, code="axes-8", mechanisms=(mechanism,), cap=cap, queries=8, **changes)


def test_a_party_that_is_removed_counts_twice_the_distance_for_its_records() -> None:
    party, delta = at_once(4000), Delta(1e-5)
    alone = cumulative_epsilon([Totals(party, 8, 8)], delta)
    assert (alone.unit, alone.neighbours) == ("party", "all data of one party added or removed")
    twice = cumulative_epsilon([Totals(at_once(2000), 8, 8)], delta)
    assert twice.epsilon > 1.9 * alone.epsilon
    # With a campaign that hardly costs anything for records, the figure is for records.
    little = at_once(2**18, unit="record", campaign="d2" * 16)
    both = cumulative_epsilon([Totals(party, 8, 8), Totals(little, 8, 8)], delta)
    assert both.unit == "record"
    assert twice.epsilon < both.epsilon < 1.01 * twice.epsilon
    with pytest.raises(ProtocolError, match="the mechanism charges"):
        altered(party, unit="record")


def test_the_line_of_joining(tmp_path: Path) -> None:
    site = Site(tmp_path / "a")
    site.describe(site.campaign(joined=False, unit="record"))
    assert ALTERED in site.said[-1]


def test_no_screen_can_forget_it() -> None:
    with pytest.raises(TypeError, match="neighbours"):
        in_words(1.0, 1e-5, "record")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="records_vote"):
        neighbours_of("record")  # type: ignore[call-arg]


ENDING = Ending(
    campaign="c1" * 16,
    queries_asked=40,
    labels_released=9,
    epsilon=1.5,
    delta=1e-5,
    unit="record",
    adjacency="one record added or removed",
    records_vote=False,
    observer="public",
    votes_given=40,
)


def test_an_end_says_what_was_released_and_at_most_at_what_cost() -> None:
    assert ended_in_words(ENDING) == (
        "the campaign has ended: 40 queries asked, 9 labels released, at most epsilon 1.5 at delta 1e-05 "
        "(unit: record; adjacency: one record added or removed; observer: public)"
    )


@pytest.mark.parametrize("cause", EARLY_ENDS)
def test_an_end_before_any_votes_says_why_and_what_left(cause: str) -> None:
    said = ended_in_words(replace(ENDING, queries_asked=0, labels_released=0, cause=cause))
    assert said == (
        f"the campaign has ended before it asked for votes: {EARLY_ENDS[cause]}. No vote of ours has left "
        "for it; its coordinator may start another one"
    )
