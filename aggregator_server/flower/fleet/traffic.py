"""Tracks the messages that each node was sent, and admits only matching replies.

A SuperLink stores what an enrolled node pushes: it would treat an unsolicited message as an
instruction of the server to any node, with any number of pieces. Here a node may only reply: once
to each message that was delivered to it, from the node of the signing key, with bounded pieces and
bytes. It may fetch the pieces of messages that were delivered to it, and confirm only those.

It also tracks how much a node has stored in the SuperLink: from the announcement of a reply until
the campaign has fetched it, or its message has expired.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from aggregator_server.flower.fleet.allowance import Allowance
from aggregator_server.flower.fleet.requests import (
    MAX_PIECE,
    ActivateNodeResponse,
    PullMessagesResponse,
    PushMessagesResponse,
    PushObjectResponse,
    RefusedCallError,
)
from aggregator_server.flower.internals import FLOWER_NODE
from protos.bounds import MAX_MESSAGE
from protos.flower.runtime import pieces_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.proto.message_pb2 import ObjectTree
    from google.protobuf.message import Message

    from aggregator_server.flower.fleet.requests import Call

    #: Called with the answer of an admitted call, or None without one.
    Settle = Callable[[bytes | None], None]

#: Most bytes of one reply: the largest message and Flower's envelope.
MAX_REPLY: Final = MAX_MESSAGE + 2**20
#: Most bytes of replies stored in a SuperLink at a time: of one node, in total.
STORED_EACH: Final = 2 * MAX_REPLY
STORED_IN_ALL: Final = 2**30
#: Pieces of a reply with only names and lengths: the message, its records, its array.
_FRAME: Final = 4
_FRAME_BYTES: Final = 256 * 2**10
#: Seconds after its expiry when a message is forgotten: both clocks are this machine's.
_LATER_S: Final = 5.0
#: How often one reply may be announced: Flower repeats it when an answer is lost.
_MOST_ANNOUNCED: Final = 32
#: Most nodes at a time. Without enrolment, on loopback, any client is one.
_MOST_NODES: Final = 4096
_PIECE_NAME: Final = re.compile("[0-9a-f]{64}")


@dataclass
class _Reply:
    """An announced reply: its pieces, and which have arrived."""

    root: str
    digest: bytes
    pieces: frozenset[str]
    #: Bytes reserved for it; at least those that are stored.
    room: int = 0
    session: str = ""
    #: Pieces that the SuperLink requested, with the sizes of those that it has.
    wanted: frozenset[str] = frozenset()
    #: Pieces that it did not request: it shares them with another reply.
    shared: frozenset[str] = frozenset()
    stored: dict[str, int] = field(default_factory=dict)
    under_way: int = 0
    announced: int = 0
    is_whole: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of it that are stored or in transfer."""
        return sum(self.stored.values()) + self.under_way


@dataclass
class _Handed:
    """A message delivered to a node: its expiry and its reply."""

    run: int
    ends: float
    pieces: frozenset[str]
    reply: _Reply | None = None


@dataclass
class _Node:
    """A node activated by one key, with its delivered messages by id."""

    id: int
    handed: dict[str, _Handed] = field(default_factory=dict)
    runs: set[int] = field(default_factory=set)


