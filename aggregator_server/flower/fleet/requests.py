"""The twelve calls of the API for parties: their size limits and message types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    PullObjectRequest,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.run_pb2 import GetRunRequest
from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    from typing import Any

    from google.protobuf.message import Message

__all__ = [
    "CALLS",
    "MAX_BODY",
    "MAX_PIECE",
    "ActivateNodeResponse",
    "Call",
    "PullMessagesResponse",
    "PushMessagesResponse",
    "PushObjectResponse",
    "RefusedCallError",
]

#: Largest piece of a message, in bytes; Flower cuts what is larger into pieces of 5 MiB.
MAX_PIECE: Final = 6 * 2**20
#: Largest body of a request with a piece and its envelope.
MAX_BODY: Final = MAX_PIECE + 4096
#: Largest body of an announcement of a reply: its metadata and the names of its pieces.
_MAX_ANNOUNCEMENT: Final = 64 * 2**10
#: Largest body of any other request, with a key or a few names.
_MAX_OTHER: Final = 4096


class RefusedCallError(Exception):
    """A call that is not forwarded."""

    def __init__(self, status: int, why: str) -> None:
        """Store the status and the reason."""
        super().__init__(why)
        self.status = status  # of the answer (HTTP)


@dataclass(frozen=True)
class Call:
    """One call of the API for parties."""

    name: str
    kind: type[Message]
    most: int = _MAX_OTHER  # largest body, in bytes
    answer: int = 0  # largest size of its answer, which is charged to the quota

    def read(self, body: bytes) -> Any:
        """Parse a body."""
        message = self.kind()
        try:
            message.ParseFromString(body)
        except DecodeError as error:
            raise RefusedCallError(400, f"no {self.kind.DESCRIPTOR.name}") from error
        return message


_ALL: Final = (
    Call("register-node", RegisterNodeFleetRequest),
    Call("activate-node", ActivateNodeRequest),
    Call("deactivate-node", DeactivateNodeRequest),
    Call("unregister-node", UnregisterNodeFleetRequest),
    Call("send-node-heartbeat", SendNodeHeartbeatRequest),
    Call("pull-messages", PullMessagesRequest),
    Call("push-messages", PushMessagesRequest, _MAX_ANNOUNCEMENT),
    Call("get-run", GetRunRequest),
    Call("get-fab", GetFabRequest),
    Call("push-object", PushObjectRequest, MAX_BODY),
    Call("pull-object", PullObjectRequest, answer=MAX_BODY),
    Call("confirm-message-received", ConfirmMessageReceivedRequest),
)
#: The calls by path.
CALLS: Final = {f"/v1/fleet/{call.name}": call for call in _ALL}
