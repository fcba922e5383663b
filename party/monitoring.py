"""Monitoring of a running party: its state, and what ``/metrics``, ``/healthz`` and ``/readyz`` say of it.

The state is written by the run and read here. None of it is derived from a record, neither their number nor
their classes: metrics are scraped, stored and copied by systems that are not protected like patients'
data. ``docs/operator.md`` says for each why it may be published.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from pate.errors import PortInUseError
from pate.runtime.child import joined, listen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import datetime

    from prometheus_client import Metric

    from party.ledger.ledger import PartyLedger
    from pate.accounting.filters import Delta
    from pate.listening.http_server import App

State = Literal["reading", "training", "connecting", "connected", "away", "ended"]
#: States of a party; ``away``: it is connected, but the server does not answer at present.
STATES: Final[tuple[State, ...]] = get_args(State)


@dataclass(frozen=True)
class Standing:
    """A party's run at one moment."""

    state: State = "reading"
    teachers: int = 0  # number of teachers; 0 if its records vote
    trained: int = 0  # number of teachers that are ready
    ledger: PartyLedger | None = None
    delta: Delta | None = None  # of its own accountant, with its parts
    largest_epsilon: float | None = None  # bound of the accountant; None: no bound
    # expiry of the server's authority; None if the party is not enrolled
    ends: datetime | None = None