class Traffic:
    """The traffic between one SuperLink and its nodes. Used from one event loop."""

    def __init__(
        self,
        # seconds since 1970, of the clock of message timestamps
        clock: Callable[[], float] = time.time,
        # called when all pieces of a reply are in the SuperLink
        on_whole: Callable[[], None] = lambda: None,
        # the campaign's run; None: every run is
        run: int | None = None,
    ) -> None:
        """Start without nodes."""
        self._clock = clock
        self._on_whole = on_whole
        self._run = run
        # bytes of replies that the SuperLink stores or may store, by node key
        self.stored = Allowance(STORED_IN_ALL, STORED_EACH)
        # bytes that it has received since its start, by node key
        self.pushed: Counter[bytes] = Counter()
        # ids of replies that were not fetched before their message expired. A SuperLink forgets the
        # message, but stores the pieces until their receipt is confirmed
        self.left: deque[str] = deque()
        self._nodes: dict[bytes, _Node] = {}
        self._whose: dict[str, bytes] = {}
        self._dropped = asyncio.Event()

    async def admit(self, key: bytes, call: Call, body: bytes) -> Settle:
        """Decide whether a call of the holder of ``key`` is admitted.

        Returns a function to call once when the call is over: with the body of a successful answer,
        else with None.
        """
        request = call.read(body)
        if call.name in ("register-node", "activate-node"):
            return self._come(key, request, activates=call.name == "activate-node")
        node = self._nodes.get(key)
        named = request.node.node_id if hasattr(request, "node") else request.node_id
        if node is None or node.id != named:
            # The same answer as of a restarted SuperLink, so that the node registers again.
            raise RefusedCallError(401, "not the node of this key")
        if call.name == "push-messages":
            return await self._announce(key, node, request)
        if call.name == "push-object":
            return self._store(key, node, request)
        _check(node, call.name, request)
        if call.name == "pull-messages":
            return lambda answer: self._hand(key, node, answer)
        return lambda _: None

    async def fetched(self, key: bytes, *, within: float) -> None:
        """Wait until the campaign has fetched all complete replies of a node, or ``within`` seconds.

        A SuperLink answers for a node that has left: the campaign would get that the node is gone
        in place of a reply that is stored there. Replies of another run, such as the refusal of its
        code, are not the campaign's: it never fetches them, nor learns who does.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._has_whole_reply(key):
                    self._dropped.clear()
                    await self._dropped.wait()

    def _has_whole_reply(self, key: bytes) -> bool:
        node = self._nodes.get(key)
        handed = () if node is None else node.handed.values()
        return any(
            each.reply is not None and each.reply.is_whole and self._run in (None, each.run)
            for each in handed
        )

    def taken(self, message: str) -> None:
        """Record that the campaign has fetched the reply to ``message``, or given up on it."""
        key = self._whose.get(message)
        if key is not None:
            self._drop(key, message)

    def most(self) -> tuple[bytes, int] | None:
        """Return the key that has pushed most bytes and their number; None if there is none."""
        return next(iter(self.pushed.most_common(1)), None)

    def _come(self, key: bytes, request: Any, *, activates: bool) -> Settle:
        if request.public_key != key:
            raise RefusedCallError(401, "another key than the one that signs")
        if activates and key not in self._nodes and len(self._nodes) >= _MOST_NODES:
            raise RefusedCallError(503, "too many nodes")

        def settle(answer: bytes | None) -> None:
            given = _read(ActivateNodeResponse, answer) if activates else None
            known = self._nodes.get(key)
            if given is not None and (known is None or known.id != given.node_id):
                self._nodes[key] = _Node(given.node_id)

        return settle

    def _hand(self, key: bytes, node: _Node, answer: bytes | None) -> None:
        """Record the messages delivered to a node."""
        given = _read(PullMessagesResponse, answer)
        if given is None:
            return
        for message, tree in zip(given.messages_list, given.message_object_trees, strict=False):
            data = message.metadata
            # A message with more pieces than ours is not the campaign's: it cannot be fetched.
            with contextlib.suppress(ValueError):
                ends = data.created_at + data.ttl + _LATER_S
                handed = _Handed(data.run_id, ends, frozenset(pieces_of(tree)))
                node.handed[data.message_id] = handed
                node.runs.add(data.run_id)
                self._whose[data.message_id] = key

    async def _announce(self, key: bytes, node: _Node, request: Any) -> Settle:
        """Admit a node's announcement of its one reply to a delivered message."""
        self.forget_expired()
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            raise RefusedCallError(400, "not one message")
        data, tree = request.messages_list[0].metadata, request.message_object_trees[0]
        handed = node.handed.get(data.reply_to_message_id)
        if (
            handed is None
            or data.run_id != handed.run
            or data.src_node_id != node.id
            or data.dst_node_id != FLOWER_NODE
            or data.message_id != tree.object_id
        ):
            raise RefusedCallError(400, "no reply to a message that was delivered to this node")
        reply = handed.reply or _reply(tree)
        if reply.digest != _digest(tree):
            raise RefusedCallError(409, "a second reply to one message")
        handed.reply = reply
        # Each announcement leaks a little memory in the SuperLink.
        reply.announced += 1
        if reply.announced > _MOST_ANNOUNCED:
            raise RefusedCallError(429, "a reply that was announced too often")
        needed = _room_for(len(reply.pieces))
        missing = max(0, needed - reply.room)
        try:
            await self.stored.take(key, missing)
        except TimeoutError as error:
            raise RefusedCallError(503, "no room for another reply") from error
        # Meanwhile the message may have expired, or a repeated announcement may have been admitted.
        is_here = node.handed.get(data.reply_to_message_id) is handed
        reply.room, had = (max(needed, reply.room) if is_here else 0), reply.room
        self.stored.give(key, had + missing - reply.room)
        if not is_here:
            raise RefusedCallError(400, "the message has expired")

        def settle(answer: bytes | None) -> None:
            given = _read(PushMessagesResponse, answer)
            if given is not None:
                reply.wanted = frozenset(given.objects_to_push)
                # It requests and stores nothing of a refused reply.
                if reply.wanted or reply.session:
                    reply.shared = reply.pieces - reply.wanted - reply.stored.keys()
                reply.session = given.session_id
                self._settled(key, reply)

        return settle

    def _store(self, key: bytes, node: _Node, request: Any) -> Settle:
        """Admit a piece of an announced reply."""
        replies = [
            handed.reply
            for handed in node.handed.values()
            if handed.reply is not None and handed.run == request.run_id
        ]
        found = [
            reply
            for reply in replies
            if request.object_id in reply.pieces and reply.session == request.session_id != ""
        ]
        if not found:
            raise RefusedCallError(400, "a piece of a reply that was not announced")
        reply, piece = found[0], request.object_id
        # A piece that is stored is not stored again.
        size = 0 if piece in reply.stored else len(request.object_content)
        if size > MAX_PIECE or (size and reply.bytes + size > reply.room):
            raise RefusedCallError(413, "more than a reply of so many pieces can have")
        reply.under_way += size

        def settle(answer: bytes | None) -> None:
            reply.under_way -= size
            given = _read(PushObjectResponse, answer)
            if given is not None and given.stored:
                reply.stored.setdefault(piece, size)
                self.pushed[key] += size
                self._settled(key, reply)

        return settle

    def _settled(self, key: bytes, reply: _Reply) -> None:
        """If a reply is complete, report it, and release the rest of its reservation."""
        # The size of a shared piece is unknown here.
        kept = reply.bytes + len(reply.shared - reply.stored.keys()) * MAX_PIECE
        if not reply.wanted <= reply.stored.keys():
            return
        if reply.session and not reply.is_whole:
            reply.is_whole = True  # reported once, even if its pieces are sent again
            self._on_whole()
        if reply.room > kept:
            self.stored.give(key, reply.room - kept)
            reply.room = kept

    def forget_expired(self) -> None:
        """Forget expired messages; stored replies to them become ``left``."""
        now = self._clock()
        for key, node in self._nodes.items():
            for message, handed in list(node.handed.items()):
                if handed.ends < now:
                    if handed.reply is not None and handed.reply.session:
                        self.left.append(handed.reply.root)
                    self._drop(key, message)

    def _drop(self, key: bytes, message: str) -> None:
        self._whose.pop(message, None)
        node = self._nodes.get(key)
        handed = None if node is None else node.handed.pop(message, None)
        if handed is not None and (reply := handed.reply) is not None:
            self.stored.give(key, reply.room)
            reply.room = 0
            self._dropped.set()


