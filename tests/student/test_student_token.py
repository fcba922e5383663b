"""The student's token: proved by a MAC, never sent, and read only from its home."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.student_service import StudentService
from pate.data.values import Images, Inputs, content_hash
from pate.errors import RefusedError, StateError
from pate.runtime.home import STUDENT_TOKEN, default_home, kept_token, new_token, read_token
from protos.student_proof import PROOF_KEY
from student.client import StudentClient
from student.reading import token_for
from student.session import identify
from tests.student.conftest import Here
from tests.support.server.campaigns import label, make_predictions, make_spec, start
from tests.support.student_samples import (
    ScriptedServer,
    campaign_end,
    connected,
    round_end,
    serving,
)

PUBLIC: Inputs = Images(np.arange(30 * 4, dtype=np.uint8).reshape(30, 2, 2, 1).copy())
SPEC = make_spec(
    aggregator="interactive-gnmax",
    rounds=2,
    queries=30,
    epsilon=20.0,
    public_set=content_hash(PUBLIC).hex(),
    schema=PUBLIC.schema(),
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with start(tmp_path / "ledger.db", SPEC) as made:
        label(made)
        made.end_round(wants_predictions=True)
        yield made


def connect(port: int, token: str | None) -> StudentClient:
    return StudentClient(f"127.0.0.1:{port}", identify(PUBLIC), max_wait=20.0, token=token)


def test_with_the_token_predictions_are_taken_and_the_end_is_waited_for(ledger: Ledger) -> None:
    service = StudentService(ledger)
    service.start()
    guess = make_predictions(30)
    try:
        with connect(service.port, service.token) as client:
            assert client.submit(2, guess, 0.5) is False
            assert client.submit(2, guess) is True
            label(ledger)
            ledger.end_round(wants_predictions=False)
            ledger.finish()
            assert list(client.events())
            client.privacy_statement()
        assert service.wait_until_delivered(threading.Event(), 60.0)
    finally:
        service.stop(0.0)


@pytest.mark.parametrize("token", [None, "A" * 43])
def test_without_it_or_with_another_they_are_not(ledger: Ledger, token: str | None) -> None:
    service = StudentService(ledger)
    service.start()
    try:
        with connect(service.port, token) as client:
            with pytest.raises(RefusedError, match=r"student\.token.*--token-file"):
                client.submit(2, make_predictions(30))
            assert ledger.state().predictions == {}
            if token is not None:  # found before anything is trained
                with pytest.raises(RefusedError, match="--token-file"):
                    next(client.events())
    finally:
        service.stop(0.0)


def test_whoever_has_the_port_does_not_get_the_token() -> None:
    heard: list[str] = []
    server = ScriptedServer(PUBLIC, ("a", "b"), [round_end(1, 1, wants=True), campaign_end(2, 0)])
    plain, statement = server.SubmitPredictions, server.GetPrivacyStatement

    def listen(context: grpc.ServicerContext) -> None:
        heard.extend(f"{key} {value!s}" for key, value in context.invocation_metadata())

    def submitted(request: object, context: grpc.ServicerContext) -> object:
        listen(context)
        return plain(request, context)  # type: ignore[arg-type]

    def asked(request: object, context: grpc.ServicerContext) -> object:
        listen(context)
        return statement(request, context)  # type: ignore[arg-type]

    server.SubmitPredictions = submitted  # type: ignore[method-assign,assignment]
    server.GetPrivacyStatement = asked  # type: ignore[method-assign,assignment]
    token = new_token()
    with connected(server, PUBLIC, token=token) as client:
        client.submit(2, np.full((30, 2), 0.5, dtype=np.float32))
        client.privacy_statement()
    assert sum(PROOF_KEY in line for line in heard) == 2
    assert not any(token in line for line in heard)


def test_it_is_looked_for_in_this_users_state_and_for_this_machine_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert token_for(None, "127.0.0.1") is None
    made = kept_token(default_home("server") / STUDENT_TOKEN)
    assert (default_home("server") / STUDENT_TOKEN).stat().st_mode & 0o777 == 0o600
    assert kept_token(default_home("server") / STUDENT_TOKEN) == made
    for here in ("127.0.0.1", "localhost", "[::1]", "127.1.2.3"):
        assert token_for(None, here) == made
    for elsewhere in ("pate.example.org", "192.0.2.1", "127.0.0.1.example.org", ""):
        assert token_for(None, elsewhere) is None
    other = kept_token(tmp_path / "copy")
    assert token_for(tmp_path / "copy", "pate.example.org") == other != made
    for bad in ("none", ".", "short"):
        (tmp_path / "short").write_text("abc\n")
        with pytest.raises(StateError, match=r"cannot be read|is damaged"):
            read_token(tmp_path / bad)


def test_an_interactive_campaign_without_a_token_ends_the_command_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Here
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    np.savez(tmp_path / "public.npz", images=PUBLIC.pixels)  # type: ignore[union-attr]
    server = ScriptedServer(PUBLIC, ("a", "b"), [round_end(1, 1, wants=True), campaign_end(2, 0)])
    server.about.aggregator = "interactive-gnmax"
    command = ("train", "--public", tmp_path / "public.npz", "--out", tmp_path / "out")
    with serving(server) as port:
        code, _, shown = here(*command, "--server", f"127.0.0.1:{port}")
        assert code == 2
        assert "--token-file" in shown
        wrong = (*command, "--server", f"127.0.0.1:{port}", "--token-file", tmp_path / "none")
        assert here(*wrong)[0] == 12
    assert not server.submitted
    assert not server.asked_after
    code, _, shown = here(*command, "--labels", tmp_path / "x", "--token-file", tmp_path / "none")
    assert code == 2
    assert "--labels needs none" in shown
