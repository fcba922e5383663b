"""The server's grid: fetches replies so that no party can delay another's.

It relies on internals of Flower, like :mod:`aggregator_server.flower.internals`.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import httpx
from flwr.app import Error, Message
from flwr.common.serde import run_from_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullTaskInputRequest
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectUnavailableError,
    inflate_object_from_contents,
    pull_objects,
)
from flwr.superlink.grid import HttpGrid

from aggregator_server.flower.internals import (
    FLOWER_NODE,
    codeless_fab,
    error_reply,
    start_run,
)
from pate.errors import ProcessError
from protos.flower.runtime import (
    ErrorCode,
    Heartbeat,
    RuntimeClient,
    SubStatus,
    TaskType,
    acquire,
    finish,
    pieces_of,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from flwr.proto.message_pb2 import Message as ProtoMessage
    from flwr.proto.message_pb2 import Metadata as ProtoMetadata
    from flwr.proto.message_pb2 import ObjectTree

    _Announcement = tuple[ProtoMessage, ObjectTree]

_PARALLEL_PULLS: Final = 16
#: How long an incomplete reply may occupy a thread, and the pauses before it is checked again, in
#: seconds, growing from the first to the last.
_HERE_S: Final = 0.5
_AGAIN_S: Final = 0.2
_AGAIN_MOST_S: Final = 2.0
_TASK_DEADLINE_S: Final = 30.0


@dataclass
class _Arriving:
    """An announced reply that may be incomplete."""

    envelope: ProtoMessage
    tree: ObjectTree
    # becomes the reply; None if it was incomplete
    fetched: Future[Message | None] = field(default_factory=Future)
    missing: str | None = None  # a piece that was missing at the last check
    pause: float = _AGAIN_S  # how long to wait after the next check, in seconds
    due: float = 0.0
    ends: float = field(init=False)

    def __post_init__(self) -> None:
        self.ends = time.monotonic() + self.envelope.metadata.ttl


def _inflated(data: ProtoMetadata, contents: dict[str, bytes]) -> Message:
    """Assemble a reply from its pieces."""
    message = inflate_object_from_contents(data.message_id, contents)
    if not isinstance(message, Message):
        raise TypeError(type(message).__name__)
    # The SuperLink matched the envelope to its sender; the content is only claimed.
    if message.metadata.reply_to_message_id != data.reply_to_message_id:
        raise ValueError("an answer to another message")
    return message


class ResidentGrid(HttpGrid):
    """Flower's grid, in which no party can delay or break the reading of another's reply.

    Replies are fetched in a few threads. An incomplete upload releases its thread after a moment
    and is checked again later, so it delays no other reply; a malformed or too large reply becomes
    an error for only its sender. Flower's own grid fetches them sequentially and raises at the
    first broken one, with all the others already taken from the SuperLink.
    """

    def __init__(
        self,
        address: str,
        token: str,
        trust: ssl.SSLContext | None = None,
        on_taken: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(runtime_api_address=address, insecure=trust is None, token=token)
        # called when a reply has been fetched, from the thread that did it
        self.on_fetched: Callable[[], None] = lambda: None
        self.client = RuntimeClient.of_task(address, token, trust)
        self._client = self.client
        self._pool = ThreadPoolExecutor(_PARALLEL_PULLS, thread_name_prefix="reply")
        self._arriving: dict[str, _Arriving] = {}
        self._on_taken = on_taken

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the complete replies, and start fetching the others."""
        waiting = [i for i in message_ids if i not in self._arriving]
        replies = []
        for asked, found in self._announced(waiting).items():
            if isinstance(found, Message):
                replies.append(found)
            else:
                self._arriving[asked] = self._begin(_Arriving(*found))
        trouble: BaseException | None = None
        for asked, arriving in list(self._arriving.items()):
            if not arriving.fetched.done():
                continue
            if (error := arriving.fetched.exception()) is not None:
                trouble = error
            elif (reply := arriving.fetched.result()) is not None:
                replies.append(reply)
            elif time.monotonic() >= arriving.due:
                self._begin(arriving)
                continue
            else:
                continue
            del self._arriving[asked]
        # Return arrivals first; a broken link raises again at the next call.
        if trouble is not None and not replies:
            raise trouble
        return replies

    def _announced(self, waiting: list[str]) -> dict[str, Message | _Announcement]:
        """Ask which of ``waiting`` have a reply, and for its pieces."""
        if not waiting:
            return {}
        try:
            response = self.client.PullMessages(PullAppMessagesRequest(message_ids=waiting))
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.INTERNAL_SERVER_ERROR:
                raise
            # One message unknown to the SuperLink fails the request for all.
            if len(waiting) == 1:
                return {waiting[0]: self._error_reply(waiting[0], ErrorCode.MESSAGE_UNAVAILABLE)}
            return {k: v for i in waiting for k, v in self._announced([i]).items()}
        pairs = zip(response.messages_list, response.message_object_trees, strict=True)
        found = {message.metadata.reply_to_message_id: (message, tree) for message, tree in pairs}
        return {asked: found[asked] for asked in waiting if asked in found}

    def forget(self, reply: str) -> None:
        """Let the SuperLink delete a reply, by its id, and its pieces."""
        self.client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self.node, run_id=self.run.run_id, message_object_id=reply
            )
        )

    def _begin(self, arriving: _Arriving) -> _Arriving:
        """Check in another thread whether a reply is complete, and fetch it if so."""

        def looked(fetched: Future[Message | None]) -> None:
            # An incomplete reply is not an event.
            if fetched.cancelled() or fetched.exception() or fetched.result() is not None:
                self.on_fetched()

        arriving.fetched = self._pool.submit(self._fetch, arriving)
        arriving.fetched.add_done_callback(looked)
        return arriving

    def _fetch(self, arriving: _Arriving) -> Message | None:
        """Fetch one reply; None if it is incomplete. A defect becomes an error message."""
        data, contents = arriving.envelope.metadata, None
        try:
            contents = self._contents(arriving)
            if contents is None and time.monotonic() < arriving.ends:
                return None
        except httpx.HTTPError:
            raise
        except Exception:  # noqa: BLE001, S110 - bytes of another party, read by code that is not ours
            pass
        # Accepted or not, the SuperLink may delete it.
        self.forget(data.message_id)
        self._on_taken(data.reply_to_message_id)
        try:
            return _inflated(data, contents or {})
        except Exception:  # noqa: BLE001 - the same
            return self._error_reply(data.reply_to_message_id, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)

    def _contents(self, arriving: _Arriving) -> dict[str, bytes] | None:
        """Fetch all pieces of a reply; None if one of them is only announced."""
        pull = make_pull_object_fn_protobuf(self.client.PullObject, self.node, self.run.run_id)

        def pulling(piece: str) -> bytes:
            try:
                return pull(piece)
            except ObjectUnavailableError:
                arriving.missing = piece
                raise
            except ObjectPullError as error:
                raise LookupError(piece) from error  # no longer announced

        looks_again, missing = arriving.missing is not None, arriving.missing
        try:
            if missing is not None:
                # Most likely it is still missing; then nothing else is fetched needlessly.
                pulling(missing)
                arriving.missing = None
            return pull_objects(
                pieces_of(arriving.tree),
                pulling,
                max_time=0.0 if looks_again else _HERE_S,
                initial_backoff=0.1,
                backoff_cap=1.0,
            )
        except (ObjectUnavailableError, ObjectPullError):
            arriving.due = time.monotonic() + arriving.pause
            arriving.pause = min(2 * arriving.pause, _AGAIN_MOST_S)
            return None

    def _error_reply(self, asked: str, code: int) -> Message:
        return error_reply(asked, self.run.run_id, FLOWER_NODE, Error(code))

    def close(self) -> None:
        """Abandon incomplete replies, and disconnect."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()


class Session:
    """One run of one SuperLink, with its ServerApp task held by this process."""

    def __init__(
        self,
        address: str,  # ``host:port`` of the SuperLink
        secret: bytes,
        fab: bytes | None = None,  # the bundle of the run; default: :func:`codeless_fab`
        *,
        trust: ssl.SSLContext | None = None,  # TLS context for the SuperLink; None: clear text
        # called, from any thread, with the id of a message whose reply was fetched
        on_taken: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start a run and acquire its task."""
        run_id = start_run(address, codeless_fab() if fab is None else fab, trust)
        token = _token_of(address, secret, run_id, trust)
        self.grid = ResidentGrid(address, token, trust, on_taken)
        try:
            task = self.grid.client.PullTaskInput(PullTaskInputRequest())
            self.grid.set_run(run_from_proto(task.run))
            self._heartbeat = Heartbeat(self.grid.client)
        except BaseException:
            self.grid.close()
            raise

    def close(self) -> None:
        """End the run, if it still exists."""
        self._heartbeat.stop()
        finish(self.grid.client, SubStatus.COMPLETED)
        self.grid.close()


def _token_of(address: str, secret: bytes, run_id: int, trust: ssl.SSLContext | None) -> str:
    """Acquire the ServerApp task of the run ``run_id``; a task of any other run is refused."""
    deadline = time.monotonic() + _TASK_DEADLINE_S
    with RuntimeClient.with_secret(address, secret, trust) as client:
        while time.monotonic() < deadline:
            taken = acquire(client, [TaskType.SERVER_APP])
            if taken is None:
                time.sleep(0.05)
                continue
            task, token = taken
            if task.run_id == run_id:
                return token
            with RuntimeClient.of_task(address, token, trust) as stray:
                finish(stray, SubStatus.FAILED, "not a run of this server")
    raise ProcessError(f"the SuperLink at {address} offers no task for its run {run_id}")
