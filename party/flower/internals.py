"""Internals of Flower that the party uses and that may change: messages of its SuperNode.

Internals used by both roles are in :mod:`protos.flower.runtime`. All functions here talk to a
SuperNode on loopback that this process started.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from flwr.app import Error, Message
from flwr.common.serde import context_from_proto, message_from_proto
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullTaskInputRequest
from flwr.supercore.error import ApiErrorCode
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    pull_and_inflate_object_from_tree,
)
from flwr.supernode.runtime.run_clientapp import push_message

from protos.flower.runtime import (
    NOBODY,
    ErrorCode,
    Heartbeat,
    RuntimeClient,
    SubStatus,
    TaskType,
    acquire,
    carries_code,
    finish,
    pieces_of,
)

__all__ = [
    "KEY_NEEDED",
    "KEY_REFUSED",
    "NOBODY",
    "PIECE_ERRORS",
    "SUPERNODE_MAIN",
    "PulledMessage",
    "next_message",
]

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.proto.message_pb2 import ObjectTree
    from flwr.proto.task_pb2 import Task

#: The part of Flower that runs as the child process.
SUPERNODE_MAIN: Final = "party.flower.supernode_process:main"
#: How a SuperLink that admits only known keys refuses a node without a key.
KEY_NEEDED: Final = int(ApiErrorCode.FLEET_SUPERNODE_REGISTRATION_DISABLED)
#: How it refuses a key that is unknown or already connected.
KEY_REFUSED: Final = int(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED)
#: All tasks that a SuperNode may wait for. Each is taken, so that none blocks it.
_KINDS: Final = (TaskType.CLIENT_APP, TaskType.AGENT_APP)
#: Seconds that a message may take to follow its announcement, and its pieces to follow it: the
#: SuperNode delivers complete messages, and drops a message that stalls
#: (:func:`party.flower.supernode_process.unless_silent`).
_MESSAGE_S: Final = 30.0
_PIECES_S: Final = 1800.0

#: Flower's errors for a message or an answer that was not transferred completely.
PIECE_ERRORS: Final = (ObjectPullError, ObjectPushError)


class PulledMessage:
    """One message of the server, pulled from the SuperNode; answered once, then closed."""

    def __init__(self, address: str, task: Task, token: str) -> None:
        """Claim the task of a message."""
        self._client = RuntimeClient.of_task(address, token)
        self._status = SubStatus.FAILED
        self._heartbeat = Heartbeat(self._client)
        try:
            given = self._client.PullTaskInput(PullTaskInputRequest())
            # Flower's context of the run that the message belongs to
            self.context: Context = context_from_proto(given.context)
            # why the message must not be read, or None
            self.refusal = _refusal(task, given.fab.content)
            self._envelope, self._tree = self._announced()
        except BaseException:
            self.close()
            raise

    def message(self) -> Message:
        """Fetch the message."""
        pieces_of(self._tree)
        node, run = Node(node_id=self.context.node_id), self.context.run_id
        message = pull_and_inflate_object_from_tree(
            self._tree,
            make_pull_object_fn_protobuf(self._client.PullObject, node, run),
            make_confirm_message_received_fn_protobuf(
                self._client.ConfirmMessageReceived, node, run
            ),
            return_type=Message,
            max_time=_PIECES_S,
            max_tries_per_object=None,
            initial_backoff=0.05,
            backoff_cap=0.5,
        )
        # The id is the hash of the message, so the message itself cannot contain it.
        message.metadata.__dict__["_message_id"] = self._tree.object_id
        return message

    def answer(self, reply: Message) -> None:
        """Pass the reply to the SuperNode, which sends it."""
        push_message(self._client, reply, self.context)
        self._status = SubStatus.COMPLETED

    def error(self, name: str) -> Message:
        """Return a reply with only the class name of an exception."""
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, name), reply_to=self._envelope)

    def close(self) -> None:
        """Release the task, whether it was answered or not."""
        self._heartbeat.stop()
        finish(self._client, self._status)
        self._client.close()

    def _announced(self) -> tuple[Message, ObjectTree]:
        """Wait for the message that the task is about; Flower makes the task a little earlier."""
        deadline = time.monotonic() + _MESSAGE_S
        while True:
            response = self._client.PullMessages(PullAppMessagesRequest())
            if response.messages_list:
                envelope = message_from_proto(response.messages_list[0])
                tree = response.message_object_trees[0]
                envelope.metadata.__dict__["_message_id"] = tree.object_id
                return envelope, tree
            if time.monotonic() > deadline:
                raise TimeoutError("a message was announced and did not come")
            time.sleep(0.05)


def next_message(client: RuntimeClient, address: str) -> PulledMessage | None:
    """Take the next message that waits at the SuperNode, or return None if there is none."""
    taken = acquire(client, _KINDS)
    return None if taken is None else PulledMessage(address, *taken)


def _refusal(task: Task, fab: bytes) -> str | None:
    if task.type != TaskType.CLIENT_APP:
        return f"the server asked for a task of kind {task.type!r}; only messages are answered"
    if carries_code(fab):
        return "the server's run carries code, and code from the network is never run here"
    return None
