"""A campaign's statement, and the neighbouring relation and figures on a server's screens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aggregator_server.exchange.presence import FILE, Presence, noting
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import verify
from aggregator_server.monitoring.metrics import render
from aggregator_server.monitoring.status import Status
from aggregator_server.results.report import describe, describe_state, show
from aggregator_server.results.statement import privacy_statement
from pate.accounting.composition import Gdp
from pate.errors import ProtocolError, StateError, UsageError
from pate.exact import fraction_from_text
from pate.formats.privacy_statement import (
    ADJACENCY,
    ENCODER,
    ObserverStatement,
    PrivacyStatement,
    in_words,
    neighbours_of,
    rounded_up,
)
from pate.storage.hash_chain import Head
from student.card import Provenance, write_card
from tests.aggregator_server.campaign import test_matrix_campaign as voting
from tests.support.server.campaigns import answer, label, make_spec, start
from tests.support.student_samples import Parrot


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_the_guarantee_is_the_cap_and_the_same_from_start_to_end(path: Path) -> None:
    with start(path, make_spec(epsilon=5.0)) as ledger:
        first = privacy_statement(ledger.state())
        label(ledger)
        last = privacy_statement(ledger.state())
    assert first.epsilon == last.epsilon <= 5.0
    assert last.composition == "gdp"
    worth = Gdp().epsilon(fraction_from_text(last.cap), last.delta)
    assert worth <= last.epsilon <= worth * (1 + 1e-9)
    assert fraction_from_text(last.realised) <= fraction_from_text(last.cap)
    assert (first.queries_asked, first.realised) == (0, "0")
    assert last.labels_released <= last.queries_asked
    verify(path, Head.parse(last.ledger_head))


def test_a_cap_of_the_whole_budget_says_the_budget(path: Path) -> None:
    with start(path, make_spec(aggregator="gnmax", epsilon=8.0, queries=2000)) as ledger:
        state, said = ledger.state(), privacy_statement(ledger.state())
    assert state.epsilon_of(state.cap) < 8.0  # what bisection leaves
    assert said.epsilon == 8.0
    assert fraction_from_text(said.cap) == state.cap


def test_a_plan_that_costs_less_than_the_budget_promises_more(path: Path) -> None:
    with start(path, make_spec(epsilon=5.0, max_queries=3)) as ledger:
        assert privacy_statement(ledger.state()).epsilon < 1.0


def test_nothing_in_it_depends_on_votes_but_the_labels_released(tmp_path: Path) -> None:
    """Two ledgers with other votes and no answers yet make the same statement, head apart."""
    from pate.votes import Histogram
    from tests.support.server.campaigns import NAMES, make_votes

    made = []
    for seed in (1, 2):
        with start(tmp_path / f"{seed}.sqlite", voted=False) as ledger:
            ledger.record_votes(0, Histogram(make_votes(200, seed=seed), 100), NAMES)
            made.append(replace(privacy_statement(ledger.state()), ledger_head=""))
    assert made[0] == made[1]


def test_an_encoder_that_the_server_does_not_have_is_known_by_its_digest(path: Path) -> None:
    digest = "ab" * 32
    with start(path, make_spec(schema=f"embeddings 6 by {digest} of images")) as ledger:
        said = privacy_statement(ledger.state()).encoder
    assert said is not None
    assert said.startswith(f"SHA-256 {digest}, known by this digest only: ")
    assert "--encoder DIR" in said
    assert "nothing here protects the records that it was trained on" in said
    assert (found := ENCODER.search(said)) is not None
    assert found[1] == digest


def test_json_gives_the_same_value_back_and_has_the_promised_keys(path: Path) -> None:
    with start(path, make_spec(unit="party", epsilon=1e3)) as ledger:
        answer(ledger, 5)
        statement = privacy_statement(ledger.state())
    assert PrivacyStatement.from_json(statement.to_json()) == statement
    body = json.loads(statement.to_json())
    assert set(body) == {
        "adjacency", "aggregation", "campaign", "delta", "epsilon", "labels_released",
        "ledger_head", "mechanism", "noise", "observer", "protocol_version", "queries_asked",
        "realised", "cap", "composition", "statements", "teachers", "unit",
    }  # fmt: skip
    assert "not a guarantee" in body["realised"]["meaning"]
    assert body["mechanism"][0]["votes_per_unit"] == 25
    server = next(each for each in body["statements"] if each["observer"] == "server")
    assert (server["epsilon"], server["delta"]) == (None, None)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": "5"},
        {"epsilon": -1.0},
        {"epsilon": 1},
        {"delta": 1.0},
        {"unit": "hospital"},
        {"protocol_version": 1},
        {"extra": 0},
        {"realised": "0"},
        {"statements": [{"observer": "public", "epsilon": 1.0, "delta": None, "meaning": ""}]},
    ],
)
def test_a_changed_text_is_refused(path: Path, change: dict[str, object]) -> None:
    with start(path) as ledger:
        body = json.loads(privacy_statement(ledger.state()).to_json())
    with pytest.raises(ProtocolError):
        PrivacyStatement.from_json(json.dumps(body | change))


def test_the_text_form_is_written_down() -> None:
    # Parties and students hold such files, and compare them: it may never change.
    statement = PrivacyStatement(
        campaign="00ff", epsilon=1.5, delta=1e-5, unit="record",
        mechanism=({"mechanism": "gnmax", "sigma": "40", "votes_per_unit": 1},),
        aggregation="masked", noise="central", teachers=250, queries_asked=10, labels_released=9,
        composition="gdp", cap="1/32", realised="1/160", ledger_head="12:ab", adjacency="a",
        statements=(ObserverStatement("server", None, None, "é"),),
    )  # fmt: skip
    assert statement.to_json() == (
        '{\n  "adjacency": "a",\n  "aggregation": "masked",\n  "campaign": "00ff",\n'
        '  "cap": "1/32",\n  "composition": "gdp",\n  "delta": 1e-05,\n  "epsilon": 1.5,\n'
        '  "labels_released": 9,\n  "ledger_head": "12:ab",\n  "mechanism": [\n    {\n'
        '      "mechanism": "gnmax",\n      "sigma": "40",\n      "votes_per_unit": 1\n    }\n'
        '  ],\n  "noise": "central",\n  "observer": "public",\n  "protocol_version": 2,\n'
        '  "queries_asked": 10,\n  "realised": {\n    "cost": "1/160",\n'
        '    "meaning": "what this run was charged; a description of the run, not a guarantee"\n'
        '  },\n  "statements": [\n    {\n      "delta": null,\n      "epsilon": null,\n'
        '      "meaning": "\\u00e9",\n      "observer": "server"\n    }\n  ],\n'
        '  "teachers": 250,\n  "unit": "record"\n}\n'
    )
    assert PrivacyStatement.from_json(statement.to_json()) == statement


@pytest.mark.parametrize("meaning", ["a guarantee", None, 1])
def test_what_was_charged_is_said_to_be_no_guarantee(path: Path, meaning: object) -> None:
    with start(path) as ledger:
        body = json.loads(privacy_statement(ledger.state()).to_json())
    body["realised"]["meaning"] = meaning
    with pytest.raises(ProtocolError, match="realised"):
        PrivacyStatement.from_json(json.dumps(body))


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"epsilon": NaN}'])
def test_what_is_no_statement_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        PrivacyStatement.from_json(text)


def test_there_is_none_before_the_roster(path: Path) -> None:
    with Ledger.create(path, make_spec()) as ledger, pytest.raises(StateError):
        privacy_statement(ledger.state())


def test_a_senseless_figure_cannot_be_stated(path: Path) -> None:
    with start(path) as ledger:
        statement = privacy_statement(ledger.state())
    with pytest.raises(UsageError):
        replace(statement, epsilon=float("nan"))


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [(8.0, "8"), (7.999999999976953, "8"), (1.97, "1.97"), (1.97001, "1.9701"), (0.0, "0")],
)
def test_an_epsilon_is_never_shown_smaller_than_it_is(epsilon: float, shown: str) -> None:
    assert rounded_up(epsilon) == shown
    assert float(rounded_up(epsilon)) >= epsilon


def test_a_guarantee_never_comes_without_its_terms() -> None:
    for unit in ADJACENCY:
        among = neighbours_of(unit, records_vote=False)
        words = in_words(1.0, 1e-5, unit, neighbours=among)
        assert f"unit: {unit}" in words
        assert "adjacency: " in words
        assert "see the privacy statement" not in words
        assert "observer: public" in words


ALTERED, MOVED = "one record added, removed or altered", "one record added or removed"


@pytest.mark.parametrize("records_vote", [True, False])
def test_status_page_statement_and_card_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], records_vote: bool
) -> None:
    path = tmp_path / "ledger.db"
    with voting.start(path) if records_vote else start(path, make_spec()) as ledger:
        (voting.release if records_vote else label)(ledger)
        state, overview = ledger.state(), Status(ledger).overview()
        ledger.finish()
    statement = privacy_statement(state).to_json()
    show(describe_state(state))
    status = " ".join(capsys.readouterr().out.replace("│", " ").split())
    bare = Provenance("cd" * 16, "x", "ef" * 32, 900, 50, 0, {})
    card = write_card(Parrot(), bare, json.loads(statement), None)
    assert overview.budget is not None
    words, others = (ALTERED, MOVED) if records_vote else (MOVED, ALTERED)
    for screen in (status, overview.budget.adjacency, card, statement):
        assert words in screen
        assert others not in screen
    # In a campaign that has none, teachers are on no screen.
    assert ("teacher" in status, "teacher" in card) == (not records_vote,) * 2
    teachers = 0 if records_vote else state.teachers
    assert overview.teachers == PrivacyStatement.from_json(statement).teachers == teachers
    assert f"pate_teachers {teachers}.0" in render(overview).decode()


def test_who_is_here_while_parties_gather(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown: list[Presence] = []
    with Ledger.create(tmp_path / "ledger.db", make_spec()) as ledger:
        note = noting(tmp_path, lambda: ledger.state().phase, shown.append)
        assert "present" not in describe(tmp_path)
        note(Presence(frozenset("a"), refused=frozenset("d"), preparing=frozenset("cb")))
    show(describe(tmp_path))
    assert "3 of 4 (a; preparing: b, c); refused: d; since 20" in capsys.readouterr().out
    named = tmp_path / "named"
    with Ledger.create(named / "ledger.db", make_spec(parties=tuple("abcd"))) as ledger:
        noting(named, lambda: ledger.state().phase, shown.append)(
            Presence(frozenset("a"), refused=frozenset("d"))
        )
    assert describe(named)["present"]["missing"] == ["b", "c"]  # type: ignore[index]
    show(describe(named))
    assert "1 of 4 (a); missing: b, c; refused: d; since 20" in capsys.readouterr().out
    with start(tmp_path / "later" / "ledger.db") as ledger:
        note = noting(tmp_path, lambda: ledger.state().phase, shown.append)
        note(Presence(frozenset("ab")))
    assert not (tmp_path / FILE).exists()
    assert [len(each.here) for each in shown] == [1, 1, 2]