class Status:
    """The current standing; thread-safe."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._standing = Standing()

    @property
    def standing(self) -> Standing:
        """The current standing of the run."""
        return self._standing

    def is_now(self, state: State) -> None:
        """Set the state."""
        with self._turn:
            self._standing = replace(self._standing, state=state)

    def trained(self, done: int, total: int) -> None:
        """Set the number of ready teachers."""
        with self._turn:
            self._standing = replace(self._standing, trained=done, teachers=total)

    def bound_by(
        self,
        ledger: PartyLedger,
        *,
        delta: Delta,
        largest_epsilon: float | None,
        ends: datetime | None,
    ) -> None:
        """Set the party's ledger, its policy's bound, and the expiry of its enrolment."""
        with self._turn:
            self._standing = replace(
                self._standing,
                ledger=ledger,
                delta=delta,
                largest_epsilon=largest_epsilon,
                ends=ends,
            )


# --- over HTTP -----------------------------------------------------------------------------------

_log = logging.getLogger(__name__)
#: Connections at a time; the oldest is closed for a new one, so a probe always gets its answer.
MOST_CONNECTIONS: Final = 8
_MAX_HEAD: Final = 16 * 1024
_JSON: Final = "application/json"


@contextmanager
def watched(status: Status, home: Path, host: str, port: int) -> Iterator[str]:
    """Serve on ``host`` and ``port`` (0: any free one) while the block runs; yields the address.

    ``host``: address of this machine; anyone who can reach it may read everything here.
    """
    # Imported here, so that the first scrape does not import it while the party works.
    import pate.runtime.metrics  # noqa: F401
    from pate.listening.bounded_listener import Room
    from pate.listening.http_server import HttpServer

    try:
        listener = listen(host, port)
    except PortInUseError as error:
        raise PortInUseError(
            f"port {port} of {host} is taken; choose another with --metrics-port"
        ) from error
    server = HttpServer(
        listener,
        name="monitoring",
        max_head=_MAX_HEAD,
        certificate=None,
        # No failure here stops the party.
        on_fault=lambda error: _log.warning("no metrics any more: %s", error),
    )
    room = Room(MOST_CONNECTIONS, MOST_CONNECTIONS)
    server.start(room, lambda _listener: _app(status, home))
    try:
        yield f"http://{joined(host, server.port)}"
    finally:
        server.stop()


def _app(status: Status, home: Path) -> App:
    """Return the application, read-only: each answer closes its connection."""
    under_way: asyncio.Future[bytes] | None = None

    async def metrics() -> bytes:
        # One at a time, in a thread, for all that ask meanwhile: whoever asks and leaves, over and over,
        # leaves no work behind.
        nonlocal under_way
        if under_way is None or under_way.done():
            under_way = asyncio.ensure_future(asyncio.to_thread(render, status.standing, home))
        return await asyncio.shield(under_way)

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        code, kind, body = HTTPStatus.METHOD_NOT_ALLOWED, _JSON, b"{}\n"
        if scope["method"] in ("GET", "HEAD"):
            try:
                code, kind, body = await _answer(scope["path"], status.standing, metrics)
            except Exception as error:  # noqa: BLE001 - whatever it is, the party must not be hurt
                _log.warning("cannot render metrics: %s: %s", type(error).__name__, error)
                code = HTTPStatus.INTERNAL_SERVER_ERROR
        heads = {"content-type": kind, "content-length": str(len(body))}
        heads |= {"cache-control": "no-store", "connection": "close"}
        headers = [(name.encode(), value.encode()) for name, value in heads.items()]
        await send({"type": "http.response.start", "status": int(code), "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


async def _answer(
    path: str, standing: Standing, metrics: Callable[[], Awaitable[bytes]]
) -> tuple[HTTPStatus, str, bytes]:
    if path == "/metrics":
        from pate.runtime.metrics import CONTENT_TYPE

        return HTTPStatus.OK, CONTENT_TYPE, await metrics()
    # A probe does not wait for the ledger.
    if path not in ("/healthz", "/readyz"):
        return HTTPStatus.NOT_FOUND, _JSON, b"{}\n"
    ready = path == "/healthz" or standing.state == "connected"
    body = json.dumps({"state": standing.state}).encode() + b"\n"
    return HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, _JSON, body


# --- metrics, in Prometheus' text form -----------------------------------------------------------

#: Linux has one file here for each NVIDIA GPU that a process may use.
_DEVICES: Final = Path("/dev")


def render(standing: Standing, home: Path) -> bytes:
    """Return the metrics of a party."""
    from pate.runtime.metrics import exposition

    return exposition("pate-party", home, [*_of_run(standing), *_of_ledger(standing)])


def _of_run(standing: Standing) -> list[Metric]:
    from pate.runtime.metrics import gauge, moment, state_set

    return [
        state_set("pate_party_state", "What the party does", STATES, standing.state),
        gauge("pate_party_teachers", "Teachers the party is to have", standing.teachers),
        gauge("pate_party_teachers_trained", "Teachers that are ready", standing.trained),
        gauge("pate_party_gpus", "NVIDIA GPUs that this machine offers", _gpus()),
        moment(
            "pate_party_certificate_expiry_timestamp_seconds",
            "When the server's authority expires, as far as the party knows",
            standing.ends,
        ),
    ]


def _of_ledger(standing: Standing) -> list[Metric]:
    from pate.runtime.metrics import counter, gauge

    if standing.ledger is None or standing.delta is None:
        return []
    campaigns = standing.ledger.campaigns()
    figure = standing.ledger.cumulative_epsilon(standing.delta)
    return [
        counter("pate_party_campaigns_total", "Campaigns joined", len(campaigns)),
        gauge(
            "pate_party_campaigns_open",
            "Campaigns joined whose end is not known",
            sum(each.ending is None for each in campaigns),
        ),
        counter(
            "pate_party_queries_total",
            "Public queries voted on, each once for every campaign",
            sum(each.queries for each in campaigns),
        ),
        counter(
            "pate_party_batches_total",
            "Batches of queries voted on",
            sum(len(each.batches) for each in campaigns),
        ),
        gauge(
            "pate_party_epsilon",
            "What all answers and synthetic rows come to by the party's own accountant, whatever its "
            "records are; unit, neighbours and observer: pate-party ledger",
            figure.epsilon,
        ),
        gauge(
            "pate_party_epsilon_limit",
            "Where the party's own accountant stops; absent: nowhere",
            standing.largest_epsilon,
        ),
        gauge("pate_party_delta", "Delta of both", standing.delta.whole),
    ]


def _gpus() -> int:
    return sum(path.name[len("nvidia") :].isdecimal() for path in _DEVICES.glob("nvidia*"))
