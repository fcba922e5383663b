"""Presence and open requests as reported by the exchange; the student's stated accuracy."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import grpc
import pytest

from aggregator_server.exchange.aggregation import PlainAggregation
from aggregator_server.exchange.attendance import Keyring
from aggregator_server.exchange.carrier import Distribution
from aggregator_server.exchange.exchange import Exchange, Quorum
from aggregator_server.exchange.presence import Presence
from aggregator_server.student_service import StudentService
from benchmarks.methods.local_grid import FIRST_NODE, LocalGrid
from party.flower.connection import make_client_app
from protos.pate.v1 import student_pb2, student_pb2_grpc
from protos.public_set import pack_public_set
from protos.student_proof import PROOF_KEY, predictions_proof
from tests.aggregator_server.exchange.test_exchange import (
    BATCH,
    PUBLIC,
    Constant,
    House,
    Quick,
    fix,
)
from tests.party.voting.test_own_data import PUBLIC as TABLE
from tests.party.voting.test_own_data import Site, rows
from tests.support.campaign_messages import SERVER_KEY, campaign_message
from tests.support.processes.programs import until
from tests.support.server.campaigns import label, make_predictions, start
from tests.support.server.lines import Lines
from tests.support.server.statuses import INTERACTIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pate.runtime.screen import Screen

NO_HURRY = 60.0


def test_it_tells_who_came_what_is_asked_and_who_went(tmp_path: Path) -> None:
    house = House(tmp_path, [Constant(5, 0), Constant(5, 1)])
    told: list[Presence] = []
    body = pack_public_set(PUBLIC)
    keys = Keyring(SERVER_KEY)
    try:
        exchange = Exchange(
            house.link,
            campaign_message(PUBLIC).offer(),
            keys,
            Distribution(lambda: [body]),
            cast("Screen", house.lines),
            show=told.append,
        )
        roster = exchange.gather(2)
        assert told[0].here <= frozenset({"p0", "p1"})
        assert told[-1] == Presence(frozenset({"p0", "p1"}))
        fix(exchange, roster, ("x", "y"))
        before = len(told)
        exchange.collect(PlainAggregation(exchange.campaign, roster, BATCH, 2), Quorum(2, 60.0))
        asked = told[before:-1]
        both = frozenset({"p0", "p1"})
        assert {each.step for each in asked} == {"votes"}
        assert all(each.awaited == both for each in asked)
        assert asked[-1].answered == both
        assert asked[-1].doing("p0") == "has sent votes"
        assert told[-1] == Presence(both), "after the batch nothing is asked"
        house.grid.leave(FIRST_NODE)
        exchange.look()
        assert len(told[-1].here) == 1
        house.grid.come_back(FIRST_NODE)

        def is_back() -> bool:
            exchange.look()
            return told[-1].here == both

        until(is_back, "it is back")
    finally:
        house.grid.close()


def test_words_for_what_a_party_does() -> None:
    here = frozenset({"a", "b", "c"})
    idle = Presence(here)
    assert (idle.doing("a"), idle.doing("z")) == ("ready", "not connected")
    assert not any(map(idle.troubled, "az"))
    busy = Presence(here, "votes", frozenset({"a", "b", "z"}), frozenset({"a"}))
    assert busy.doing("b") == "asked for votes"
    assert busy.doing("c") == "not in this sum"
    assert busy.doing("z") == "away; votes awaited"
    assert [name for name in "abcz" if busy.troubled(name)] == ["z"]
    early = Presence(frozenset("a"), refused=frozenset("c"), preparing=frozenset("b"))
    assert [early.doing(name) for name in "abc"] == [
        "ready",
        "here, preparing",
        "refused; see the log",
    ]
    assert [name for name in "abc" if early.troubled(name)] == ["c"]


def test_a_party_that_prepares_is_shown_before_it_has_read_a_record(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    party = Site(tmp_path / "a", rows())
    goes_on = threading.Event()

    @contextlib.contextmanager
    def training() -> Iterator[Callable[[int, int], None]]:
        assert goes_on.wait(60)
        yield lambda *_: None

    assert party.own._training is not None
    party.own._training = replace(party.own._training, shown=training)
    grid = LocalGrid([make_client_app(party.voter.handle)])
    lines = Lines()
    told: list[Presence] = []
    exchange = Exchange(
        Quick(grid), campaign_message(TABLE, classes=("a", "b", "c")).offer(), Keyring(SERVER_KEY),
        Distribution(list), cast("Screen", lines), show=told.append,
    )  # fmt: skip

    def looks_until(holds: Callable[[Presence], bool]) -> None:
        def is_so() -> bool:
            exchange.look()
            return holds(told[-1])

        until(is_so, "the party is shown otherwise")

    try:
        looks_until(lambda now: bool(now.preparing))
        assert told[-1] == Presence(preparing=frozenset("a"))
        assert (
            exchange._waiting_line([], 2, None) == "waiting for parties: 1 of 2 here (preparing: a)"
        )
        goes_on.set()
        looks_until(lambda now: now == Presence(frozenset("a")))
        assert lines.said == ["a is here, preparing", "a joined: 3 teachers"]
        grid.leave(FIRST_NODE)
        looks_until(lambda now: now == Presence())
    finally:
        goes_on.set()
        grid.close()


def test_the_students_own_accuracy_is_checked_and_kept_with_its_predictions(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.db", INTERACTIVE) as ledger:
        service = StudentService(ledger)
        service.start()
        try:
            label(ledger)
            ledger.end_round(wants_predictions=True)
            with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
                stub = student_pb2_grpc.StudentStub(channel)  # type: ignore[no-untyped-call]

                def submit(accuracy: float | None) -> bool:
                    message = student_pb2.Predictions(
                        campaign=bytes.fromhex(INTERACTIVE.id),
                        round=2,
                        rows=INTERACTIVE.queries,
                        classes=3,
                        probabilities=make_predictions(INTERACTIVE.queries).tobytes(),
                        accuracy=accuracy,
                    )
                    proof = ((PROOF_KEY, predictions_proof(service.token, message)),)
                    receipt = stub.SubmitPredictions(message, timeout=NO_HURRY, metadata=proof)
                    return bool(receipt.already_had)

                for wrong in (-0.1, 1.1, float("nan"), float("inf")):
                    with pytest.raises(grpc.RpcError) as refused:
                        submit(wrong)
                    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
                assert (service.accuracies, ledger.state().predictions) == ({}, {})
                assert submit(0.75) is False
                assert submit(0.99) is True  # the first ones count
                assert service.accuracies == {2: 0.75}
                assert service.followers == 0
                stream = stub.StreamLabels(student_pb2.StreamLabelsRequest(follow=True))
                next(stream)
                assert service.followers == 1
                stream.cancel()
                until(lambda: service.followers == 0, "the student has left")
        finally:
            service.stop(0.0)
