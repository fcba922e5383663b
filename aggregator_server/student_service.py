"""The gRPC service by which a student gets labels and submits its predictions.

It reads only committed entries of the ledger, so a label that a student has seen is on the disk,
and a restarted server sends the same events under the same cursors.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from aggregator_server.campaign.labelling import checked_accuracy, checked_predictions
from aggregator_server.results.statement import expected_of, privacy_statement
from pate.campaign.choices import NO_GUESS, Guess
from pate.errors import LedgerError, PateError, PortInUseError, StateError, UsageError
from pate.foreign import json_value
from pate.runtime.failpoints import reach
from pate.runtime.home import STUDENT_TOKEN, new_token, same
from protos.pate.v1 import student_pb2, student_pb2_grpc
from protos.student_proof import PROOF_KEY, predictions_proof, reading_proof
from protos.terms import packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.state import CampaignState
    from pate.rounds.model import RoundModel
    from pate.storage.hash_chain import Entry

#: Largest message in either direction, bytes.
MESSAGE_LIMIT: Final = 64 * 1024 * 1024

#: Most students that may follow at a time; each occupies a thread.
FOLLOWERS: Final = 8

#: Others would need TLS.
_HOST: Final = "127.0.0.1"
_NAME: Final = "pate.v1.Student"
_TELLING: Final = ("release", "round-end", "close")
_SOURCES: Final = {
    "teachers": student_pb2.SOURCE_TEACHERS,
    "reinforced": student_pb2.SOURCE_REINFORCED,
    "records": student_pb2.SOURCE_RECORDS,
}


class StudentService(student_pb2_grpc.StudentServicer):
    """Serves one campaign's labels on a loopback port.

    Anyone who can reach it may read released labels. Predictions, which influence spending, are
    accepted only with the token, and at the end the server waits only for its holder.
    """

    def __init__(
        self,
        ledger: Ledger,
        port: int = 0,
        token: str | None = None,
        guess: Guess = NO_GUESS,
    ) -> None:
        self._ledger = ledger
        self._guess = guess
        self.port = port  # to serve on, and that is served, once started
        self.token = new_token() if token is None else token  # of the student
        #: Of before and after the roster.
        self._warnings: dict[bool, str] = {}
        self._stopping = threading.Event()
        self._count = threading.Lock()
        self.followers = 0  # students that follow now
        self.accuracies: dict[int, float] = {}  # the student's stated ones by round, in memory only
        self._progress = threading.Condition()
        self._sent_end, self._sent_statement = threading.Event(), threading.Event()
        self._server: grpc.Server | None = None
        self._health = health.HealthServicer()

    def start(self) -> int:
        """Serve; return the port."""
        # Followers occupy a thread each; the others serve the short calls.
        pool = ThreadPoolExecutor(FOLLOWERS + 4, thread_name_prefix="student-service")
        server = grpc.server(
            pool,
            options=(
                ("grpc.max_receive_message_length", MESSAGE_LIMIT),
                ("grpc.max_send_message_length", MESSAGE_LIMIT),
                # Otherwise two servers could share a port and each get half of the calls.
                ("grpc.so_reuseport", 0),
            ),
        )
        student_pb2_grpc.add_StudentServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        try:
            bound = server.add_insecure_port(f"{_HOST}:{self.port}")
        except RuntimeError as error:
            server.stop(None)
            _refuse_port(self.port, error)
        if bound == 0:
            server.stop(None)
            _refuse_port(self.port, None)
        server.start()
        for name in ("", _NAME):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._server, self.port = server, bound
        return bound

    def stop(self, grace: float = 2.0) -> None:
        """End streams and calls, after at most ``grace`` seconds, and free the port."""
        self._stopping.set()
        self._ledger.wake()
        self._health.enter_graceful_shutdown()
        if self._server is not None:
            self._server.stop(grace).wait()
            self._server = None

    def wait_for_predictions(
        self, round_: int, stop: threading.Event, meanwhile: Callable[[], None] = lambda: None
    ) -> Probabilities | None:
        """Wait until the student's predictions for a round are in the ledger, and return them.

        None if ``stop``, polled four times a second with ``meanwhile``, was set or the service
        ended first.
        """

        def done() -> bool:
            return stop.is_set() or self._stopping.is_set()

        state = self._ledger.state()
        while round_ not in state.predictions and not done():
            meanwhile()
            state = self._ledger.wait_after(state.head.seq, done, timeout=0.25)
        return self._ledger.predictions(round_) if round_ in state.predictions else None

    @property
    def delivered(self) -> bool:
        """Whether a student with the token got the campaign's end and the final statement."""
        return self._sent_end.is_set() and self._sent_statement.is_set()

    def wait_until_delivered(self, stop: threading.Event, timeout: float | None = None) -> bool:
        """Wait until :attr:`delivered`, ``stop`` or ``timeout`` seconds; return the first."""

        def done() -> bool:
            return self.delivered or stop.is_set() or self._stopping.is_set()

        waited, step = 0.0, 0.25
        while not done() and (timeout is None or waited < timeout):
            pause = step if timeout is None else min(step, timeout - waited)
            with self._progress:
                self._progress.wait_for(done, pause)
            waited += pause
        return self.delivered

    # --- the calls ------------------------------------------------------------------------

    def GetCampaign(  # noqa: N802  (the name is the protocol's)
        self, request: student_pb2.GetCampaignRequest, context: grpc.ServicerContext
    ) -> student_pb2.CampaignInfo:
        """Return the public description of the campaign."""
        del request, context
        state = self._ledger.state()
        known = replace(state.spec.announced, classes=state.classes or state.spec.classes)
        return student_pb2.CampaignInfo(
            campaign=packed(known.text),
            name=state.spec.name,
            phase=state.phase,
            expected=self._expected(state),
        )

    def _expected(self, state: CampaignState) -> str:
        """Return what to expect before the labels are there, if few or of a rarest class; else nothing."""
        if state.rounds_over:
            return ""
        known = bool(state.roster)
        if known not in self._warnings:
            text = ""
            with contextlib.suppress(PateError):  # the campaign itself says so
                found = expected_of(state, self._guess)
                if found.few or self._guess.rarest is not None:
                    text = "; what helps: ".join(filter(None, (found.text, found.advice)))
            self._warnings[known] = text
        return self._warnings[known]

    def StreamLabels(  # noqa: N802
        self, request: student_pb2.StreamLabelsRequest, context: grpc.ServicerContext
    ) -> Iterator[student_pb2.LabelEvent]:
        """Send events after the cursor; with ``follow`` until the campaign has ended."""
        own = self._reads(context)
        with self._count:
            if has_room := self.followers < FOLLOWERS:
                self.followers += 1
        if not has_room:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{FOLLOWERS} students follow already"
            )
        try:
            yield from self._events(request.after, request.follow, context, own=own)
        finally:
            with self._count:
                self.followers -= 1

    def _events(
        self, after: int, follow: bool, context: grpc.ServicerContext, *, own: bool
    ) -> Iterator[student_pb2.LabelEvent]:
        def gone() -> bool:
            return self._stopping.is_set() or not context.is_active()

        # Otherwise a disconnected follower would occupy its thread until the next entry.
        context.add_callback(self._ledger.wake)
        seen = after >> _INDEX_BITS
        while True:
            state = self._ledger.state()
            for event in self._read(max(seen, 1), after, context):
                yield event
                reach("label-sent")
                after = event.cursor
            if state.phase == "finished":
                if own:
                    self._note(self._sent_end)
                return
            if not follow:
                return
            seen = state.head.seq
            self._ledger.wait_after(seen, gone)
            if self._stopping.is_set():
                context.abort(
                    grpc.StatusCode.UNAVAILABLE, "the server is stopping: come back later"
                )
            if not context.is_active():
                return

    def _read(
        self, least: int, after: int, context: grpc.ServicerContext
    ) -> list[student_pb2.LabelEvent]:
        try:
            entries = self._ledger.entries(least, _TELLING)
        except PateError as error:
            context.abort(grpc.StatusCode.INTERNAL, type(error).public)
        return [e for entry in entries for e in _told(entry) if e.cursor > after]

    def SubmitPredictions(  # noqa: N802
        self, request: student_pb2.Predictions, context: grpc.ServicerContext
    ) -> student_pb2.PredictionsReceipt:
        """Check and record the student's predictions; only the first ones for a round count."""
        if not self._proved(context, predictions_proof(self.token, request)):
            context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                f"predictions need the token in {STUDENT_TOKEN} of the server's home",
            )
        state = self._ledger.state()
        if request.campaign != bytes.fromhex(state.spec.id):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "predictions for another campaign")
        if request.round not in state.predictions:
            if state.phase != "predicting" or request.round != state.round:
                context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"no predictions are expected for round {request.round}",
                )
            try:
                probabilities = checked_predictions(request, state)
                accuracy = checked_accuracy(request)
            except UsageError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            try:
                reach("predictions-arrived")
                already = self._ledger.record_predictions(request.round, probabilities)
                reach("predictions-recorded")
            except (StateError, LedgerError):
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the campaign has continued")
            except PateError as error:
                context.abort(grpc.StatusCode.INTERNAL, type(error).public)
            if accuracy is not None and not already:
                self.accuracies[request.round] = accuracy
            return student_pb2.PredictionsReceipt(already_had=already)
        return student_pb2.PredictionsReceipt(already_had=True)

    def GetNoisyVotes(  # noqa: N802
        self, request: student_pb2.GetNoisyVotesRequest, context: grpc.ServicerContext
    ) -> student_pb2.NoisyVotes:
        """Return the released noisy counts of neighbour votes, empty if there are none."""
        del request, context
        state = self._ledger.state()
        if state.noisy is None:
            return student_pb2.NoisyVotes(classes=len(state.classes))
        return student_pb2.NoisyVotes(
            queries=state.noisy.queries.tolist(),
            classes=len(state.classes),
            counts=state.noisy.counts.astype("<i8").tobytes(),
            sigma=state.noisy.sigma,
            code=state.noisy.code,
            shown=_model(state.noisy.shown),
            earlier=[
                student_pb2.RoundCounts(
                    counts=each.counts.astype("<i8").tobytes(),
                    sigma=each.sigma,
                    shown=_model(each.shown),
                )
                for each in state.noisy.earlier
            ],
            model=_model(state.noisy.model),
        )

    def GetPrivacyStatement(  # noqa: N802
        self, request: student_pb2.GetPrivacyStatementRequest, context: grpc.ServicerContext
    ) -> student_pb2.PrivacyStatement:
        """Return the statement as of now; it is final once the campaign is finished."""
        del request
        own = self._reads(context)
        state = self._ledger.state()
        try:
            statement = privacy_statement(state)
        except StateError:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "the campaign has no roster yet: no statement"
            )
        if own and state.phase == "finished":
            context.add_callback(lambda: self._note(self._sent_statement))
        return student_pb2.PrivacyStatement(json=statement.to_json())

    def _reads(self, context: grpc.ServicerContext) -> bool:
        """Return whether the reader has the token; reading does not require it."""
        campaign = bytes.fromhex(self._ledger.state().spec.id)
        return self._proved(context, reading_proof(self.token, campaign))

    def _proved(self, context: grpc.ServicerContext, wanted: str) -> bool:
        """Return whether a call has the token; a wrong token ends the call."""
        given = dict(context.invocation_metadata()).get(PROOF_KEY)
        if given is None:
            return False
        if not same(str(given), wanted):
            context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                f"the token given is not the one in {STUDENT_TOKEN} of the server's home",
            )
        return True

    def _note(self, what: threading.Event) -> None:
        with self._progress:
            what.set()
            self._progress.notify_all()


