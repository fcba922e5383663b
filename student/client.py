"""The student's end of the wire: labels in, predictions out, each field checked on arrival.

The server is trusted for the labels but not for the form of its messages: whatever does not fit
the campaign ends the session with an error that says what. A server that is away, or restarts in
the middle of the stream, is waited for; the stream goes on after the last event that was seen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, TypeAlias, TypeVar

import grpc
import numpy as np

from pate.errors import DataError, ProtocolError, RefusedError, SchemaError, UnreachableError
from pate.labels import LabelRow, checked_statement
from pate.noisy_votes import NoisyVotes
from protos.pate.v1 import student_pb2 as wire
from protos.pate.v1.student_pb2_grpc import StudentStub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

PHASES: Final = ("gathering", "voting", "labelling", "predicting", "finished")
#: Largest message either way, bytes.
LARGEST_MESSAGE: Final = 64 * 2**20
#: A quiet stream is opened anew after this long, so that a server that vanished is noticed.
STREAM_SECONDS: Final = 60.0
_CALL_SECONDS: Final = 20.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_MOST_CLASSES: Final = 10_000

_SOURCES: Final = {
    wire.SOURCE_TEACHERS: "teachers",
    wire.SOURCE_RECORDS: "records",
    wire.SOURCE_REINFORCED: "reinforced",
}
_GONE: Final = frozenset({
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.RESOURCE_EXHAUSTED,  # all seats are taken
})  # fmt: skip

_T = TypeVar("_T")


@dataclass(frozen=True)
class PublicSet:
    """What the student's own public set must have in common with the campaign's.

    Attributes:
        content_hash: 32 bytes.
        queries: number of inputs.
        schema: one line, see ``Inputs.schema``.
    """

    content_hash: bytes
    queries: int
    schema: str


@dataclass(frozen=True)
class Campaign:
    """A campaign as its server describes it, checked against the own public set.

    Attributes:
        id: 1 to 64 bytes.
        name: for people.
        mechanism: for people.
        classes: names; empty until the server knows all parties.
        rounds: planned rounds, 0 if that is open.
        phase: one of :data:`PHASES`.
    """

    id: bytes
    name: str
    mechanism: str
    classes: tuple[str, ...]
    rounds: int
    phase: str


@dataclass(frozen=True)
class RoundEnd:
    """All labels of a round are out."""

    round: int
    wants_predictions: bool


@dataclass(frozen=True)
class CampaignEnd:
    """All labels are out."""

    labels_released: int


Event: TypeAlias = LabelRow | RoundEnd | CampaignEnd


class StudentClient:
    """A connection to the student service of a server.

    Use as a context manager. ``say`` gets a line whenever the server goes away and comes back.
    """

    def __init__(
        self,
        address: str,
        public: PublicSet,
        *,
        max_wait: float = 600.0,
        say: Callable[[str], None] = lambda _line: None,
        root_certificates: bytes | None = None,
        stream_seconds: float = STREAM_SECONDS,
    ) -> None:
        """Prepare a connection; nothing is sent before the first call.

        Args:
            address: ``HOST:PORT``.
            public: the own public set.
            max_wait: seconds without any answer after which to give up.
            say: told about lost and found connections.
            root_certificates: PEM of the authority that signed the server's certificate; None
                for a connection without TLS.
            stream_seconds: how long one stream is read at most before it is opened anew.
        """
        self._address = address
        self._public = public
        self._stream_seconds = stream_seconds
        self._campaign: Campaign | None = None
        # A server may answer calls and yet break every stream, so the two are timed apart.
        self._calls = _Patience(address, max_wait, say)
        self._stream = _Patience(address, max_wait, say)
        options = [
            ("grpc.max_receive_message_length", LARGEST_MESSAGE),
            ("grpc.max_send_message_length", LARGEST_MESSAGE),
            ("grpc.enable_retries", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
        ]
        if root_certificates is None:
            self._channel = grpc.insecure_channel(address, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(root_certificates=root_certificates)
            self._channel = grpc.secure_channel(address, credentials, options=options)
        self._stub = StudentStub(self._channel)  # type: ignore[no-untyped-call]  # generated

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def campaign(self) -> Campaign:
        """Ask what the campaign is.

        Raises:
            SchemaError: if it is about another public set, or another campaign than before.
            ProtocolError: if a field is not as it may be.
            UnreachableError: if the server does not answer within ``max_wait`` seconds.
        """
        request = wire.GetCampaignRequest()
        info = self._ask(lambda: self._stub.GetCampaign(request, timeout=_CALL_SECONDS))
        campaign = _checked_campaign(info, self._public)
        before = self._campaign
        if before is not None and campaign.id != before.id:
            raise SchemaError(
                f"{self._address} now runs another campaign: {campaign.id.hex()[:12]} instead of "
                f"{before.id.hex()[:12]}; start the student anew"
            )
        if before is not None and before.classes and campaign.classes != before.classes:
            raise ProtocolError(f"{self._address} changed the classes of a campaign under way")
        self._campaign = campaign
        return campaign

    def events(self) -> Iterator[Event]:
        """Follow the labels, from the first, to the end of the campaign.

        Each event comes once, whatever happens to the connection; the last is a
        :class:`CampaignEnd`.

        Raises:
            ProtocolError: if a cursor does not count up, a query is labelled twice, or a number
                is out of range.
            SchemaError, UnreachableError: as for :meth:`campaign`.
        """
        check = _EventCheck(self._public.queries)
        self.campaign()
        end: CampaignEnd | None = None
        while end is None:
            request = wire.StreamLabelsRequest(after=check.cursor, follow=True)
            try:
                for event in self._stub.StreamLabels(request, timeout=self._stream_seconds):
                    self._stream.found()
                    if end is not None:
                        raise ProtocolError("an event came after the end of the campaign")
                    checked = check.event(event, self._class_count)
                    if isinstance(checked, CampaignEnd):
                        # Read on: the server closes the stream when it knows that this arrived.
                        end = checked
                    else:
                        yield checked
                if end is None:
                    self._stream.lost("it ended the stream of labels before the campaign ended")
            except grpc.RpcError as error:
                if end is not None:
                    break
                if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._stream.found()  # it was quiet until its appointed end, and that is all
                else:
                    self._judge(error, self._stream)
            # Says whether the server is there at all, and still runs the same campaign.
            self.campaign()
        yield end

    def submit(
        self, number: int, probabilities: NDArray[np.float32], accuracy: float | None = None
    ) -> bool:
        """Give the predictions that a round needs.

        Args:
            number: the round that they are for, from 2.
            probabilities: (queries, classes) float32; each row sums to 1.
            accuracy: of the student on labelled inputs of its own, 0 to 1, for the server's page;
                None to say nothing.

        Returns:
            Whether the server already had predictions for this round; those count.

        Raises:
            DataError: if they have another shape, are no probabilities, or too many for one
                message; or the accuracy is no share.
            RefusedError: if the server does not want them.
            UnreachableError: as for :meth:`campaign`.
        """
        shape = (self._public.queries, self._class_count())
        if probabilities.shape != shape or probabilities.dtype != np.float32:
            raise DataError(
                f"predictions are {shape} float32, got {probabilities.shape} {probabilities.dtype}"
            )
        sums = probabilities.sum(axis=1, dtype=np.float64)
        if not (probabilities >= 0).all() or not (np.abs(sums - 1.0) < 1e-3).all():
            raise DataError("each row of predictions is made of probabilities that sum to 1")
        if accuracy is not None and not 0 <= accuracy <= 1:
            raise DataError(f"an accuracy is a share from 0 to 1, got {accuracy}")
        content = probabilities.astype("<f4").tobytes()
        if len(content) > LARGEST_MESSAGE - 1024:
            raise DataError(
                f"{len(content)} bytes of predictions do not fit one message of {LARGEST_MESSAGE};"
                " use a smaller public set"
            )
        assert self._campaign is not None  # noqa: S101  # _class_count asked for it
        message = wire.Predictions(
            campaign=self._campaign.id,
            round=number,
            rows=shape[0],
            classes=shape[1],
            probabilities=content,
            accuracy=accuracy,
        )
        receipt = self._ask(
            lambda: self._stub.SubmitPredictions(message, timeout=6 * _CALL_SECONDS)
        )
        return bool(receipt.already_had)

    def noisy_votes(self) -> NoisyVotes | None:
        """Return the noisy counts of neighbour votes, None where the campaign has none.

        Raises:
            ProtocolError: for counts that do not fit the campaign.
            RefusedError, UnreachableError: as for :meth:`submit`.
        """
        request = wire.GetNoisyVotesRequest()
        message = self._ask(lambda: self._stub.GetNoisyVotes(request, timeout=_CALL_SECONDS))
        if not message.queries:
            return None
        rows, classes = len(message.queries), self._class_count()
        if message.classes != classes or len(message.counts) != 8 * rows * classes:
            raise ProtocolError(f"{self._address} sent noisy votes of another shape")
        counts = np.frombuffer(message.counts, dtype="<i8").reshape(rows, classes)
        try:
            noisy = NoisyVotes(
                np.array(message.queries, dtype=np.int64), counts.astype(np.int64), message.sigma
            )
        except (DataError, OverflowError) as error:
            raise ProtocolError(f"{self._address} sent {error}") from error
        if noisy.queries[-1] >= self._public.queries:
            raise ProtocolError(f"{self._address} sent noisy votes on queries that there are not")
        return noisy

    def privacy_statement(self) -> str:
        """Return the text of ``privacy.json``.

        Raises:
            ProtocolError: if it does not say what every such statement says.
            RefusedError, UnreachableError: as for :meth:`submit`.
        """
        request = wire.GetPrivacyStatementRequest()
        message = self._ask(lambda: self._stub.GetPrivacyStatement(request, timeout=_CALL_SECONDS))
        text: str = message.json
        try:
            checked_statement(text)
        except DataError as error:
            raise ProtocolError(f"{self._address} sent {error}") from error
        return text

    def _class_count(self) -> int:
        campaign = self._campaign
        if campaign is None or not campaign.classes:
            campaign = self.campaign()
        if not campaign.classes:
            raise ProtocolError(f"{self._address} released a label before it named its classes")
        return len(campaign.classes)

    def _ask(self, call: Callable[[], _T]) -> _T:
        while True:
            try:
                answer = call()
            except grpc.RpcError as error:
                self._judge(error, self._calls)
            else:
                self._calls.found()
                return answer

    def _judge(self, error: grpc.RpcError, patience: _Patience) -> None:
        """Wait a moment if asking again can help.

        Raises:
            ProtocolError, RefusedError, UnreachableError: if it cannot.
        """
        code, details = error.code(), _readable(error.details() or "")
        too_large = code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details
        if "deserializing" in details or too_large or code == grpc.StatusCode.UNIMPLEMENTED:
            raise ProtocolError(
                f"{self._address} does not speak this version of the protocol: {details}"
            ) from error
        if code not in _GONE:
            raise RefusedError(f"{self._address} said no: {details or code.name}") from error
        patience.lost(details or code.name)


class _Patience:
    """How long something has not worked, and how long to wait before it is tried again."""

    def __init__(self, address: str, max_wait: float, say: Callable[[str], None]) -> None:
        self._address = address
        self._max_wait = max_wait
        self._say = say
        self._since: float | None = None
        self._pause = _FIRST_PAUSE

    def lost(self, why: str) -> None:
        """Wait a moment.

        Raises:
            UnreachableError: if it has not worked for too long.
        """
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._say(f"waiting for the server at {self._address}: {why}")
        left = self._since + self._max_wait - now
        if left <= 0:
            raise UnreachableError(
                f"nothing from {self._address} for {self._max_wait:g} s ({why}); is pate-server "
                "running there, and is the port the one of its student service?"
            )
        time.sleep(min(self._pause, left))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def found(self) -> None:
        """Note that it works."""
        if self._since is not None:
            self._say(f"the server at {self._address} is there")
        self._since = None
        self._pause = _FIRST_PAUSE


class _EventCheck:
    """What must hold from one event to the next, across connections."""

    def __init__(self, queries: int) -> None:
        self.cursor = 0
        self._queries = queries
        self._labelled: set[int] = set()
        self._round = 0

    def event(self, event: wire.LabelEvent, class_count: Callable[[], int]) -> Event:
        """Return an event as a value.

        Raises:
            ProtocolError: if it does not follow from those before it.
        """
        if event.cursor <= self.cursor:
            raise ProtocolError(f"event {event.cursor} came after event {self.cursor}")
        kind = event.WhichOneof("body")
        made: Event
        if kind == "label":
            made = self._label(event.label, class_count())
        elif kind == "round_end":
            made = self._round_end(event.round_end)
        elif kind == "campaign_end":
            made = self._campaign_end(event.campaign_end)
        else:
            raise ProtocolError(f"event {event.cursor} is of a kind that this version has not")
        self.cursor = event.cursor
        return made

    def _label(self, label: wire.Label, classes: int) -> LabelRow:
        if label.query >= self._queries:
            raise ProtocolError(f"a label for query {label.query} of {self._queries}")
        if label.label >= classes:
            raise ProtocolError(f"a label for class {label.label} of {classes}")
        if label.query in self._labelled:
            raise ProtocolError(f"query {label.query} was labelled twice")
        if label.round != self._round + 1:
            raise ProtocolError(f"a label of round {label.round} after the end of {self._round}")
        if label.source not in _SOURCES:
            raise ProtocolError(f"a label of the unknown source {label.source}")
        self._labelled.add(label.query)
        return LabelRow(label.query, label.label, label.round, _SOURCES[label.source])

    def _round_end(self, end: wire.RoundEnd) -> RoundEnd:
        if end.round != self._round + 1:
            raise ProtocolError(f"round {end.round} ended after round {self._round}")
        self._round = end.round
        return RoundEnd(end.round, end.wants_predictions)

    def _campaign_end(self, end: wire.CampaignEnd) -> CampaignEnd:
        if end.labels_released != len(self._labelled):
            raise ProtocolError(
                f"the server released {end.labels_released} labels, {len(self._labelled)} arrived"
            )
        return CampaignEnd(end.labels_released)


def _checked_campaign(info: wire.CampaignInfo, own: PublicSet) -> Campaign:
    if not 1 <= len(info.id) <= 64 or len(info.public_set) != 32:
        raise ProtocolError("a campaign whose identity or public set is not a hash")
    if info.schema != own.schema:
        raise SchemaError(
            f"the campaign's inputs are {_readable(info.schema)}, the public set's are {own.schema}"
        )
    if info.queries != own.queries or info.public_set != own.content_hash:
        raise SchemaError(
            f"the campaign's public set has {info.queries} inputs and the hash "
            f"{info.public_set.hex()[:12]}, this one {own.queries} and {own.content_hash.hex()[:12]};"
            " give --public the same files in the same order as the server has"
        )
    classes = tuple(info.classes)
    if len(classes) == 1 or len(classes) > _MOST_CLASSES or len(set(classes)) != len(classes):
        raise ProtocolError(f"a campaign with {len(classes)} classes, or one of them twice")
    if any(not name or len(name) > 200 for name in classes):
        raise ProtocolError("a campaign with a class without a name, or with an endless one")
    if info.phase not in PHASES:
        raise ProtocolError(f"a campaign in the unknown phase {_readable(info.phase)!r}")
    return Campaign(
        id=info.id,
        name=_readable(info.name),
        mechanism=_readable(info.mechanism),
        classes=classes,
        rounds=info.rounds,
        phase=info.phase,
    )


def _readable(text: str) -> str:
    """Return a foreign text fit for one line of a screen."""
    return "".join(mark if mark.isprintable() else " " for mark in text[:200])
