"""Who takes part by envelope, as the options of the server say it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aggregator_server.cli.main import app
from aggregator_server.exchange.by_envelope import ByEnvelope, check_goes_by_envelope
from aggregator_server.exchange.store import FILE, Store
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.results.report import LEDGER_FILE
from pate.errors import UsageError
from pate.runtime.command import program_of
from tests.support.server.campaigns import make_spec

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
NAMED = ("a", "b", "c")


def test_all_parties_or_some_of_them() -> None:
    spec = make_spec(parties=NAMED, min_parties=2)
    assert ByEnvelope(Path("x")).names(spec) == NAMED
    assert ByEnvelope(Path("x")).all_of(spec)
    some = ByEnvelope(Path("x"), ("b", "c"))
    assert some.names(spec) == ("b", "c")
    assert not some.all_of(spec)
    counted = make_spec(parties=3, min_parties=2)
    assert some.names(counted) == ("b", "c")


@pytest.mark.parametrize(
    ("chosen", "terms", "said"),
    [
        (None, {"parties": 3}, "each party must be named"),
        (None, {"parties": ("a", "b", "<i>c</i>")}, "by envelope: "),
        (("../d",), {"parties": 3}, "by envelope: "),
        (("b", "zoe"), {"parties": NAMED}, "--by-envelope names zoe, not in --parties"),
        (
            None,
            {"parties": NAMED, "aggregation": "masked", "vote_proofs": True},
            "proofs of votes need a connection",
        ),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_made(
    chosen: tuple[str, ...] | None, terms: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        ByEnvelope(Path("x"), chosen).names(make_spec(**({"min_parties": 3} | terms)))


def test_a_campaign_by_envelope_goes_on_by_envelope(tmp_path: Path) -> None:
    check_goes_by_envelope(tmp_path, None)
    Store(tmp_path / FILE)
    check_goes_by_envelope(tmp_path, ByEnvelope(tmp_path))
    with pytest.raises(UsageError, match="--envelopes DIR"):
        check_goes_by_envelope(tmp_path, None)


def sent(folder: Path) -> Store:
    """The store of two envelopes that are out, to be answered until a date."""
    store = Store(folder / FILE, ("a", "b"), days=2, clock=lambda: NOW)
    for name in ("a", "b"):
        store.ask(name, name.encode(), b"body", "ask")
    for out in store.due():
        store.note(out, bytes(31) + out.party.encode())
    return store


def shown(*command: str) -> tuple[str, Any]:
    """What a command of the server prints on its screen, and as JSON."""
    said = CliRunner().invoke(program_of(app), command, prog_name="pate-server")
    assert said.exit_code == 0, said.output
    told = CliRunner().invoke(program_of(app), [*command, "--json"], prog_name="pate-server")
    return said.output, json.loads(told.stdout)


def test_what_is_out_and_in_is_listed_by_party_with_dates(tmp_path: Path) -> None:
    with Ledger.create(
        tmp_path / "trial" / LEDGER_FILE, make_spec(parties=("a", "b"), min_parties=2)
    ):
        store = sent(tmp_path / "trial")
    where = ("--home", str(tmp_path), "--campaign", "trial")
    until = "made 2026-11-01T12:00:00Z, not answered; may be answered until 2026-11-03T12:00:00Z"
    screen, told = shown("envelopes", "list", *where)
    assert f"a: envelope 1, {until}" in screen
    assert f"b: envelope 1, {until}" in screen
    first, second = told["envelopes"]
    assert first["file"] == f"{'00' * 31}61"
    assert (second["party"], second["answered"], second["over"]) == ("b", None, False)

    answered = store.envelopes()[0]
    assert store.take(answered, bytes(32), bytes(32), [b"votes"]) is not None
    screen, told = shown("status", *where)
    assert "a: envelope 1, made 2026-11-01T12:00:00Z, answered 2026-11-01T12:00:00Z" in screen
    assert f"b: envelope 1, {until}" in " ".join(screen.split())
    assert [each["answered"] for each in told["envelopes"]] == ["2026-11-01T12:00:00Z", None]


def test_closing_names_those_that_are_not_waited_for(tmp_path: Path) -> None:
    store = sent(tmp_path / "trial")
    where = ("--home", str(tmp_path), "--campaign", "trial")
    assert store.take(store.envelopes()[0], bytes(32), bytes(32), [b"votes"]) is not None
    screen, told = shown("envelopes", "close", *where)
    assert "no answer so far: b. A running server takes in what lies in its inbox" in screen
    assert told == {"closing": ["b"]}
    screen = shown("envelopes", "list", *where)[0]
    assert "b: envelope 1" in screen
    assert "the wait ends when the server next looks into its inbox" in screen
    assert store.close_due() == [("b", False)]
    store.due()
    assert "nothing of it is waited for" in shown("envelopes", "list", *where)[0]
    screen, told = shown("envelopes", "close", *where)
    assert "no votes are being waited for" in screen
    assert told == {"closing": []}


def test_names_and_days_need_a_folder(tmp_path: Path) -> None:
    (tmp_path / "public.npz").touch()
    for option in (["--by-envelope", "a"], ["--answer-days", "3"]):
        run = CliRunner().invoke(
            program_of(app),
            ["resume", *option, "--home", str(tmp_path), "--no-page"],
            prog_name="pate-server",
        )
        assert isinstance(run.exception, UsageError), run.output
        assert "need --envelopes DIR" in str(run.exception)
