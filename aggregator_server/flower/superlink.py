"""The SuperLink: Flower's server, as a child process that only this machine can reach.

Its state is in memory: with plain aggregation it has votes in the clear, which must not be written
to disk. So a SuperLink that dies loses its state, and :mod:`aggregator_server.flower.deployment`
repeats the requests, and registers the admitted nodes at the new one.
"""

from __future__ import annotations

import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, UnregisterNodeRequest

from aggregator_server.flower.internals import SUPERLINK_MAIN, ControlClient
from pate.errors import ProcessError
from pate.formats.enrolment import node_key
from pate.runtime.child import Child, free_port
from pate.runtime.home import new_secret
from protos.flower.runtime import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aggregator_server.identities import Identities, Member

_HOST: Final = "127.0.0.1"
_POLL_S: Final = 0.1
#: Most memory of a SuperLink, in bytes: stored replies
#: (:mod:`aggregator_server.flower.fleet.traffic`), the same for transfers, and the process itself.
MOST_MEMORY: Final = 3 * 2**30
#: How long a SuperLink may take to start on a busy machine.
START_DEADLINE_S: Final = 90.0
_GONE: Final = "unregistered"


class SuperLink:
    """A running SuperLink at a free loopback port."""

    def __init__(
        self,
        home: Path,  # its directory, for its log and its secret
        *,
        # the server's; with them it uses TLS and admits only registered node keys. None: clear
        # text, open to every node that can reach it
        identities: Identities | None = None,
        # polled while waiting; if True, the start is aborted
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start the process and wait until it answers."""
        self._secret_file = home.resolve() / "superexec.secret"
        # authorises only this process to acquire the tasks of its runs
        self.secret = new_secret(self._secret_file)
        port = free_port(_HOST)
        self.address = f"{_HOST}:{port}"  # where it listens, ``host:port``
        # TLS context for this SuperLink; None: clear text
        self.trust = None if identities is None else trust_in(identities)
        doors = ["--insecure"]
        if identities is not None:
            doors = [
                *("--ssl-ca-certfile", str(identities.ca)),
                *("--ssl-certfile", str(identities.certificate)),
                *("--ssl-keyfile", str(identities.certificate_key)),
                "--enable-supernode-auth",
            ]
        self.child = Child(
            "superlink",
            SUPERLINK_MAIN,
            [
                *doors,
                *("--host", _HOST, "--port", str(port)),
                *("--isolation", "process"),
                *("--superexec-auth-secret-file", str(self._secret_file)),
                "--disable-runtime-dependency-installation",
            ],
            home=home,
        )
        try:
            self._wait_until_it_answers(cancelled)
        except BaseException:
            self.stop()
            raise

    def answers(self) -> bool:
        """Return whether it answers its health check now."""
        scheme = "http" if self.trust is None else "https"
        try:
            return httpx.get(
                f"{scheme}://{self.address}/health",
                timeout=5,
                trust_env=False,
                verify=self.trust or NOBODY,
            ).is_success
        except httpx.HTTPError:
            return False

    def memory(self) -> int | None:
        """Return its memory in bytes; None if the system does not report it."""
        try:
            pages = Path(f"/proc/{self.child.pid}/statm").read_text("ascii").split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError, AttributeError):
            return None

    def stop(self) -> None:
        """End it, reap it, and remove its secret."""
        self.child.stop()
        self._secret_file.unlink(missing_ok=True)

    def _wait_until_it_answers(self, cancelled: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while not self.answers():
            if self.child.ended(_POLL_S):
                raise self.child.failure()
            if cancelled():
                raise ProcessError("the start of the SuperLink was aborted")
            if time.monotonic() > deadline:
                raise ProcessError(
                    f"the SuperLink does not answer after {START_DEADLINE_S:.0f} s; "
                    f"its log is {self.child.log}:"
                ).followed_by(self.child.last_words())


def trust_in(identities: Identities) -> ssl.SSLContext:
    """Return a TLS context that trusts only the server of these identities."""
    return ssl.create_default_context(cafile=str(identities.ca))


# --- which nodes it admits: exactly those of the enrolled parties ------------------------------------


@dataclass(frozen=True)
class Changed:
    """The result of an update of a SuperLink's admissions."""

    keys: frozenset[bytes]  # the node keys (PEM) that it admits now
    names: Mapping[int, str]  # the enrolled party of each node id that it admits now
    # ids of nodes that are excluded from now on. Their names are omitted: anyone with access to the
    # SuperLink's interface for operators can choose them
    went: tuple[int, ...]


def let_in(address: str, trust: ssl.SSLContext | None, members: Mapping[str, Member]) -> Changed:
    """Make the SuperLink at ``address`` admit the nodes of ``members``, and no others.

    Its current nodes are read first, so the next call completes an interrupted one. Nodes are
    removed before others are added.
    """
    wanted = {pem(member.node): member.name for member in members.values()}
    with ControlClient(address, trust=trust) as control:
        known = _nodes(control)
        went = []
        for key, node in known.items():
            if key not in wanted:
                _shut_out(control, node)
                went.append(node)
        names = {}
        for key, name in wanted.items():
            if key in known:
                names[known[key]] = name
            else:
                request = RegisterNodeRequest(public_key=key, name=name)
                names[control.RegisterNode(request).node_id] = name
    return Changed(frozenset(wanted), names, tuple(went))


def _nodes(control: ControlClient) -> dict[bytes, int]:
    """Return the admitted nodes: id by public key."""
    return {
        node.public_key: node.node_id
        for node in control.ListNodes(ListNodesRequest()).nodes_info
        if node.status != _GONE
    }


def _shut_out(control: ControlClient, node: int) -> None:
    try:
        control.UnregisterNode(UnregisterNodeRequest(node_id=node))
    except httpx.HTTPStatusError:
        # For a node that never connected, an in-memory SuperLink fails after excluding it.
        if node in _nodes(control).values():
            raise


def pem(node: bytes) -> bytes:
    """Return a node key in Flower's encoding."""
    return node_key(node).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
