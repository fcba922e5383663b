"""The party's app answers with bytes, and of a failure reports only that there was one."""

from __future__ import annotations

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from aggregator_server.flower.internals import query
from party.flower.connection import make_client_app
from pate.errors import PateError
from protos.flower.carriage import pack, unpack_message

CONTEXT = Context(run_id=1, node_id=5, node_config={}, state=RecordDict(), run_config={})


def ask(content: RecordDict) -> Message:
    def handle(body: bytes) -> bytes:
        if body == b"bad":
            raise ValueError("secret 42")
        return body[::-1]

    return make_client_app(handle)(message=query(1, 5, content, 60.0), context=CONTEXT)


def test_the_body_goes_to_the_handler_and_its_answer_back() -> None:
    assert unpack_message(ask(pack(b"abc"))) == b"cba"


def test_an_exception_is_logged_here_and_no_more_than_that_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reply = ask(pack(b"bad"))
    assert reply.error.reason == PateError.public
    assert "secret 42" in caplog.text


def test_a_message_that_is_not_ours_is_answered_alike() -> None:
    assert ask(RecordDict({"x": ConfigRecord()})).error.reason == PateError.public