#: Bits of a cursor that number the events of one entry.
_INDEX_BITS: Final = 20


def _model(model: RoundModel | None) -> bytes:
    return b"" if model is None else model.to_bytes()


def _told(entry: Entry) -> Iterator[student_pb2.LabelEvent]:
    """Yield the public events of an entry. A cursor is the entry's number, then the place in it."""
    body = json_value(entry.body)
    cursor = entry.seq << _INDEX_BITS
    if entry.kind == "release":
        for place, (query, label, source, _) in enumerate(body["answers"]):
            if label is not None:
                told = student_pb2.Label(
                    query=query, label=label, round=body["round"], source=_SOURCES[source]
                )
                yield student_pb2.LabelEvent(cursor=cursor | place, label=told)
    elif entry.kind == "round-end":
        end = student_pb2.RoundEnd(round=body["round"], wants_predictions=body["wants_predictions"])
        yield student_pb2.LabelEvent(cursor=cursor, round_end=end)
    elif entry.kind == "close":
        closed = student_pb2.CampaignEnd(labels_released=body["labels_released"])
        yield student_pb2.LabelEvent(cursor=cursor, campaign_end=closed)


def _refuse_port(port: int, cause: Exception | None) -> NoReturn:
    """Raise an error that explains why a port is not available."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"{_HOST}:{port} cannot be served: {error.strerror}") from cause
    # Also if the probe succeeded: the port was released in between.
    raise PortInUseError(
        f"port {port} on {_HOST} is taken by another program: stop it or choose another --student-port"
    ) from cause
