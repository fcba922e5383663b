"""Flower's Runtime API for a long-lived process: acquire tasks, send heartbeats, finish them.

Flower starts a new process for each message. Ours is long-lived, with its teachers loaded, and acquires the
tasks itself. Both roles do so, from a SuperLink or a SuperNode that they started on loopback; their common
part is here. This module, ``flower.internals`` of each role and the server's ``flower.grid`` import internals
of Flower that may change.

Flower's own clients and retry helpers are not used as they are: on a refused request they send SIGINT
to the whole process, and they send even loopback traffic through a proxy set in the environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import ssl
from typing import TYPE_CHECKING, Final, Self

import httpx
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClient
from flwr.supercore.runtime import RuntimeHttpClient

from pate.foreign import zip_file
from protos.bounds import MAX_MESSAGE

__all__ = [
    "NOBODY",
    "DirectClient",
    "ErrorCode",
    "Heartbeat",
    "RuntimeClient",
    "SubStatus",
    "TaskType",
    "acquire",
    "carries_code",
    "fab_hash",
    "finish",
    "pieces_of",
]

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr.proto.message_pb2 import ObjectTree
    from flwr.proto.task_pb2 import Task
    from flwr.supercore.protobuf.client import ProtobufClientInterceptor

#: Timeout of a request on loopback; an upload of 5 MB on a busy machine takes far less.
TIMEOUT_S: Final = 120.0
#: Smallest piece that Flower cuts a full array into, in bytes; bounds the number of pieces.
_PIECE_BYTES: Final = 2**20
_MAX_OBJECTS: Final = MAX_MESSAGE // _PIECE_BYTES + 16
#: The only files of a Flower app bundle (FAB) that carries no code.
_CODELESS: Final = frozenset({"pyproject.toml", ".info/CONTENT"})
_ACQUIRE: Final = frozenset({"/flwr.proto.Runtime/AcquireTask"})


#: Trusts no certificate: for clear-text connections. Reading the system's certificates takes longer
#: than a message on loopback, and each client would repeat it.
NOBODY: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class DirectClient(ProtobufClient):
    """A Flower client with a direct connection: no proxy, no retries, no signals."""

    def __init__(
        self,
        address: str,  # ``host:port``, on loopback
        *interceptors: ProtobufClientInterceptor,
        trust: ssl.SSLContext | None = None,  # for TLS; None: clear text
    ) -> None:
        verify = NOBODY if trust is None else trust
        url = f"{'http' if trust is None else 'https'}://{address}"
        super().__init__(url, interceptors=interceptors, verify=verify)
        self._client.close()
        self._client = httpx.Client(
            verify=verify,
            timeout=TIMEOUT_S,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
        )


class RuntimeClient(DirectClient, RuntimeHttpClient):
    """A direct client of the Runtime API."""

    @classmethod
    def with_secret(cls, address: str, secret: bytes, trust: ssl.SSLContext | None = None) -> Self:
        """Return a client that may acquire tasks."""
        acquires = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=_ACQUIRE)
        return cls(address, acquires, trust=trust)

    @classmethod
    def of_task(cls, address: str, token: str, trust: ssl.SSLContext | None = None) -> Self:
        """Return a client authorised for one acquired task."""
        return cls(address, RuntimeTokenHttpInterceptor(token), trust=trust)


def acquire(door: RuntimeClient, kinds: Sequence[TaskType]) -> tuple[Task, str] | None:
    """Take the oldest waiting task of ``kinds`` and its token, or None if there is none."""
    response = door.AcquireTask(AcquireTaskRequest(supported_task_types=list(kinds)))
    if not (response.HasField("task") and response.token):
        return None
    return response.task, response.token


class Heartbeat:
    """Sends Flower heartbeats of a task, from a thread, until stopped."""

    def __init__(self, client: RuntimeClient) -> None:
        def beat() -> bool:
            # A failed heartbeat is repeated; the task's owner handles its meaning.
            with contextlib.suppress(httpx.HTTPError):
                return client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success
            return False

        self._sender = HeartbeatSender(beat)
        self._sender.start()

    def stop(self) -> None:
        """Stop, and wait for the thread."""
        if self._sender.is_running:
            self._sender.stop()


def finish(client: RuntimeClient, sub_status: str, details: str = "") -> None:
    """Finish a task. An unreachable Flower is ignored."""
    with contextlib.suppress(httpx.HTTPError):
        client.PushTaskOutput(PushTaskOutputRequest(sub_status=sub_status, details=details))


def carries_code(fab: bytes) -> bool:
    """Return whether a Flower app bundle contains anything but its own description.

    Nothing is unpacked: only the names in the archive are read. Anything but an archive counts as code.
    """
    try:
        with zip_file(io.BytesIO(fab)) as archive:
            return not set(archive.namelist()) <= _CODELESS
    except (ValueError, OSError):
        return True


def fab_hash(fab: bytes) -> str:
    """Return the name under which Flower stores a bundle."""
    return hashlib.sha256(fab).hexdigest()


def pieces_of(tree: ObjectTree) -> list[str]:
    """Return the ids of the objects that a message is cut into, before any of them is fetched."""
    objects: list[str] = []
    for node in iterate_object_tree(tree):
        objects.append(node.object_id)
        if len(objects) > _MAX_OBJECTS:
            raise ValueError(f"a message of more than {_MAX_OBJECTS} pieces")
    return objects
