from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from pate.errors import DataError
from pate.formats.labels import LabelRow, LabelSet, checked_statement
from pate.formats.noisy_counts import NoisyVotes, RoundCounts
from pate.rounds.model import RoundModel

PRIVACY = (
    '{"epsilon": 1.5, "delta": 1e-05, "unit": "record", "adjacency": "one vote changed", '
    '"observer": "public", "mechanism": "confident-gnmax", "ledger_head": "00ff"}\n'
)
SET = LabelSet(
    campaign=bytes(range(4)),
    classes=("ill", "wéll"),
    public_set=b"\x11" * 32,
    queries=9,
    rows=(LabelRow(3, 1, 1, "teachers"), LabelRow(0, 0, 2, "reinforced")),
    privacy=PRIVACY,
)
GOLDEN = """{
  "format": "pate-labels/2",
  "campaign": "00010203",
  "classes": [
    "ill",
    "wéll"
  ],
  "public_set": "1111111111111111111111111111111111111111111111111111111111111111",
  "queries": 9,
  "privacy": PRIVACY,
  "noisy": null,
  "labels": [
    [3, 1, 1, "teachers"],
    [0, 0, 2, "reinforced"]
  ]
}
""".replace("PRIVACY", json.dumps(PRIVACY))


def test_golden() -> None:
    assert SET.to_json() == GOLDEN
    assert LabelSet.from_json(GOLDEN) == SET


def test_without_labels() -> None:
    empty = LabelSet(b"c", ("a", "b"), bytes(32), 1, (), PRIVACY)
    assert LabelSet.from_json(empty.to_json()) == empty


NOISY = {"sigma": 2.5, "queries": [2, 4], "counts": ["-3 40", "7 0"]}


def having(**values: object) -> str:
    """Return the golden file with other fields; None takes one out."""
    gone = {name for name, value in values.items() if value is None}
    fields = {**json.loads(GOLDEN), **values}
    return json.dumps({name: value for name, value in fields.items() if name not in gone})


def noisy(**values: object) -> str:
    return having(noisy=NOISY | values)


def test_noisy_votes_travel_along() -> None:
    held = LabelSet.from_json(noisy()).noisy
    assert held is not None
    assert held.queries.tolist() == [2, 4]
    assert held.counts.tolist() == [[-3, 40], [7, 0]]
    assert held.sigma == 2.5
    again = LabelSet.from_json(noisy()).to_json()
    assert json.loads(again)["noisy"] == NOISY
    assert LabelSet.from_json(again).to_json() == again


def test_rounds_and_their_models_travel_along_in_one_order() -> None:
    model = RoundModel(np.array([[5, -7], [1, 2]]), 1024)
    first = RoundCounts(np.array([[4, 5], [6, 7]]), 3)
    counts = np.array([[100, -3], [7, 9]])
    votes = NoisyVotes(np.array([0, 3]), counts, 2, "dense-2 residual", model, (first,), model)
    text = replace(SET, rows=(), noisy=votes).to_json()
    shown = {"cut": 1024, "weights": ["5 -7", "1 2"]}
    assert json.dumps(json.loads(text)["noisy"]) == json.dumps({
        "sigma": 2.0, "queries": [0, 3], "counts": ["100 -3", "7 9"], "code": "dense-2 residual",
        "shown": shown, "earlier": [{"sigma": 3.0, "counts": ["4 5", "6 7"]}], "model": shown,
    })  # fmt: skip
    assert LabelSet.from_json(text).to_json() == text


def labels(*rows: list[object]) -> str:
    return having(labels=list(rows))


REFUSED = (
    ("{", "not JSON"), ("[]", "must be a JSON object"), ("[" * 100_000, "not JSON"),
    (GOLDEN.replace('"queries": 9', '"queries": 9, "queries": 9'), "a field is repeated"),
    (GOLDEN.replace('"queries": 9', '"queries": NaN'), "NaN"),
    (having(format="pate-labels/1"), "pate-labels/1"), (having(extra=1), "extra"),
    (having(public_set=None), "public_set"), (having(campaign="0x"), "campaign"),
    (having(public_set="11" * 31), "hash is 32 bytes, got 31"),
    (having(public_set="AA" * 32), "public_set"), (having(classes=["a"], labels=[]), "two classes"),
    (having(classes=["a", "a"]), "all different"),
    (having(classes=[1, 2]), r"classes\[0\] must be text, got 1"),
    (having(queries=0, labels=[]), "at least one query"),
    (having(queries=True), "queries must be a whole number, got True"),
    (labels([9, 0, 1, "teachers"]), "outside"), (labels([-1, 0, 1, "teachers"]), "from 0"),
    (labels([1.0, 0, 1, "teachers"]), r"labels\[0\]\[0\] must be a whole number, got 1.0"),
    (labels([1, 2, 1, "teachers"]), "no class"), (labels([1, 0, 0, "teachers"]), "from 1"),
    (labels([1, 0, 1, "a friend"]), "a friend"),
    (labels([1, 0, 1, 1]), r"labels\[0\]\[3\] must be text, got 1"),
    (labels([1, 0, 1]), r"labels\[0\] must have 4 entries, got 3"),
    (labels([1, 0, 1, "teachers"], [1, 1, 1, "teachers"]), "two labels"),
    (having(noisy=[]), "noisy must be an object"), (noisy(sigma=1e400), "Infinity"),
    (noisy(sigma=3), "noisy.sigma must be a finite number with a point, got 3"),
    (noisy(queries=[2, 9]), "other classes or queries"), (noisy(queries=[4, 2]), "ascend"),
    (noisy(queries=[2, 2]), "ascend"), (noisy(queries=[True, 2]), "a list of whole numbers"),
    (noisy(queries=["2 4"]), "queries are int64 of shape"), (noisy(counts=[1, 2]), "counts are int64"),
    (noisy(queries=[2, 2**70]), "too large"), (noisy(counts=["1 2 3", "4 5 6"]), "other classes"),
    (noisy(counts=["1 2", "4"]), "differ in length"), (noisy(counts=["1 2"]), "2 "),
    (noisy(counts=[]), "counts are int64"), (noisy(counts=["1 2", 3]), "whole numbers"),
    (noisy(counts=["1 2", "4 " + "9" * 20]), "whole numbers"),
    (noisy(counts=["1 2", "4 \u0663"]), "whole numbers"),
    (having(privacy=""), "not JSON"), (having(privacy={}), "privacy must be text"),
)  # fmt: skip


def test_refused() -> None:
    for text, why in REFUSED:
        with pytest.raises(DataError, match=why):
            LabelSet.from_json(text)


def test_a_statement_says_everything_and_within_its_range() -> None:
    fields = json.loads(PRIVACY)
    assert checked_statement(PRIVACY) == fields
    wrong: list[tuple[str, object]] = [(key, nothing) for key in fields for nothing in (None, "")]
    wrong += [("epsilon", each) for each in (-1, "1", True, 10**400)] + [("delta", 1), ("unit", 3)]
    for key, value in wrong:
        with pytest.raises(DataError, match=key):
            checked_statement(json.dumps(fields | {key: value}))
    for key in fields:
        with pytest.raises(DataError, match=key):
            checked_statement(json.dumps({name: fields[name] for name in fields if name != key}))
