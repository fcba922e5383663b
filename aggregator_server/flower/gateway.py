"""The public gateway of the SuperLink: forwards only what parties need.

A SuperLink serves three APIs on one port. Two of them, for operators and for the processes of a
run, have no authentication: any client could start runs and read every reply. So the SuperLink
listens on loopback, and this gateway exposes only the twelve routes of the API for parties, and the
health check (:mod:`aggregator_server.flower.fleet.filter`), plus one route of our own, to which
invited parties send their keys while a code is open. Connections, their duration and heads are
bounded (:mod:`pate.listening`).
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from aggregator_server.flower.fleet.filter import EnrolmentService, Filter
from aggregator_server.flower.node_sessions import Sessions
from pate.errors import UsageError
from pate.listening.bounded_listener import room_for_connections
from pate.listening.http_server import HttpServer
from pate.runtime.child import LOOPBACK, listen

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pate.listening.bounded_listener import BoundedListener

#: Largest head of one request (its line and headers), in bytes; Flower's stay below 2 KiB.
MAX_HEAD: Final = 32 * 2**10


class Gateway(Filter):
    """The filter on a public port, served by a thread of this process."""

    def __init__(
        self,
        host: str,
        port: int,  # port to listen on; 0 takes any free one
        *,
        # certificate chain and its key (PEM), for TLS; needed unless ``host`` is loopback
        certificate: tuple[Path, Path] | None = None,
        trust: ssl.SSLContext | None = None,  # TLS context for the SuperLink; None: clear text
        # accepts answers of invited parties; None: no enrolment
        enrolment: EnrolmentService | None = None,
        # what it tells, it tells from the gateway's thread; None: nobody
        sessions: Sessions | None = None,
    ) -> None:
        """Bind the port. Nothing is served before :meth:`start`."""
        if certificate is None and host not in LOOPBACK:
            raise UsageError(
                f"{host} is reachable from outside this machine, and without TLS anyone on the "
                "network path can read the votes: run `pate-server init`, or listen on "
                "127.0.0.1"
            )
        if certificate is not None:
            _check_certificate(*certificate)
        sessions = sessions or Sessions()
        self.pulls = sessions.pulls
        super().__init__(sessions, trust=trust, enrolment=enrolment)
        self._http = HttpServer(
            listen(host, port), name="gateway", max_head=MAX_HEAD, certificate=certificate
        )
        self.port = self._http.port

    def point_at(self, upstream: str | None, run: int | None = None) -> None:
        """Forward requests to ``upstream`` (``host:port``) from now on; None: answer 503."""
        super().point_at(upstream, run)
        self.pulls.release_all()

    def let_in(self, keys: Iterable[bytes]) -> None:
        """Admit from now on only these node keys (PEM)."""
        self.keys = frozenset(keys)

    def keep_in(self, keys: Iterable[bytes]) -> None:
        """Stop admitting node keys (PEM) that are not among these.

        Before the first :meth:`let_in` it has no effect: nothing is forwarded yet.
        """
        if self.keys is not None:
            self.keys &= frozenset(keys)

    def start(self) -> None:
        """Start serving; returns when it does."""
        self._http.start(room_for_connections(), self._app)

    def _app(self, listener: BoundedListener) -> Filter:
        self.keep = listener.keep
        return self

    def stop(self) -> None:
        """Stop serving and release the port. Harmless if it never started."""
        self.pulls.close()
        self._http.stop()


def _check_certificate(certificate: Path, key: Path) -> None:
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"{certificate} and {key} cannot be used as certificate and key: {error}"
        ) from error
