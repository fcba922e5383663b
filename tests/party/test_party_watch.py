"""How a party is watched: its metrics and health, and that no visitor can hurt it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from party.ledger.ledger import PartyLedger
from party.monitoring import MOST_CONNECTIONS, STATES, Standing, Status, render, watched
from pate.accounting.filters import Delta
from pate.errors import PortInUseError, UsageError
from pate.runtime.child import listen
from tests.support.party.offers import answer, gated, joining, queries, settled

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def numbers(text: str) -> dict[str, float]:
    """Samples by name and labels, as a scraper reads them."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in found
            found[key] = sample.value
    return found


@pytest.fixture
def ledger(tmp_path: Path) -> PartyLedger:
    return PartyLedger(tmp_path / "ledger.db")


@pytest.fixture
def status(ledger: PartyLedger) -> Status:
    made = Status()
    made.bound_by(
        ledger, delta=Delta(1e-5), largest_epsilon=3.0, ends=NOW + timedelta(days=10, hours=12)
    )
    return made


@pytest.fixture
def address(status: Status, tmp_path: Path) -> Iterator[str]:
    with watched(status, tmp_path, "127.0.0.1", 0) as found:
        yield found


def get(url: str) -> httpx.Response:
    return httpx.get(url, timeout=30, trust_env=False)


def test_a_party_that_has_just_started_tells_what_it_can(tmp_path: Path) -> None:
    found = numbers(render(Standing(), tmp_path).decode())
    assert found["pate_party_state{pate_party_state=reading}"] == 1
    assert found["pate_party_teachers"] == 0
    assert found["pate_disk_free_bytes"] > 0
    assert found["process_resident_memory_bytes"] > 0
    assert not [name for name in found if "epsilon" in name or "queries" in name]
    assert "pate_party_certificate_expiry_timestamp_seconds" not in found


def test_what_it_tells_of_its_ledger(ledger: PartyLedger, status: Status, tmp_path: Path) -> None:
    offer = settled()
    answer(ledger, offer, queries(0, 3))
    answer(ledger, offer, queries(2, 2))
    ledger.join(joining(campaign="d2" * 16))
    ledger.join(joining(campaign="e3" * 16))
    ledger.end(offer.campaign, queries_asked=4, labels_released=1, epsilon=2.0, delta=1e-5)
    status.trained(3, 50)
    status.is_now("away")
    found = numbers(render(status.standing, tmp_path).decode())
    assert found["pate_party_campaigns_total"] == 3
    assert found["pate_party_campaigns_open"] == 2
    assert found["pate_party_queries_total"] == 4
    assert found["pate_party_batches_total"] == 2
    assert found["pate_party_teachers"] == 50
    assert found["pate_party_teachers_trained"] == 3
    assert found["pate_party_epsilon"] == ledger.cumulative_epsilon(Delta(1e-5)).epsilon > 0
    assert found["pate_party_epsilon_limit"] == 3
    assert found["pate_party_delta"] == 1e-5
    assert (
        found["pate_party_certificate_expiry_timestamp_seconds"]
        == (NOW + timedelta(days=10, hours=12)).timestamp()
    )
    states = {state: found[f"pate_party_state{{pate_party_state={state}}}"] for state in STATES}
    assert [state for state, holds in states.items() if holds] == ["away"]


def test_a_figure_beyond_any_number_is_told(
    ledger: PartyLedger, status: Status, tmp_path: Path
) -> None:
    answer(ledger, gated(delta=1e-4), queries(0, 2))
    found = numbers(render(status.standing, tmp_path).decode())
    assert found["pate_party_epsilon"] == float("inf")


def test_metrics_and_health_over_http(status: Status, address: str) -> None:
    status.is_now("connecting")
    metrics = get(f"{address}/metrics?from=anywhere")
    assert metrics.status_code == 200
    assert metrics.headers["content-type"].startswith("text/plain; version=")
    assert "pate_party_epsilon_limit" in numbers(metrics.text)
    assert get(f"{address}/healthz").json() == {"state": "connecting"}
    assert get(f"{address}/readyz").status_code == 503
    status.is_now("connected")
    ready = get(f"{address}/readyz")
    assert (ready.status_code, ready.json()) == (200, {"state": "connected"})
    assert get(f"{address}/").status_code == 404
    assert get(f"{address}/../ledger.db").status_code == 404
    head = httpx.head(f"{address}/metrics", timeout=30, trust_env=False)
    assert (head.status_code, head.content) == (200, b"")
    assert httpx.post(f"{address}/metrics", timeout=30, trust_env=False).status_code == 405
    assert "server" not in ready.headers


def test_a_ledger_that_cannot_be_read_is_an_error_of_the_visit_alone(
    ledger: PartyLedger, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("the disk has gone")

    monkeypatch.setattr(ledger, "campaigns", broken)
    failed = get(f"{address}/metrics")
    assert failed.status_code == 500
    assert "disk" not in failed.text
    assert get(f"{address}/healthz").status_code == 200
    monkeypatch.undo()
    assert get(f"{address}/metrics").status_code == 200


def test_a_probe_is_answered_while_others_hold_all_the_room(address: str) -> None:
    """A supervisor that gets no answer would start the party anew."""
    port, held = httpx.URL(address).port, []
    assert port is not None
    try:
        for _ in range(5 * MOST_CONNECTIONS):
            held.append(socket.create_connection(("127.0.0.1", port), timeout=30))
            if len(held) % MOST_CONNECTIONS == 0:
                assert get(f"{address}/healthz").status_code == 200
    finally:
        for each in held:
            each.close()


def test_who_asks_and_leaves_leaves_no_work_behind(
    address: str, ledger: PartyLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics are made one at a time, and probes do not wait for them."""
    port, goes_on = httpx.URL(address).port, threading.Event()
    made: list[None] = []
    assert port is not None
    campaigns = ledger.campaigns

    def slow() -> object:
        made.append(None)
        goes_on.wait(30)
        return campaigns()

    monkeypatch.setattr(ledger, "campaigns", slow)
    try:
        for _ in range(10 * MOST_CONNECTIONS):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as visitor:
                visitor.sendall(b"GET /metrics HTTP/1.1\r\nHost: it\r\n\r\n")
        assert get(f"{address}/healthz").status_code == 200
    finally:
        goes_on.set()
    assert get(f"{address}/metrics").status_code == 200
    assert len(made) <= 2


def test_a_port_that_is_taken_is_named(status: Status, tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as other:
        taken = other.getsockname()[1]
        with (
            pytest.raises(PortInUseError, match="--metrics-port"),
            watched(status, tmp_path, "127.0.0.1", taken),
        ):
            pass
    with pytest.raises(UsageError), watched(status, tmp_path, "203.0.113.7", 0):
        pass


def test_the_door_is_closed_at_the_end(status: Status, tmp_path: Path) -> None:
    with watched(status, tmp_path, "127.0.0.1", 0) as address:
        assert get(f"{address}/healthz").status_code == 200
    with pytest.raises(httpx.ConnectError):
        get(f"{address}/healthz")


def test_it_answers_on_ipv6(status: Status, tmp_path: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("needs IPv6")
    try:
        listen("::1", 0).close()
    except UsageError:
        pytest.skip("needs IPv6")
    with watched(status, tmp_path, "::1", 0) as address:
        assert get(f"{address}/healthz").status_code == 200
