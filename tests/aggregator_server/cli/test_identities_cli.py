"""The coordinator's identity commands, from `init` to `revoke`."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from aggregator_server.cli.identities import register
from aggregator_server.identities import Identities
from aggregator_server.identities.authority import ends
from party.cli.main import app as party_app
from party.identity.enrolment import Enrolment
from pate.errors import (
    DataError,
    DiskError,
    PateError,
    ProtocolError,
    RefusedError,
    StateError,
    UsageError,
)
from pate.formats.enrolment import Bundle, fingerprint, readable
from tests.support.server.identities import NOW, answer

SERVER = typer.Typer()
register(SERVER)


def run(app: typer.Typer, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def server(*arguments: str | Path) -> str:
    """Run a command of the coordinator that works, and return all that it said."""
    result = run(SERVER, *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(app: typer.Typer, kind: type[PateError], *arguments: str | Path) -> str:
    result = run(app, *arguments)
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    server("init", "--home", tmp_path / "server", "--port", "1")
    return tmp_path / "server"


def test_init_says_where_what_and_what_next(tmp_path: Path) -> None:
    said = server("init", "--home", tmp_path, "--host", "pate.example.org", "--host", "192.0.2.7")
    found = Identities.open(tmp_path)
    assert found is not None
    assert found.address == "pate.example.org:9092"
    assert readable(found.fingerprint) in said
    assert "pate-server enroll" in said
    assert "already" in refused(SERVER, StateError, "init", "--home", tmp_path)


def test_init_as_json(tmp_path: Path) -> None:
    found = json.loads(run(SERVER, "init", "--home", tmp_path, "--json").stdout)
    assert found["server"] == "127.0.0.1:9092"
    assert len(found["authority"]) == len(found["campaign_key"]) == 64


def test_from_the_bundle_to_the_roll_without_a_network(home: Path, tmp_path: Path) -> None:
    bundle, reply = tmp_path / "a.bundle.json", tmp_path / "a.answer.json"
    said = server("enroll", "a", "--home", home, "--out", bundle)
    assert str(bundle) in said
    assert bundle.stat().st_mode & 0o777 == 0o600
    mark = readable(fingerprint(Bundle.from_json(bundle.read_bytes()).ca))
    assert mark in said
    party = run(party_app, "enroll", bundle, "--home", tmp_path / "a", "--answer", reply)
    assert party.exit_code == 0, (party.output, party.exception)
    assert mark in party.output
    assert "pate-server admit" in party.output
    said = server("admit", reply, "--home", home)
    assert "is enrolled;" in said
    assert "already" in server("admit", reply, "--home", home)
    # The unabridged key, for comparison and for policies.
    identities = Identities.open(home)
    assert identities is not None
    key = identities.enrolled()["a"].identity.hex()
    assert key in said
    assert f'a = "{key}"' in party.output
    assert f'a = "{key}"\n' in server("parties", "--home", home)
    kept = Enrolment.load(tmp_path / "a")
    assert kept is not None
    assert kept.name == "a"
    listing = json.loads(run(SERVER, "parties", "--home", home, "--json").stdout)
    [entry] = listing["parties"]
    assert (entry["name"], entry["state"], entry["code_open_until"]) == ("a", "enrolled", None)
    assert listing["warnings"] == []


def test_a_server_that_cannot_be_reached_gets_a_file(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server("enroll", "a", "--home", home)
    party = run(party_app, "enroll", "a.bundle.json", "--home", tmp_path / "a", "--json")
    assert party.exit_code == 0, (party.output, party.exception)
    assert "does not answer" in party.output
    assert json.loads(party.stdout)["answer"] == "a.answer.json"
    assert "is enrolled" in server("admit", "a.answer.json", "--home", home)


def test_parties_revoke_and_again(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    for name in ("a", "b"):
        server("enroll", name, "--home", home, "--out", out)
    identities = Identities.open(home)
    assert identities is not None
    (tmp_path / "b").write_bytes(answer(Bundle.from_json(out.read_bytes())).to_json())
    server("admit", tmp_path / "b", "--home", home)
    assert "--again" in refused(SERVER, UsageError, "enroll", "b", "--home", home, "--out", out)
    server("enroll", "b", "--home", home, "--out", out, "--again")
    assert "its code is void" in server("revoke", "a", "--home", home)
    assert "b is revoked" in server("revoke", "b", "--home", home)
    assert "before" in server("revoke", "b", "--home", home)
    assert "no party" in refused(SERVER, UsageError, "revoke", "a", "--home", home)
    said = server("parties", "--home", home)
    assert "revoked" in said
    assert "enrolled" not in said


def test_rotate(home: Path) -> None:
    before = (home / "identity" / "server.pem").read_bytes()
    assert "start the server again" in server("rotate", "--home", home)
    assert (home / "identity" / "server.pem").read_bytes() != before


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_rotate_makes_a_certificate_that_was_lost(home: Path, content: bytes | None) -> None:
    place = home / "identity" / "server.pem"
    place.unlink()
    if content is not None:
        place.write_bytes(content)
    assert "rotate" in refused(SERVER, StateError, "parties", "--home", home)
    server("rotate", "--home", home)
    server("parties", "--home", home)
    assert ends(place.read_bytes()) > dt.datetime.now(dt.UTC)


def test_a_bundle_that_cannot_be_written_opens_no_code(home: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "bundle"
    refused(SERVER, DiskError, "enroll", "a", "--home", home, "--out", nowhere)
    assert json.loads(run(SERVER, "parties", "--home", home, "--json").stdout)["parties"] == []


@pytest.mark.parametrize(
    ("app", "command", "argument"),
    [
        (SERVER, "enroll", "NAME"),
        (SERVER, "revoke", "NAME"),
        (SERVER, "admit", "FILE"),
        (party_app, "enroll", "BUNDLE"),
    ],
)
def test_the_help_says_what_the_argument_is(app: typer.Typer, command: str, argument: str) -> None:
    text = run(app, command, "--help").output.partition("Arguments")[0]
    assert text.count(argument) == 2, "in the usage, and in the words below it"


@pytest.mark.parametrize("command", ["parties", "rotate", "enroll a", "revoke a"])
def test_without_an_identity_each_says_how_to_make_one(tmp_path: Path, command: str) -> None:
    said = refused(SERVER, StateError, *command.split(), "--home", tmp_path)
    assert "pate-server init" in said
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_answer_is_not_admitted(home: Path, tmp_path: Path) -> None:
    assert "cannot read" in refused(SERVER, DataError, "admit", tmp_path / "no", "--home", home)
    (tmp_path / "no").write_bytes(b"no")
    refused(SERVER, ProtocolError, "admit", tmp_path / "no", "--home", home)
    server("enroll", "a", "--home", home, "--out", tmp_path / "bundle")
    bundle = Bundle.from_json((tmp_path / "bundle").read_bytes())
    server("revoke", "a", "--home", home)
    (tmp_path / "late").write_bytes(answer(bundle).to_json())
    refused(SERVER, RefusedError, "admit", tmp_path / "late", "--home", home)


def test_a_bundle_that_has_expired_is_not_used(tmp_path: Path) -> None:
    identities = Identities.create(tmp_path / "server", (), 9092, NOW)
    (tmp_path / "bundle").write_bytes(identities.invite("a", now=NOW).to_json())
    said = refused(party_app, StateError, "enroll", tmp_path / "bundle", "--home", tmp_path / "a")
    assert "expired on 2026-01-15" in said
    assert not (tmp_path / "a").exists()
