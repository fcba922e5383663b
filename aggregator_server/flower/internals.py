"""Internals of Flower that the server uses and that may change: runs, nodes, messages.

Internals used by both roles are in :mod:`protos.flower.runtime`; the grid is in
:mod:`aggregator_server.flower.grid`. All functions here talk to a SuperLink on loopback that this
process started.
"""

from __future__ import annotations

import hashlib
import io
import time
import zipfile
from typing import TYPE_CHECKING, Final

import httpx
from flwr.app import Error, Message, Metadata, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID, TIMESTAMP_HEADER
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeResponse,
    DeactivateNodeRequest,
    PullMessagesRequest,
)
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import ApiErrorCode
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from google.protobuf.message import DecodeError

from pate.errors import ProcessError
from protos.flower.carriage import MESSAGE_TYPE
from protos.flower.runtime import DirectClient, fab_hash

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

#: The part of Flower that runs as the child process.
SUPERLINK_MAIN: Final = "flwr.superlink.cli.flower_superlink:flower_superlink"
#: The header with a node's public key: PEM, in base64.
KEY_HEADER: Final = FLEET_HTTP_PUBLIC_KEY_HEADER.encode()
#: Those with the time of a request, and the signature of it.
TIME_HEADER: Final = TIMESTAMP_HEADER.encode()
SIGNATURE_HEADER: Final = FLEET_HTTP_SIGNATURE_HEADER.encode()
#: Flower's error codes for a node without a key, and for an unknown key.
KEY_NEEDED: Final = int(ApiErrorCode.FLEET_SUPERNODE_REGISTRATION_DISABLED)
KEY_REFUSED: Final = int(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED)
#: The node id of Flower's own answers.
FLOWER_NODE: Final = SUPERLINK_NODE_ID

#: Errors of a grid whose link does not accept a request; a party cannot cause them.
LINK_ERRORS: Final = (httpx.HTTPError, ObjectPushError)

_PYPROJECT: Final = b"""\
[project]
name = "pate-campaign"
version = "1.0.0"

[tool.flwr.app]
publisher = "pate"

[tool.flwr.app.components]
serverapp = "codeless:none"
clientapp = "codeless:none"
"""


def pulling_node(body: bytes) -> int | None:
    """Return the node whose messages a request pulls; None for other requests."""
    try:
        return int(PullMessagesRequest.FromString(body).node.node_id) or None
    except DecodeError:
        return None


def activated_node(body: bytes) -> int | None:
    """Return the node that a SuperLink's answer activates; None for other answers."""
    try:
        return int(ActivateNodeResponse.FromString(body).node_id) or None
    except DecodeError:
        return None


def deactivation_of(node: int) -> bytes:
    """Return the request that deactivates a node."""
    return DeactivateNodeRequest(node_id=node).SerializeToString(deterministic=True)


class ControlClient(DirectClient, ControlHttpClient):
    """A direct client of the Control API."""


def make_fab(files: Mapping[str, bytes]) -> bytes:
    """Return a Flower app bundle of ``files``, the same bytes each time.

    Flower's own builder does this only for folders of code, by the rules of a ``.gitignore``.
    """
    manifest = "\n".join(
        f"{name},{hashlib.sha256(content).hexdigest()},{len(content) * 8}"
        for name, content in files.items()
    )
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w") as archive:
        for name, content in {**files, ".info/CONTENT": manifest.encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return bundle.getvalue()


def codeless_fab() -> bytes:
    """Return the bundle of our runs: a description without code."""
    return make_fab({"pyproject.toml": _PYPROJECT})


def start_run(address: str, fab: bytes, trust: ssl.SSLContext | None = None) -> int:
    """Start a run on the SuperLink at ``address`` and return its id.

    ``address``: ``host:port``; ``trust``: TLS context for the SuperLink; None: clear text.
    """
    bundle = Fab(fab_hash(fab), fab, {})
    with ControlClient(address, trust=trust) as control:
        response = control.StartRun(StartRunRequest(fab=fab_to_proto(bundle)))
    if not response.HasField("run_id"):
        raise ProcessError(f"the SuperLink at {address} did not accept the run")
    return int(response.run_id)


def query(grid_run: int, node: int, content: RecordDict, ttl: float) -> Message:
    """Return an instruction message of the server to one node.

    Flower's own constructor takes the sender from a process-wide global; this one does not, so that
    a server and parties can run in one process.
    """
    return make_message(metadata=_metadata(grid_run, node, ttl), content=content)


def error_reply(message_id: str, run: int, node: int, error: Error) -> Message:
    """Return Flower's message that the party did not answer ``message_id``."""
    return make_message(metadata=_metadata(run, node, 1.0, message_id), error=error)


def _metadata(run: int, node: int, ttl: float, reply_to: str = "") -> Metadata:
    return Metadata(
        run_id=run,
        message_id="",
        src_node_id=FLOWER_NODE,
        dst_node_id=node,
        reply_to_message_id=reply_to,
        group_id="",
        created_at=time.time(),
        ttl=ttl,
        message_type=MESSAGE_TYPE,
    )
