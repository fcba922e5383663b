"""The enrolment service: one reply for every fault, and the reason only for the operator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aggregator_server.identities import Identities
from aggregator_server.identities import enrolment_service as desk_module
from aggregator_server.identities.enrolment_service import ATTEMPTS, EnrolmentService
from tests.support.server.identities import DAY, NOW, Clock, answer


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    return Identities.create(tmp_path, (), 9092, NOW)


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def enrolment(identities: Identities, clock: Clock, events: list[str]) -> EnrolmentService:
    return EnrolmentService(identities, clock=clock, on_event=events.append)


def test_it_is_open_while_a_code_is_and_a_while_longer(
    identities: Identities, enrolment: EnrolmentService, clock: Clock
) -> None:
    assert not enrolment.open()
    bundle = identities.invite("a", now=NOW)
    assert enrolment.open()
    clock.now = NOW + 14 * DAY
    assert not enrolment.open()
    clock.now = NOW
    assert enrolment.answer(answer(bundle).to_json(), "192.0.2.1")
    # Its sender may have missed the confirmation, and repeat it.
    assert enrolment.open()
    clock.now = NOW + 14 * DAY
    assert not enrolment.open()
    clock.now = NOW
    (identities.directory / "parties.json").write_bytes(b"")
    assert not enrolment.open(), "a registry that cannot be read lets nobody in"


def test_who_was_taken_in_is_said(
    identities: Identities, enrolment: EnrolmentService, events: list[str]
) -> None:
    assert enrolment.answer(answer(identities.invite("a", now=NOW)).to_json(), "192.0.2.1")
    [line] = events
    assert line == f"a is enrolled; its identity key is {identities.enrolled()['a'].identity.hex()}"
    assert set(identities.enrolled()) == {"a"}


def test_every_fault_is_refused_alike_and_told_to_the_operator(
    identities: Identities, enrolment: EnrolmentService, clock: Clock, events: list[str]
) -> None:
    bundle = identities.invite("a", now=NOW)
    mine = answer(bundle)
    faults = {
        b"": "no file of enrolment",
        b"\xff" * 8192: "no file of enrolment",
        mine.to_json().replace(b'"a"', b'"b"'): "altered",
        answer(replace(bundle, code=bytes(32))).to_json(): "a wrong code",
        answer(replace(bundle, name="c")).to_json(): "no code is open for c",
    }
    for number, (body, reason) in enumerate(faults.items()):
        assert enrolment.answer(body, f"192.0.2.{number}") is False
        assert reason in events[-1]
        assert f"192.0.2.{number}" in events[-1]
    clock.now = NOW + 14 * DAY
    assert enrolment.answer(mine.to_json(), "192.0.2.1") is False
    assert "has expired" in events[-1]
    assert identities.enrolled() == {}


def test_an_answer_sent_again_is_acknowledged_and_changes_nothing(
    identities: Identities, enrolment: EnrolmentService, events: list[str]
) -> None:
    """The sender may have missed the confirmation."""
    body = answer(identities.invite("a", now=NOW)).to_json()
    for _ in range(ATTEMPTS + 2):
        assert enrolment.answer(body, "192.0.2.1")
    assert len(events) == 1
    identities.invite("a", now=NOW, again=True)
    before = identities.registry.stamp()
    assert enrolment.answer(body, "192.0.2.1"), "also while another code is open"
    assert identities.registry.stamp() == before
    identities.revoke("a", NOW)
    assert not enrolment.answer(body, "192.0.2.1")


def test_an_address_may_be_wrong_a_few_times_only(
    identities: Identities,
    enrolment: EnrolmentService,
    events: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = answer(identities.invite("a", now=NOW)).to_json()
    for _ in range(ATTEMPTS):
        assert not enrolment.answer(b"wrong", "192.0.2.1")
    assert len(events) == ATTEMPTS
    assert not enrolment.answer(body, "192.0.2.1"), "not even read any more"
    assert len(events) == ATTEMPTS
    assert enrolment.answer(body, "192.0.2.2"), "others are not punished for it"
    # After a while it may try again.
    monkeypatch.setattr(desk_module, "WITHIN_S", 0.0)
    assert not enrolment.answer(b"wrong", "192.0.2.1")
    assert len(events) == ATTEMPTS + 2


def test_addresses_are_not_remembered_without_end(
    enrolment: EnrolmentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "_ADDRESSES", 3)
    for number in range(10):
        enrolment.answer(b"wrong", str(number))
    assert list(enrolment._refused) == ["7", "8", "9"]
