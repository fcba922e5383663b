"""Nodes of parties that speak the API for parties by hand, as an attacker would."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import os
import ssl
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Message,
    ObjectTree,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import sign_message
from google.protobuf.message import Message as Body

from protos.flower.carriage import MESSAGE_TYPE

#: Of a SuperLink, in every message.
SERVER = 1
PROTOBUF = "application/protobuf"


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def signed(key: ec.EllipticCurvePrivateKey, age: float = 0.0) -> dict[str, str]:
    """Headers that prove a key, as Flower's SuperNode writes them."""
    stamp = (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age)).isoformat()
    return {
        "content-type": PROTOBUF,
        "flwr-public-key": base64.b64encode(pem_of(key)).decode(),
        "flwr-timestamp": stamp,
        "flwr-signature": base64.b64encode(sign_message(key, stamp.encode())).decode(),
    }


def some_id() -> str:
    return hashlib.sha256(os.urandom(16)).hexdigest()


def piece(size: int) -> tuple[str, bytes]:
    """A piece of an array that Flower takes, and its name."""
    content = b"ArrayChunk  %d\x00" % size + os.urandom(16)[:size].ljust(size, b"\x00")
    return hashlib.sha256(content).hexdigest(), content


@dataclass
class Attacker:
    """A client with a key that sends arbitrary requests to a gateway (or a SuperLink)."""

    address: str
    trust: ssl.SSLContext | None = None
    key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    id: int = 0
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx.Client(
            base_url=f"{'http' if self.trust is None else 'https'}://{self.address}/v1/fleet/",
            verify=True if self.trust is None else self.trust,
            trust_env=False,
            timeout=60,
        )

    @property
    def pem(self) -> bytes:
        return pem_of(self.key)

    @property
    def node(self) -> Node:
        return Node(node_id=self.id)

    def call(self, name: str, body: Body | bytes, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else body.SerializeToString()
        return self.client.post(name, content=content, headers=signed(self.key) | headers)

    def activate(self) -> httpx.Response:
        reply = self.call(
            "activate-node", ActivateNodeRequest(public_key=self.pem, heartbeat_interval=30)
        )
        if reply.is_success:
            self.id = ActivateNodeResponse.FromString(reply.content).node_id
        return reply

    def pull(self) -> tuple[Message, ObjectTree] | None:
        """Take the next message that waits for this node."""
        reply = self.call("pull-messages", PullMessagesRequest(node=self.node))
        given = PullMessagesResponse.FromString(reply.raise_for_status().content)
        if not given.messages_list:
            return None
        return given.messages_list[0], given.message_object_trees[0]

    def pulled(self, within: float = 30.0) -> tuple[Message, ObjectTree]:
        deadline = time.monotonic() + within
        while (found := self.pull()) is None:
            assert time.monotonic() < deadline, "no message came"
            time.sleep(0.05)
        return found

    def answer_to(self, message: Message, **changed: Any) -> Message:
        """An envelope like an honest reply's, but for what is changed."""
        reply = Message()
        data = reply.metadata
        data.run_id, data.message_id = message.metadata.run_id, some_id()
        data.src_node_id, data.dst_node_id = self.id, SERVER
        data.reply_to_message_id, data.message_type = message.metadata.message_id, MESSAGE_TYPE
        data.created_at, data.ttl = time.time(), 10.0
        reply.content.SetInParent()
        for name, value in changed.items():
            setattr(data, name, value)
        return reply

    def push(self, reply: Message, *names: str, root: str | None = None) -> httpx.Response:
        """Announce a reply of these pieces."""
        tree = ObjectTree(
            object_id=reply.metadata.message_id if root is None else root,
            children=[ObjectTree(object_id=name) for name in names],
        )
        return self.call(
            "push-messages",
            PushMessagesRequest(node=self.node, messages_list=[reply], message_object_trees=[tree]),
        )

    def announce(self, reply: Message, *names: str) -> PushMessagesResponse:
        return PushMessagesResponse.FromString(self.push(reply, *names).raise_for_status().content)

    def store(self, run: int, session: str, name: str, content: bytes) -> httpx.Response:
        return self.call(
            "push-object",
            PushObjectRequest(
                node=self.node,
                run_id=run,
                object_id=name,
                object_content=content,
                session_id=session,
            ),
        )

    def stored(self, run: int, session: str, name: str, content: bytes) -> bool:
        reply = self.store(run, session, name, content).raise_for_status()
        return PushObjectResponse.FromString(reply.content).stored

    def confirm(self, message: Message) -> httpx.Response:
        return self.call(
            "confirm-message-received",
            ConfirmMessageReceivedRequest(
                node=self.node,
                run_id=message.metadata.run_id,
                message_object_id=message.metadata.message_id,
            ),
        )
