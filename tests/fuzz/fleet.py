"""Malformed calls of an enrolled node, for the gateway's parsers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from google.protobuf.message import Message

from aggregator_server.flower.fleet.requests import CALLS, RefusedCallError
from aggregator_server.flower.fleet.traffic import STORED_EACH, Traffic
from pate.errors import ProtocolError
from tests.fuzz.mutate import mutated_bytes, mutated_message

KEY, NODE, RUN = b"a key", Node(node_id=7), 5
ASKED, REPLY, PIECE, SESSION = "a" * 64, "b" * 64, "c" * 64, "session"


def _good() -> dict[str, Message]:
    announced = PushMessagesRequest(node=NODE)
    data = announced.messages_list.add().metadata
    data.message_id, data.reply_to_message_id, data.run_id = REPLY, ASKED, RUN
    data.src_node_id, data.dst_node_id = NODE.node_id, 1
    tree = announced.message_object_trees.add(object_id=REPLY)
    tree.children.append(ObjectTree(object_id=PIECE))
    return {
        "activate-node": ActivateNodeRequest(public_key=KEY, heartbeat_interval=30),
        "deactivate-node": DeactivateNodeRequest(node_id=NODE.node_id),
        "pull-messages": PullMessagesRequest(node=NODE),
        "push-messages": announced,
        "get-fab": GetFabRequest(node=NODE, run_id=RUN, hash_str=PIECE),
        "pull-object": PullObjectRequest(node=NODE, run_id=RUN, object_id=ASKED),
        "push-object": PushObjectRequest(
            node=NODE, run_id=RUN, object_id=PIECE, object_content=bytes(99), session_id=SESSION
        ),
        "confirm-message-received": ConfirmMessageReceivedRequest(
            node=NODE, run_id=RUN, message_object_id=ASKED
        ),
    }


async def _play(name: str, body: bytes) -> None:
    """Bring a node to where every good call passes, and make a broken one."""
    traffic, good = Traffic(), _good()
    handed = PullMessagesResponse()
    data = handed.messages_list.add().metadata
    data.message_id, data.run_id, data.created_at, data.ttl = ASKED, RUN, time.time(), 60.0
    handed.message_object_trees.add(object_id=ASKED)
    announced = PushMessagesResponse(objects_to_push=[REPLY, PIECE], session_id=SESSION)
    for call, answer in (
        ("activate-node", ActivateNodeResponse(node_id=NODE.node_id)),
        ("pull-messages", handed),
        ("push-messages", announced),
    ):
        admitted = await traffic.admit(
            KEY, CALLS[f"/v1/fleet/{call}"], good[call].SerializeToString()
        )
        admitted(answer.SerializeToString())
    try:
        settle = await traffic.admit(KEY, CALLS[f"/v1/fleet/{name}"], body)
    except RefusedCallError as error:
        raise ProtocolError(str(error)) from error
    settle(None)
    assert traffic.stored.total <= STORED_EACH
    assert traffic.pushed[KEY] == 0


def call(rng: random.Random) -> Callable[[], object]:
    """Make a broken call, and return what feeds it."""
    name, message = rng.choice(sorted(_good().items()))
    if rng.random() < 0.7:
        message = mutated_message(message, rng)
    body = message.SerializeToString()
    if rng.random() < 0.4:
        body = mutated_bytes(body, rng)
    return lambda: asyncio.run(_play(name, body))
