"""Noisy votes for a student: from an untrusted server, and from a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pate.codes import GRID
from pate.data.values import Images
from pate.errors import DataError, ProtocolError
from pate.formats.labels import LabelRow, LabelSet
from pate.formats.noisy_counts import NoisyVotes
from pate.mechanisms.matrix import MAX_MATRIX, MAX_MATRIX_QUERIES
from pate.rounds.model import RoundModel
from protos.pate.v1 import student_pb2 as wire
from student.lesson import Student
from student.session import follow, lesson
from tests.support.student_samples import (
    PRIVACY,
    ScriptedServer,
    campaign_end,
    connected,
    label,
    round_end,
)
from tests.support.there import there

PUBLIC = Images(np.arange(6 * 8 * 8, dtype=np.int64).astype(np.uint8).reshape(6, 8, 8, 1))
CLASSES = ("ill", "well")
COUNTS = np.array([[40, -3], [2, 31], [7, 8]], dtype=np.int64)
SIGMA = 4.5
MODEL = RoundModel(np.array([[3, -3], [0, 5], [7, 2**20]]), 700)


def message(**changes: Any) -> wire.NoisyVotes:
    fields: dict[str, Any] = {
        "queries": [0, 2, 5],
        "classes": 2,
        "counts": COUNTS.astype("<i8").tobytes(),
        "sigma": SIGMA,
    }
    return wire.NoisyVotes(**(fields | changes))


def server_with(noisy: wire.NoisyVotes) -> ScriptedServer:
    records = int(wire.SOURCE_RECORDS)
    events = [label(1, 0, 0, source=records), label(2, 2, 1, source=records), round_end(3, 1)]
    server = ScriptedServer(PUBLIC, CLASSES, [*events, campaign_end(4, 2)])
    server.noisy = noisy
    return server


def untrained(*_: object) -> Student:
    raise AssertionError("nobody asked for predictions")


def followed(noisy: wire.NoisyVotes) -> LabelSet:
    with connected(server_with(noisy), PUBLIC) as client:
        return follow(client, PUBLIC, untrained, say=lambda _: None)


def test_a_student_gets_the_noisy_votes_with_the_labels() -> None:
    labels = followed(message())
    assert labels.noisy is not None
    np.testing.assert_array_equal(labels.noisy.counts, COUNTS)
    assert labels.noisy.queries.tolist() == [0, 2, 5]
    assert labels.noisy.sigma == SIGMA
    assert [row.source for row in labels.rows] == ["records", "records"]
    # A trainer is handed them, and the file that is kept has them.
    assert lesson(PUBLIC, labels.rows, CLASSES, labels.noisy).noisy is labels.noisy
    again = LabelSet.from_json(labels.to_json())
    assert again.to_json() == labels.to_json()
    np.testing.assert_array_equal(there(again.noisy).counts, COUNTS)


def test_a_student_hears_and_keeps_where_records_voted() -> None:
    for code, known in (("dense-3", "dense-3"), ("nearest", "nearest"), ("", "nearest")):
        labels = followed(message(code=code))
        assert there(labels.noisy).code == known
        text = labels.to_json()
        # The code of nearest votes is left out.
        assert ('"code"' in text) == (known != "nearest")
        again = there(LabelSet.from_json(text).noisy)
        assert again.code == known


@pytest.mark.parametrize("classes", [0, 2])
def test_campaigns_of_teachers_have_none(classes: int) -> None:
    with connected(server_with(wire.NoisyVotes(classes=classes)), PUBLIC) as client:
        assert client.noisy_votes() is None


#: In which way a message is false.
HOSTILE: dict[str, Callable[[], wire.NoisyVotes]] = {
    "too few counts": lambda: message(counts=COUNTS.astype("<i8").tobytes()[:-8]),
    "half a count": lambda: message(counts=COUNTS.astype("<i8").tobytes()[:-3]),
    "too many counts": lambda: message(counts=bytes(8 * 7)),
    "no counts": lambda: message(counts=b""),
    "other classes": lambda: message(classes=3, counts=bytes(8 * 9)),
    "no classes": lambda: message(classes=0, counts=b""),
    "one class": lambda: message(classes=1, counts=bytes(8 * 3)),
    "many classes": lambda: message(classes=2**32 - 1),
    "a query twice": lambda: message(queries=[0, 2, 2]),
    "queries that fall": lambda: message(queries=[2, 0, 5]),
    "a query too few": lambda: message(queries=[0, 2]),
    "a query too many": lambda: message(queries=[0, 2, 4, 5]),
    "a query outside": lambda: message(queries=[0, 2, 6]),
    "a huge query": lambda: message(queries=[0, 2, 2**63]),
    "the largest query": lambda: message(queries=[0, 2, 2**64 - 1]),
    "noise that is none": lambda: message(sigma=math.nan),
    "endless noise": lambda: message(sigma=math.inf),
    "huge noise": lambda: message(sigma=1e308),
    "negative noise": lambda: message(sigma=-1.0),
    "no code": lambda: message(code="far"),
    "a code with two texts": lambda: message(code="dense-03"),
    "other directions than queries": lambda: message(code="dense-2"),
    "the largest count": lambda: _with(2**63 - 1),
    "the least count": lambda: _with(-(2**63)),
    "a count beyond any votes": lambda: _with(2**41),
    "a model without rounds": lambda: message(model=MODEL.to_bytes()),
    "a shown model without rounds": lambda: message(shown=MODEL.to_bytes()),
    "earlier rounds of nearest votes": lambda: message(
        earlier=[wire.RoundCounts(counts=bytes(48))]
    ),
    "half a model": lambda: in_rounds(model=MODEL.to_bytes()[:-4]),
    "a model of other classes": lambda: in_rounds(
        model=RoundModel(np.zeros((3, 3), np.int64), 5).to_bytes()
    ),
    "a model that cuts nowhere": lambda: in_rounds(model=bytes(6) + MODEL.to_bytes()[6:]),
    "a last round without a model": lambda: in_rounds(shown=b""),
    "class counts with a model": lambda: in_rounds(
        earlier=[_round(shown=MODEL.to_bytes()), _round(shown=MODEL.to_bytes())]
    ),
    "a round between without a model": lambda: in_rounds(earlier=[_round(), _round()]),
    "no class counts": lambda: in_rounds(earlier=[]),
    "a round of another shape": lambda: in_rounds(earlier=[_round(counts=bytes(40))]),
    "a round with endless noise": lambda: in_rounds(earlier=[_round(sigma=math.inf)]),
}


def _round(**changes: Any) -> wire.RoundCounts:
    fields: dict[str, Any] = {"counts": (9 * COUNTS).astype("<i8").tobytes(), "sigma": 2 * SIGMA}
    return wire.RoundCounts(**(fields | changes))


def in_rounds(**changes: Any) -> wire.NoisyVotes:
    """Class counts, and two rounds after them."""
    fields: dict[str, Any] = {
        "code": "dense-3 residual",
        "shown": MODEL.to_bytes(),
        "earlier": [_round(), _round(shown=RoundModel(COUNTS, 9).to_bytes())],
        "model": RoundModel(2 * COUNTS, 11).to_bytes(),
    }
    return message(**(fields | changes))


def test_a_student_gets_all_rounds_and_the_file_has_them() -> None:
    with connected(server_with(in_rounds()), PUBLIC) as client:
        first = client.noisy_votes()
    assert first is not None
    made = labels_with(first)
    stored = LabelSet.from_json(made.to_json())
    assert stored.to_json() == made.to_json()
    assert made.content_in_words == "1 labels"
    assert (
        replace(made, rows=()).content_in_words
        == "a model in 3 directions, after class counts and 2 rounds"
    )
    for noisy in (first, stored.noisy):
        assert noisy is not None
        assert (noisy.shown, noisy.model) == (MODEL, RoundModel(2 * COUNTS, 11))
        counted, between = noisy.earlier
        assert (counted.shown, between.shown) == (None, RoundModel(COUNTS, 9))
        assert np.array_equal(between.counts, 9 * COUNTS)
        counts, sigma = noisy.class_counts
        assert counts.tolist() == (9 * COUNTS[0] / GRID).tolist()
        assert sigma == 2 * SIGMA / GRID
    # Only class counts: they are the last round.
    with connected(server_with(in_rounds(earlier=[], shown=b"")), PUBLIC) as client:
        only = client.noisy_votes()
    assert only is not None
    assert only.class_counts[0].tolist() == (COUNTS[0] / GRID).tolist()
    with pytest.raises(DataError, match="have no model"):
        labels_with(replace(first, model=None))


def _with(count: int) -> wire.NoisyVotes:
    counts = COUNTS.copy()
    counts[1, 0] = count
    return message(counts=counts.astype("<i8").tobytes())


@pytest.mark.parametrize("name", HOSTILE)
def test_a_false_message_is_refused_and_nothing_is_learnt_of_it(name: str) -> None:
    with pytest.raises(ProtocolError, match=r"^127\.0\.0\.1:\d+ sent .+$"):
        followed(HOSTILE[name]())


def test_many_noisy_votes_fit_one_message() -> None:
    """The largest matrix that a campaign may have: a million counts."""
    public = Images(np.zeros((MAX_MATRIX_QUERIES, 1, 1, 1), dtype=np.uint8))
    classes = tuple(f"c{at}" for at in range(MAX_MATRIX // MAX_MATRIX_QUERIES))
    server = ScriptedServer(public, classes, [])
    server.noisy = wire.NoisyVotes(
        queries=range(MAX_MATRIX_QUERIES),
        classes=len(classes),
        counts=bytes(8 * MAX_MATRIX),
        sigma=1,
    )
    with connected(server, public) as client:
        found = client.noisy_votes()
    assert found is not None
    assert found.counts.shape == (MAX_MATRIX_QUERIES, len(classes))


# --- the file -----------------------------------------------------------------------------------


def labels_with(noisy: NoisyVotes | None, *, queries: int = 6) -> LabelSet:
    return LabelSet(
        campaign=b"c" * 16,
        classes=CLASSES,
        public_set=b"p" * 32,
        queries=queries,
        rows=(LabelRow(0, 0, 1, "records"),),
        privacy=PRIVACY,
        noisy=noisy,
    )


def votes(
    queries: list[int] | None = None, counts: Any = COUNTS, sigma: float = SIGMA
) -> NoisyVotes:
    return NoisyVotes(np.array(queries or [0, 2, 5], dtype=np.int64), counts.copy(), sigma)


#: Changes of a file; None takes a part out.
OF_COUNTS: list[dict[str, Any]] = [
    {"sigma": 4}, {"sigma": -1.0}, {"sigma": math.nan}, {"sigma": math.inf}, {"sigma": 1e300},
    {"sigma": True}, {"queries": [0, 2]}, {"queries": [0, 2, 2]}, {"queries": [2, 0, 5]},
    {"queries": [0, 2, 6]}, {"queries": [-1, 2, 5]}, {"queries": [0, 2, 2**70]},
    {"queries": [0, 2, True]}, {"queries": "025"}, {"counts": ["1 2", "3 4"]},
    {"counts": ["1 2", "3 4", "5"]}, {"counts": ["1 2 3", "3 4 5", "5 6 7"]},
    {"counts": ["1", "3", "5"]}, {"counts": ["1 2", "3 4", "5 6.0"]},
    {"counts": ["1 2", "3 4", "5 1_0"]}, {"counts": ["1 2", "3 4", "5  6"]},
    {"counts": ["1 2", "3 4", "5 +6"]}, {"counts": ["1 2", "3 4", "5 ٦"]},
    {"counts": ["1 2", "3 4", "5 " + "9" * 5000]},
    {"counts": ["1 2", "3 4", "5 " + "9" * 15]}, {"counts": []},
    {"counts": [[1, 2], [3, 4], [5, 6]]}, {"counts": "1 2"}, {"more": 1}, {"code": "nearest"},
    {"code": "dense-4"}, {"code": 3}, {"sigma": None}, {"queries": None}, {"counts": None},
]  # fmt: skip
OF_ROUNDS: list[dict[str, Any]] = [
    {"model": None}, {"shown": None}, {"earlier": []}, {"model": {"cut": 5}}, {"code": "dense-3"},
    {"model": {"cut": 0, "weights": ["1 2", "3 4", "5 6"]}},
    {"model": {"cut": 16385, "weights": ["1 2", "3 4", "5 6"]}},
    {"model": {"cut": 5.0, "weights": ["1 2", "3 4", "5 6"]}},
    {"model": {"cut": 5, "weights": ["1 2", "3 4", "5 1048577"]}},
    {"model": {"cut": 5, "weights": ["1 2", "3 4", "5 6e1"]}},
    {"model": {"cut": 5, "weights": ["1 2", "3 4"]}}, {"model": {"cut": 5, "weights": []}},
    {"model": {"cut": 5, "weights": [[1, 2], [3, 4], [5, 6]]}},
    {"earlier": [{"sigma": 1.0, "counts": ["1 2", "3 4", "5 6", "7 8"]}]},
    {"earlier": [{"sigma": -1.0, "counts": ["1 2", "3 4", "5 6"]}]},
    {"earlier": [{"counts": ["1 2", "3 4", "5 6"]}]},
]  # fmt: skip


@pytest.mark.parametrize("change", [*OF_COUNTS, *OF_ROUNDS], ids=str)
def test_a_file_with_other_noisy_votes_is_refused(change: dict[str, Any]) -> None:
    noisy: NoisyVotes | None = votes()
    if change in OF_ROUNDS:
        with connected(server_with(in_rounds()), PUBLIC) as client:
            noisy = client.noisy_votes()
    body = json.loads(labels_with(noisy).to_json())
    assert LabelSet.from_json(json.dumps(body)).noisy is not None
    body["noisy"] |= change
    if change in OF_COUNTS:
        body["noisy"] = {name: each for name, each in body["noisy"].items() if each is not None}
    with pytest.raises(DataError):
        LabelSet.from_json(json.dumps(body))


def test_labels_have_noisy_votes_of_their_own_queries_and_classes() -> None:
    labels_with(votes())
    with pytest.raises(DataError, match="other classes or queries"):
        labels_with(votes(), queries=5)
    with pytest.raises(DataError, match="other classes or queries"):
        labels_with(votes(counts=np.zeros((3, 3), dtype=np.int64)))


def test_whatever_can_be_made_can_be_written_and_read() -> None:
    most = 2**40
    extreme = np.array([[most, -most], [0, 0], [1, -1]], dtype=np.int64)
    for sigma in (0.0, 1e-9, float(most)):
        made = labels_with(votes(counts=extreme, sigma=sigma))
        again = there(LabelSet.from_json(made.to_json()).noisy)
        np.testing.assert_array_equal(again.counts, extreme)
        assert again.sigma == sigma


@pytest.mark.parametrize(
    "make",
    [
        lambda: NoisyVotes(np.array([0, 1]), COUNTS, 1.0),
        lambda: NoisyVotes(np.array([0, 1, 2], dtype=np.int32), COUNTS, 1.0),
        lambda: NoisyVotes(np.array([0, 1, 2]), COUNTS.astype(float), 1.0),
        lambda: NoisyVotes(np.array([0, 1, 2]), COUNTS[:, :1], 1.0),
        lambda: NoisyVotes(np.array([[0, 1, 2]]), COUNTS, 1.0),
        lambda: NoisyVotes(np.array([0, 1, 2]), COUNTS[0], 1.0),
        lambda: votes(counts=COUNTS * 2**41),
    ],
)
def test_noisy_votes_that_are_none_cannot_be_made(make: Callable[[], NoisyVotes]) -> None:
    with pytest.raises(DataError):
        make()


def test_they_cannot_be_changed() -> None:
    made = votes()
    with pytest.raises(ValueError, match="read-only"):
        made.counts[0, 0] = 1
