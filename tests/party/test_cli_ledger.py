"""``pate-party ledger`` and ``verify`` from the command line."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from click.testing import Result
from typer.testing import CliRunner

from party.cli.main import app
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import POLICY_FILE
from pate.accounting.filters import Delta
from pate.errors import DataError, LedgerError, PateError, ProtocolError, StateError, UsageError
from tests.party.ledger.test_verify_statement import published
from tests.support.party.offers import (
    SIX,
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
