"""Small real data and a scripted server, for the tests of the student."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray

from pate.codes import DENSE, code_of
from pate.data.values import Dataset, Images, Inputs, Table
from pate.features.dense import Directions, dense_sums, dense_votes, looked_at
from pate.features.neighbours import cast_answers, cast_votes, representatives
from pate.features.space import directions_over, space_over
from pate.formats.noisy_counts import NoisyVotes
from pate.storage.hash_chain import canonical
from protos.pate.v1 import student_pb2 as wire
from protos.pate.v1 import student_pb2_grpc
from protos.terms import packed
from student.client import StudentClient
from student.evaluation.fairness import Groups, by_group
from student.fit.rows import TableStudent
from student.lesson import Lesson
from student.session import identify
from student.training import train
from tests.support.campaign_messages import campaign_message

TEN = tuple("0123456789")
STATEMENT: dict[str, object] = {
    "epsilon": 1.97, "delta": 1e-5, "unit": "record", "adjacency": "one teacher's vote changed",
    "observer": "public", "mechanism": "confident-gnmax", "ledger_head": "ab" * 32,
}  # fmt: skip
PRIVACY = json.dumps(STATEMENT, indent=1) + "\n"


def digits() -> tuple[Dataset, Dataset]:
    """Return 900 public and 897 other digits, 8x8, shuffled once and for all."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(7).permutation(len(bunch.target))
    pixels = np.minimum(bunch.data.reshape(-1, 8, 8, 1) * 16, 255).astype(np.uint8)[order]
    labels = bunch.target.astype(np.int64)[order]
    return (
        Dataset(Images(pixels[:900].copy()), labels[:900].copy(), TEN),
        Dataset(Images(pixels[900:].copy()), labels[900:].copy(), TEN),
    )


