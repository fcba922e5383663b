"""The student's client of the server: receives labels, sends predictions, and waits for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self, TypeVar

import grpc
import numpy as np

from pate.codes import NEAREST
from pate.errors import DataError, ProtocolError, RefusedError, SchemaError, UnreachableError
from pate.formats.labels import checked_statement
from pate.formats.noisy_counts import NoisyVotes, RoundCounts
from pate.rounds.model import RoundModel
from pate.runtime.child import is_loopback, proxy_variable
from protos.pate.v1 import student_pb2 as wire
from protos.pate.v1.student_pb2_grpc import StudentStub
from protos.student_proof import PROOF_KEY, predictions_proof, reading_proof
from student.arrivals import CampaignEnd, EventCheck, checked_campaign, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from student.arrivals import Campaign, Event, PublicSet

#: Largest message either way, bytes.
LARGEST_MESSAGE: Final = 64 * 2**20
#: A quiet stream is reopened after this long, so that a lost server is noticed.
STREAM_SECONDS: Final = 60.0
_CALL_SECONDS: Final = 20.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0

_GONE: Final = frozenset({
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.RESOURCE_EXHAUSTED,  # too many followers
})  # fmt: skip

_T = TypeVar("_T")


class StudentClient:
    """A connection to a server's student service; ``say`` gets a line when it is lost or restored."""

    def __init__(
        self,
        address: str,
        public: PublicSet,
        *,
        max_wait: float = 600.0,
        say: Callable[[str], None] = lambda _line: None,
        root_certificates: bytes | None = None,
        stream_seconds: float = STREAM_SECONDS,
        token: str | None = None,
    ) -> None:
        """Prepare a connection to ``HOST:PORT``; nothing is sent before the first call.

        Without ``root_certificates``, PEM of the authority that signed the server's certificate, there is no
        TLS. Without ``token`` labels can be read, but no predictions submitted.
        """
        #: May be set later, before :meth:`events`.
        self.token = token
        self._address = address
        self._public = public
        self._stream_seconds = stream_seconds
        self._campaign: Campaign | None = None
        is_here = is_loopback(address.rpartition(":")[0])
        # As gRPC looks for them: no capitals.
        proxy = None if is_here else proxy_variable("grpc_proxy", "https_proxy", "http_proxy")
        # A server may answer calls but break every stream, so the two are timed separately.
        self._calls = _Patience(address, max_wait, say, proxy)
        self._stream = _Patience(address, max_wait, say, proxy)
        options = [
            ("grpc.max_receive_message_length", LARGEST_MESSAGE),
            ("grpc.max_send_message_length", LARGEST_MESSAGE),
            ("grpc.enable_retries", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.enable_http_proxy", int(not is_here)),
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
        """Fetch the description of the campaign."""
        request = wire.GetCampaignRequest()
        info = self._ask(lambda: self._stub.GetCampaign(request, timeout=_CALL_SECONDS))
        campaign = checked_campaign(info, self._public)
        before = self._campaign
        if before is not None and campaign.id != before.id:
            raise SchemaError(
                f"{self._address} now runs another campaign: {campaign.id.hex()[:12]} instead of "
                f"{before.id.hex()[:12]}; restart the student"
            )
        if before is not None and before.classes and campaign.classes != before.classes:
            raise ProtocolError(f"{self._address} changed the classes of a campaign under way")
        self._campaign = campaign
        return campaign

    def events(self) -> Iterator[Event]:
        """Follow the labels from the first to the :class:`CampaignEnd`, each event once whatever happens."""
        check = EventCheck(self._public.queries)
        self.campaign()
        end: CampaignEnd | None = None
        while end is None:
            request = wire.StreamLabelsRequest(after=check.cursor, follow=True)
            try:
                for event in self._stub.StreamLabels(
                    request, timeout=self._stream_seconds, metadata=self._as_reader()
                ):
                    self._stream.found()
                    if end is not None:
                        raise ProtocolError("an event came after the end of the campaign")
                    checked = check.event(event, self._class_count)
                    if isinstance(checked, CampaignEnd):
                        # Continue reading: the server closes the stream when it knows that this
                        # arrived.
                        end = checked
                    else:
                        yield checked
                if end is None:
                    self._stream.lost("it ended the stream of labels before the campaign ended")
            except grpc.RpcError as error:
                if end is not None:
                    break
                if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._stream.found()  # a quiet stream reached its time limit
                else:
                    self._judge(error, self._stream)
            # Checks that the server is up and still runs the same campaign.
            self.campaign()
        yield end

    def submit(
        self, number: int, probabilities: NDArray[np.float32], accuracy: float | None = None
    ) -> bool:
        """Submit the predictions for a round, (queries, classes) float32, of rows that sum to 1.

        ``accuracy``, for the server's page, is that on own labels. Return whether there were some before.
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
            raise DataError(f"an accuracy must be between 0 and 1, got {accuracy}")
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
        proof = None if self.token is None else predictions_proof(self.token, message)
        receipt = self._ask(
            lambda: self._stub.SubmitPredictions(
                message, timeout=6 * _CALL_SECONDS, metadata=_metadata(proof)
            )
        )
        return bool(receipt.already_had)

    def noisy_votes(self) -> NoisyVotes | None:
        """Return the noisy counts of neighbour votes, None if the campaign has none."""
        request = wire.GetNoisyVotesRequest()
        message = self._ask(lambda: self._stub.GetNoisyVotes(request, timeout=_CALL_SECONDS))
        if not message.queries:
            return None
        rows, classes = len(message.queries), self._class_count()
        if message.classes != classes or any(
            len(each.counts) != 8 * rows * classes for each in (message, *message.earlier)
        ):
            raise ProtocolError(f"{self._address} sent noisy votes of another shape")
        shape = rows, classes
        try:
            noisy = NoisyVotes(
                np.array(message.queries, dtype=np.int64),
                _counts(message.counts, shape),
                message.sigma,
                message.code or NEAREST,
                _model(message.shown),
                tuple(
                    RoundCounts(_counts(each.counts, shape), each.sigma, _model(each.shown))
                    for each in message.earlier
                ),
                _model(message.model),
            )
        except (DataError, ProtocolError, OverflowError) as error:
            raise ProtocolError(f"{self._address} sent {error}") from error
        if noisy.queries[-1] >= self._public.queries:
            raise ProtocolError(f"{self._address} sent noisy votes on unknown queries")
        return noisy

    def privacy_statement(self) -> str:
        """Return the text of ``privacy.json``."""
        request = wire.GetPrivacyStatementRequest()
        message = self._ask(
            lambda: self._stub.GetPrivacyStatement(
                request, timeout=_CALL_SECONDS, metadata=self._as_reader()
            )
        )
        text: str = message.json
        try:
            checked_statement(text)
        except DataError as error:
            raise ProtocolError(f"{self._address} sent {error}") from error
        return text

    def _as_reader(self) -> tuple[tuple[str, str], ...]:
        if self.token is None:
            return ()
        campaign = self._campaign or self.campaign()
        return _metadata(reading_proof(self.token, campaign.id))

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
        """Wait a moment if repeating the call can help."""
        code, details = error.code(), readable(error.details() or "")
        too_large = code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details
        if "deserializing" in details or too_large or code == grpc.StatusCode.UNIMPLEMENTED:
            raise ProtocolError(
                f"{self._address} does not speak this version of the protocol: {details}"
            ) from error
        if code == grpc.StatusCode.UNAUTHENTICATED:
            raise RefusedError(
                f"{self._address} refused: {details}; give --token-file with that file, or a copy of it"
            ) from error
        if code not in _GONE:
            raise RefusedError(f"{self._address} refused: {details or code.name}") from error
        patience.lost(details or code.name)


def _counts(raw: bytes, shape: tuple[int, int]) -> NDArray[np.int64]:
    return np.frombuffer(raw, dtype="<i8").reshape(shape).astype(np.int64)


def _model(raw: bytes) -> RoundModel | None:
    return RoundModel.from_bytes(raw) if raw else None


def _metadata(proof: str | None) -> tuple[tuple[str, str], ...]:
    return () if proof is None else ((PROOF_KEY, proof),)


class _Patience:
    """Tracks how long calls have failed, and the pause before the next attempt."""

    def __init__(
        self,
        address: str,
        max_wait: float,
        say: Callable[[str], None],
        proxy: tuple[str, str] | None,
    ) -> None:
        self._address = address
        self._hint = "is pate-server running there, and is the port the one of its student service?"
        if proxy is not None:
            variable, through = proxy
            self._hint = (
                f"{variable} names the proxy {through}: does it let this connection pass, or should "
                "no_proxy name the server?"
            )
        self._max_wait = max_wait
        self._say = say
        self._since: float | None = None
        self._pause = _FIRST_PAUSE

    def lost(self, why: str) -> None:
        """Wait a moment."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            # gRPC's message for a server that is not running has four lines, and no information.
            is_away = "failed to connect" in why.lower()
            what = "it does not answer (yet)" if is_away else why
            self._say(f"waiting for the server at {self._address}: {what}")
        left = self._since + self._max_wait - now
        if left <= 0:
            raise UnreachableError(
                f"nothing from {self._address} for {self._max_wait:g} s ({why}); {self._hint}"
            )
        time.sleep(min(self._pause, left))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def found(self) -> None:
        """Record a success."""
        if self._since is not None:
            self._say(f"the server at {self._address} is available")
        self._since = None
        self._pause = _FIRST_PAUSE
