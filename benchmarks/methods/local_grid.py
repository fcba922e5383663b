"""A Flower grid inside one process: many parties without a network, for Flower's own strategies and tests.

It preserves the essential behaviour:
messages are copied between the sides; a party handles one message at a time; Flower's own node
answers for a disconnected party; an exception of a party becomes an error. Parties can be made to
leave, to return and to be slow.
"""

from __future__ import annotations

import copy
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from aggregator_server.flower.internals import error_reply, query
from protos.flower.runtime import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flwr.app import UserConfig
    from flwr.clientapp import ClientApp

#: Id of the first party; Flower's own nodes have smaller ones.
FIRST_NODE: Final = 1000
_RUN_ID: Final = 1


class LocalGrid(Grid):
    """N parties in threads of this process, numbered from :data:`FIRST_NODE`.

    Messages and answers do not expire here. Methods may be called from any thread.
    """

    def __init__(
        self,
        apps: Sequence[ClientApp],
        *,
        # the configuration of each party, in the order of ``apps``
        node_configs: Sequence[UserConfig] | None = None,
        workers: int = 4,  # number of parties that work concurrently
    ) -> None:
        """Create one party per app; repeat an app for equal parties."""
        configs = [{} for _ in apps] if node_configs is None else node_configs
        if len(configs) != len(apps):
            raise ValueError(f"{len(configs)} node configurations for {len(apps)} parties")
        self._apps = {FIRST_NODE + i: app for i, app in enumerate(apps)}
        self._contexts = {
            FIRST_NODE + i: Context(
                run_id=_RUN_ID,
                node_id=FIRST_NODE + i,
                node_config=dict(config),
                state=RecordDict(),
                run_config={},
            )
            for i, config in enumerate(configs)
        }
        self._busy = {node: threading.Lock() for node in self._apps}
        self._offline: set[int] = set()
        self._delays: dict[int, float] = {}
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="party")
        self._replies: dict[str, Future[Message]] = {}
        self._run = Run.create_empty(_RUN_ID)

    def leave(self, node: int) -> None:
        """Disconnect a party; its open messages are never answered."""
        self._known(node)
        self._offline.add(node)

    def come_back(self, node: int) -> None:
        """Reconnect a party."""
        self._known(node)
        self._offline.discard(node)

    def slow_down(self, node: int, seconds: float) -> None:
        """Let a party wait for ``seconds`` before each message."""
        self._known(node)
        self._delays[node] = seconds

    def set_run(self, run: Run) -> None:
        """Set the run; there is one from the start."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return an instruction message."""
        message = query(self._run.run_id, dst_node_id, content, ttl or 3600.0)
        message.metadata.message_type = message_type
        message.metadata.group_id = group_id
        return message

    def get_node_ids(self) -> list[int]:
        """Return the parties that are connected now."""
        return [node for node in self._apps if node not in self._offline]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages; a message to an unknown party gets an empty id."""
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the answers that have arrived, without waiting."""
        here = [i for i in message_ids if i in self._replies and self._replies[i].done()]
        return [self._replies.pop(i).result() for i in here]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send messages and wait for their answers, at most ``timeout`` seconds for each."""
        sent = [i for i in self.push_messages(messages) if i]
        for i in sent:
            self._replies[i].exception(timeout)
        return self.pull_messages(sent)

    def close(self) -> None:
        """Stop all parties; slow ones wake up."""
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _push(self, message: Message) -> str:
        if message.metadata.dst_node_id not in self._apps:
            return ""
        sent = copy.deepcopy(message)
        message_id = uuid.uuid4().hex
        sent.metadata.__dict__["_message_id"] = message_id
        self._replies[message_id] = self._pool.submit(self._answer, sent)
        return message_id

    def _answer(self, message: Message) -> Message:
        """Handle a message as its party."""
        node = message.metadata.dst_node_id
        with self._busy[node]:
            self._closing.wait(self._delays.get(node, 0.0))
            if node in self._offline or self._closing.is_set():
                return self._gone(message)
            try:
                reply = copy.deepcopy(
                    self._apps[node](message=message, context=self._contexts[node])
                )
            except Exception as error:  # noqa: BLE001 - as Flower does with any app
                # Flower's error includes the exception's text, and so does this one.
                reason = f"{type(error)}:<'{error}'>"
                reply = Message(
                    Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message
                )
        return self._gone(message) if node in self._offline else reply

    def _gone(self, message: Message) -> Message:
        metadata = message.metadata
        error = Error(ErrorCode.NODE_UNAVAILABLE, "Node Unavailable")
        return error_reply(metadata.message_id, metadata.run_id, metadata.dst_node_id, error)

    def _known(self, node: int) -> None:
        if node not in self._apps:
            raise ValueError(f"there is no party {node} here")
