"""``pate-party ledger`` and ``verify``, and what a party's screens say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from click.testing import Result
from typer.testing import CliRunner

from party.cli.main import app
from party.ledger.accountant import Totals, cumulative_epsilon
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import POLICY_FILE
from party.voting.ending import Ending, ended_in_words
from pate.accounting import Adjacency
from pate.accounting.composition import Gdp
from pate.accounting.filters import Delta
from pate.campaign.choices import EARLY_ENDS
from pate.campaign.offer import Offer
from pate.errors import DataError, LedgerError, PateError, ProtocolError, StateError, UsageError
from pate.formats.privacy_statement import in_words, neighbours_of
from pate.mechanisms import Neighbour, TeacherLabels
from tests.party.ledger.test_verify_statement import published
from tests.party.voting.test_neighbour_voter import Site
from tests.support.party.offers import (
    SIX,
    altered,
    answer,
    answer_and_open,
    joining,
    noisy,
    queries,
    settled,
)

OTHER = "d2" * 16


def typed(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "60"})


def fails(kind: type[PateError], words: str, *arguments: str) -> None:
    with pytest.raises(kind, match=words):
        typed(*arguments)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A party that was in three campaigns: masked, with noise shares, and plain."""
    place = tmp_path / "hospital_a"
    own_ledger = PartyLedger(place / LEDGER_FILE)
    own_ledger.join(joining())
    answer_and_open(own_ledger, settled(), queries(0, 3))
    answer(own_ledger, settled(), queries(0, 3))
    answer_and_open(own_ledger, settled(), queries(3, 2))
    own_ledger.end("c1" * 16, queries_asked=5, labels_released=4, epsilon=1.76005, delta=1e-5)
    answer_and_open(own_ledger, noisy(campaign=OTHER, unit="patient"), queries(10, 1))
    answer(own_ledger, settled(campaign="e3" * 16, aggregation="plain"), queries(20, 2))
    own_ledger.join(joining(campaign="f4" * 16))
    return place


def test_what_left_in_words(home: Path) -> None:
    result = typed("ledger", "--home", str(home))
    assert result.exit_code == 0
    first, shares, plain, nothing = result.stdout.split("\n\n")[1:5]
    assert "campaign c1c1c1c1" in first
    assert "signed by the key 0001 0203 0405 0607 0809 0a0b 0c0d 0e0f" in first
    assert "gnmax over a public set of 100 queries, 1 round" in first
    assert "with 6 parties (a, b, c, d, e, f), 250 teachers" in first
    assert "votes on 5 queries in 2 batches, 1 batch again, from " in first
    assert "nobody saw our votes alone, the server their exact sum" in first
    assert "over 5 queries in 2 batches, with the votes of a, b, c, d, e, f\n" in first
    assert (
        "promised: epsilon 2 at delta 1e-05 (unit: record; adjacency: one record added or removed; "
        "observer: public)" in first
    )
    assert "5 queries asked, 4 labels released, at most epsilon 1.7601 at delta" in first
    assert "the server their noisy sum" in shares
    assert "observer: server)" in shares
    assert "unit: patient" in shares
    assert "plain: the server saw our vote vectors" in plain
    assert "opened" not in plain
    assert "left: no votes" in nothing
    assert "all 4 together, by our own accountant: epsilon " in result.stdout
    assert f"head {PartyLedger(home / LEDGER_FILE).head}" in result.stdout


def test_an_end_before_any_votes_says_why(home: Path) -> None:
    PartyLedger(home / LEDGER_FILE).end(
        "f4" * 16, queries_asked=0, labels_released=0, epsilon=2.0, delta=1e-5, cause="threshold"
    )
    lines = typed("ledger", "--home", str(home)).stdout.splitlines()
    (ended,) = [line for line in lines if "before it asked for votes" in line]
    assert ended.startswith("  ended 20")
    assert ended.endswith(": no votes of its parties can reach its threshold")


def test_as_json(home: Path) -> None:
    made: dict[str, Any] = json.loads(typed("ledger", "--home", str(home), "--json").stdout)
    own_ledger = PartyLedger(home / LEDGER_FILE)
    assert made["head"] == own_ledger.head
    assert [each["queries"] for each in made["campaigns"]] == [5, 1, 2, 0]
    first = made["campaigns"][0]
    assert first["offer"] == settled().to_dict()
    assert first["batches"][1]["survivors"] == list(SIX)
    assert first["ending"]["labels_released"] == 4
    assert made["own_figure"] == {
        "epsilon": own_ledger.cumulative_epsilon(Delta(1e-5)).epsilon,
        "delta": 1e-5,
        "for_failing": pytest.approx(1e-6),
        "unit": "record",
        "observer": "public",
        "neighbours": "one record added or removed",
    }


def test_the_figure_is_at_the_policys_delta(home: Path, tmp_path: Path) -> None:
    def delta_of(*options: str) -> float:
        body = json.loads(typed("ledger", "--home", str(home), "--json", *options).stdout)
        delta: float = body["own_figure"]["delta"]
        return delta

    assert delta_of() == 1e-5
    (home / POLICY_FILE).write_text("delta = 1e-6")
    assert delta_of() == 1e-6
    elsewhere = tmp_path / "rules.toml"
    elsewhere.write_text("delta = 1e-7")
    assert delta_of("--policy", str(elsewhere)) == 1e-7