def tumours() -> tuple[Dataset, Dataset]:
    """Return 400 public and 169 other rows of 30 numbers, two classes."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    order = np.random.default_rng(7).permutation(len(bunch.target))
    names = tuple(str(name) for name in bunch.feature_names)
    table = Table(names, tuple(column.copy() for column in bunch.data.T.astype(np.float64)))
    data = Dataset(table, bunch.target.astype(np.int64), ("malignant", "benign"))
    return data.take(order[:400]), data.take(order[400:])


def noisy_lesson(data: Dataset, count: int, wrong: float, seed: int = 0) -> Lesson:
    """Return labels of ``count`` public inputs, of which exactly a share of ``wrong`` is wrong."""
    generator = np.random.default_rng(seed)
    queries = generator.permutation(len(data))[:count].astype(np.int64)
    labels = data.labels[queries].copy()
    flipped = generator.permutation(count)[: round(count * wrong)]
    shift = generator.integers(1, len(data.classes), len(flipped))
    labels[flipped] = (labels[flipped] + shift) % len(data.classes)
    return Lesson(data.inputs, queries, labels, data.classes)


def noisy_votes(
    public: Inputs,
    private: Inputs,
    said: NDArray[np.int64],  # (n,) classes of the private records, or (n, m) answers of any kind
    code: str,
    chosen: int | NDArray[np.int64],  # representatives, or their number
    sigma: float,  # of the noise, in votes
    *,
    classes: int = 0,  # their number, if classes are said
    noise: int | np.random.Generator = 4,
) -> NoisyVotes:
    """Return what private records say at representatives of a public set."""
    made = code_of(code)
    space = (directions_over if made.name == DENSE else space_over)(public)
    spots, voters = space.embed(public), space.embed(private)
    at = representatives(spots, chosen) if isinstance(chosen, int) else chosen
    if made.name == DENSE:
        directions = Directions.fit(spots[at], spots[looked_at(len(spots))])
        if said.ndim == 1:
            votes = dense_votes(directions, voters, said, classes)
        else:
            votes = dense_sums(directions, voters, said, made.answer.grid)
    elif said.ndim == 1:
        votes = cast_votes(spots[at], voters, said, classes)
    else:
        votes = cast_answers(spots[at], voters, said)
    spread = sigma * made.grid
    drawn = np.rint(spread * np.random.default_rng(noise).normal(size=votes.shape))
    return NoisyVotes(at, votes + drawn.astype(np.int64), float(spread), code)


def taught_rows(lesson: Lesson, *, seed: int = 0, **more: Any) -> TableStudent:
    """Return the default student of rows; ``more`` as of :func:`student.training.train`."""
    from student.fit.rows import TableStudent

    made = train(lesson, seed=seed, **more)
    assert isinstance(made, TableStudent)
    return made


def accuracy(predicted: NDArray[np.int64], data: Dataset) -> float:
    return float((predicted == data.labels).mean())


class ScriptedServer(student_pb2_grpc.StudentServicer):
    """A scripted student service; its messages may be wrong on purpose."""

    def __init__(
        self, inputs: Inputs, classes: tuple[str, ...], events: list[wire.LabelEvent]
    ) -> None:
        self.about = campaign_message(
            inputs, classes=classes, aggregator="confident-gnmax", rounds=2
        )
        self.info = wire.CampaignInfo(name="test", phase="voting")
        self.events = events
        self.privacy = PRIVACY
        self.noisy = wire.NoisyVotes(classes=len(classes))
        self.submitted: dict[int, wire.Predictions] = {}
        self.asked_after: list[int] = []
        #: Called with each event before it is sent; may abort the stream.
        self.before: Callable[[wire.LabelEvent, grpc.ServicerContext], None] = lambda _e, _c: None

    def GetCampaign(  # noqa: N802  # gRPC's name
        self, request: wire.GetCampaignRequest, context: grpc.ServicerContext
    ) -> wire.CampaignInfo:
        self.info.campaign = packed(canonical(self.about.text()["announced"]))
        return self.info

    def StreamLabels(  # noqa: N802  # gRPC's name
        self, request: wire.StreamLabelsRequest, context: grpc.ServicerContext
    ) -> Iterator[wire.LabelEvent]:
        self.asked_after.append(request.after)
        for event in self.events:
            if event.cursor > request.after:
                self.before(event, context)
                yield event

    def SubmitPredictions(  # noqa: N802  # gRPC's name
        self, request: wire.Predictions, context: grpc.ServicerContext
    ) -> wire.PredictionsReceipt:
        had = request.round in self.submitted
        self.submitted.setdefault(request.round, request)
        return wire.PredictionsReceipt(already_had=had)

    def GetNoisyVotes(  # noqa: N802  # gRPC's name
        self, request: wire.GetNoisyVotesRequest, context: grpc.ServicerContext
    ) -> wire.NoisyVotes:
        return self.noisy

    def GetPrivacyStatement(  # noqa: N802  # gRPC's name
        self, request: wire.GetPrivacyStatementRequest, context: grpc.ServicerContext
    ) -> wire.PrivacyStatement:
        return wire.PrivacyStatement(json=self.privacy)


@contextmanager
def serving(service: ScriptedServer, port: int = 0) -> Iterator[int]:
    """Serve on the loopback interface; yields the port."""
    server = grpc.server(
        futures.ThreadPoolExecutor(4),
        options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)],
    )
    student_pb2_grpc.add_StudentServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    assert bound
    server.start()
    try:
        yield bound
    finally:
        server.stop(0).wait()


@contextmanager
def connected(
    server: ScriptedServer, public: Inputs, *, max_wait: float = 20.0, **how: Any
) -> Iterator[StudentClient]:
    """Yield a client of the service; ``how`` as of :class:`StudentClient`."""
    with serving(server) as port:
        address = f"127.0.0.1:{port}"
        with StudentClient(address, identify(public), max_wait=max_wait, **how) as client:
            yield client


@dataclass(frozen=True)
class Parrot:
    """A student that says what its first column says: a class, or the probability of the second of two."""

    classes: tuple[str, ...] = ("a", "b", "c")
    schema: str = "table said:number"
    kind: str = "parrot"

    def predict_probabilities(self, inputs: Inputs) -> NDArray[np.float32]:
        assert isinstance(inputs, Table)
        said = np.asarray(inputs.columns[0], dtype=np.float32)
        if len(self.classes) == 2:
            return np.column_stack([1 - said, said])
        return np.eye(len(self.classes), dtype=np.float32)[said.astype(np.int64)]

    def predict(self, inputs: Inputs) -> NDArray[np.int64]:
        return np.asarray(self.predict_probabilities(inputs).argmax(axis=1))


def label(cursor: int, query: int, value: int, number: int = 1, source: int = 1) -> wire.LabelEvent:
    # An int, since tests also send sources that there are not.
    body = wire.Label(query=query, label=value, round=number, source=source)  # type: ignore[arg-type]
    return wire.LabelEvent(cursor=cursor, label=body)


def round_end(cursor: int, number: int, *, wants: bool = False) -> wire.LabelEvent:
    body = wire.RoundEnd(round=number, wants_predictions=wants)
    return wire.LabelEvent(cursor=cursor, round_end=body)


def campaign_end(cursor: int, labels: int) -> wire.LabelEvent:
    return wire.LabelEvent(cursor=cursor, campaign_end=wire.CampaignEnd(labels_released=labels))


def counted(confusion: dict[str, list[list[int]]], classes: tuple[str, ...]) -> Groups:
    """Return the rates of groups of which each has a row per true class, a column per predicted one."""
    counts = np.array([*confusion.values()])
    group, truth, predicted = np.repeat(np.argwhere(counts >= 0), counts.ravel(), axis=0).T
    found = by_group(np.array([*confusion])[group], truth, predicted, classes)
    assert found is not None
    return found