def _check(node: _Node, name: str, request: Any) -> None:
    """Check a call that stores nothing: it must be about messages delivered to the node."""
    if name in ("get-run", "get-fab", "pull-object", "confirm-message-received"):
        _require(request.run_id in node.runs)
    if name == "pull-object":
        _require(any(request.object_id in handed.pieces for handed in node.handed.values()))
    if name == "confirm-message-received":
        _require(request.message_object_id in node.handed)


def _require(holds: bool) -> None:
    if not holds:
        raise RefusedCallError(400, "nothing that was delivered to this node")


def _reply(tree: ObjectTree) -> _Reply:
    try:
        pieces = pieces_of(tree)
    except ValueError as error:
        raise RefusedCallError(413, "a reply of more pieces than ours have") from error
    if not all(map(_PIECE_NAME.fullmatch, pieces)):
        raise RefusedCallError(400, "a piece without a name")
    return _Reply(tree.object_id, _digest(tree), frozenset(pieces))


def _digest(tree: ObjectTree) -> bytes:
    return hashlib.sha256(tree.SerializeToString(deterministic=True)).digest()


def _room_for(pieces: int) -> int:
    """Return the largest size of a reply with this many pieces."""
    return min(MAX_REPLY, _FRAME_BYTES + max(1, pieces - _FRAME) * MAX_PIECE)


def _read(kind: type[Message], answer: bytes | None) -> Any:
    """Return a SuperLink's answer, or None if it cannot be parsed."""
    if answer is None:
        return None
    try:
        message = kind()
        message.ParseFromString(answer)
    except DecodeError:
        return None
    return message