def test_a_figure_that_there_is_not_is_null(tmp_path: Path) -> None:
    own_ledger = PartyLedger(tmp_path / LEDGER_FILE)
    answer(own_ledger, joining(delta=1e-3), queries(0, 1))
    made = json.loads(typed("ledger", "--home", str(tmp_path), "--json").stdout)
    assert made["own_figure"]["epsilon"] is None
    assert "no figure at delta 1e-05" in typed("ledger", "--home", str(tmp_path)).stdout


def test_an_empty_ledger_and_none(tmp_path: Path) -> None:
    PartyLedger(tmp_path / LEDGER_FILE)
    assert "nothing has left" in typed("ledger", "--home", str(tmp_path)).stdout
    fails(StateError, "there is no file", "ledger", "--home", str(tmp_path / "none"))


def test_a_damaged_ledger_is_an_error(home: Path) -> None:
    path = home / LEDGER_FILE
    body = bytearray(path.read_bytes())
    at = body.index(b'"labels_released":4')
    body[at + 18] = ord("9")
    path.write_bytes(body)
    fails(LedgerError, "its digest does not match", "ledger", "--home", str(home))


def test_the_one_home_there_is(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platformdirs, "user_state_dir", lambda *_, **__: str(tmp_path / "state"))
    fails(UsageError, "no party has a ledger", "ledger")
    parties = tmp_path / "state" / "party"
    parties.mkdir(parents=True)
    home.rename(parties / "hospital_a")
    assert "campaign c1c1c1c1" in typed("ledger").stdout
    PartyLedger(parties / "hospital_b" / LEDGER_FILE)
    fails(UsageError, r"--name of one: hospital_a, hospital_b", "ledger")
    assert "campaign c1c1c1c1" in typed("ledger", "--name", "hospital_a").stdout
    assert "nothing has left" in typed("ledger", "--name", "hospital_b").stdout
    for command in (
        ["ledger"], ["verify", "privacy.json"], ["backup", "--out", "copy"],
        ["forget", "--entries-lost"], ["new-sealing-key"],
    ):  # fmt: skip
        fails(
            UsageError, "these have one: hospital_a, hospital_b", *command, "--name", "hospital_c"
        )
        fails(UsageError, "cannot be a party's name", *command, "--name", "../hospital_a")
        fails(UsageError, "give one of them", *command, "--name", "hospital_a", "--home", "x")
    fails(UsageError, "cannot be a", "restore", "copy", "--entries-lost", "--name", "../hospital_a")


def test_a_true_statement(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "privacy.json"
    path.write_text(published(settled()).to_json())
    result = typed("verify", str(path), "--home", str(home))
    assert result.exit_code == 0
    *lines, last = result.stdout.splitlines()
    assert len(lines) > 15
    assert all(line.startswith("ok ") for line in lines)
    assert last == f"{len(lines)} of {len(lines)} hold; nothing differs"
    # In words and rounded figures, not as a program writes its values.
    assert not re.search(r"[{}\[\]']|None|\d{13}|\d/\d", "".join(lines).replace("ab" * 32, ""))
    made = json.loads(typed("verify", str(path), "--home", str(home), "--json").stdout)
    assert made["agrees"] is True
    assert len(made["checks"]) == len(lines)


def test_a_false_statement_ends_with_the_ledgers_code(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "privacy.json"
    path.write_text(published(settled(cap=Fraction(1, 20)), teachers=200).to_json())
    result = CliRunner().invoke(app, ["verify", str(path), "--home", str(home)])
    assert isinstance(result.exception, LedgerError)
    assert result.exception.exit_code == 22
    assert str(result.exception).endswith("does not agree with our ledger: teachers, cap")
    assert "differs  teachers: the statement has 200, our ledger 250" in result.stdout
    count = len(result.stdout.splitlines()) - 1
    assert result.stdout.splitlines()[-1] == f"{count - 2} of {count} hold"


def test_a_party_that_missed_the_roster_ends_with_nothing_to_object(tmp_path: Path) -> None:
    home, path = tmp_path / "hospital_b", tmp_path / "privacy.json"
    PartyLedger(home / LEDGER_FILE).join(joining())
    path.write_text(published(settled()).to_json())
    result = typed("verify", str(path), "--home", str(home))
    assert result.exit_code == 0
    assert "unclear  terms: we never learnt the terms" in result.stdout
    said = " ".join(result.stdout.split())
    assert said.endswith("nothing differs; this party cannot tell: terms, queries asked, ending")
    made = json.loads(typed("verify", str(path), "--home", str(home), "--json").stdout)
    assert (made["agrees"], made["unclear"]) == (True, ["terms", "queries asked", "ending"])


def test_what_is_no_statement(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "privacy.json"
    where = ["--home", str(home)]
    fails(DataError, "cannot read", "verify", str(path), *where)
    kinds: tuple[tuple[bytes, type[PateError], str], ...] = (
        (b"{}", ProtocolError, "not a privacy statement"),
        (b'{"labels": {}, "privacy": {}}', ProtocolError, "in its field 'privacy'"),
        (b"\xff", DataError, "not text"),
        (b" " * 2**21, DataError, "too large"),
    )
    for body, kind, words in kinds:
        path.write_bytes(body)
        fails(kind, words, "verify", str(path), *where)


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
