from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pate.errors import DataError
from pate.formats.labels import LabelRow, LabelSet, checked_statement

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


def changed(change: Callable[[dict[str, object]], object]) -> str:
    fields: dict[str, object] = json.loads(GOLDEN)
    change(fields)
    return json.dumps(fields)


def noisy(**values: object) -> str:
    held: dict[str, object] = {"sigma": 2.5, "queries": [2, 4], "counts": ["-3 40", "7 0"]}
    return changed(lambda f: f.update(noisy=held | values)) if values else json.dumps(held)


def test_noisy_votes_travel_along() -> None:
    text = changed(lambda f: f.update(noisy=json.loads(noisy())))
    held = LabelSet.from_json(text).noisy
    assert held is not None
    assert held.queries.tolist() == [2, 4]
    assert held.counts.tolist() == [[-3, 40], [7, 0]]
    assert held.sigma == 2.5
    assert (
        LabelSet.from_json(LabelSet.from_json(text).to_json()).to_json()
        == LabelSet.from_json(text).to_json()
    )


REFUSED: dict[str, tuple[str, str]] = {
    "not JSON": ("{", "not JSON"),
    "a list": ("[]", "must be a JSON object"),
    "deep": ("[" * 100_000, "not JSON"),
    "key twice": (
        GOLDEN.replace('"queries": 9', '"queries": 9, "queries": 9'),
        "a field is repeated",
    ),
    "NaN": (GOLDEN.replace('"queries": 9', '"queries": NaN'), "NaN"),
    "other format": (changed(lambda f: f.update(format="pate-labels/1")), "pate-labels/1"),
    "a field more": (changed(lambda f: f.update(extra=1)), "extra"),
    "a field less": (changed(lambda f: f.pop("public_set")), "public_set"),
    "no bytes": (changed(lambda f: f.update(campaign="0x")), "campaign"),
    "short hash": (changed(lambda f: f.update(public_set="11" * 31)), "hash is 32 bytes, got 31"),
    "hash in capitals": (changed(lambda f: f.update(public_set="AA" * 32)), "public_set"),
    "one class": (changed(lambda f: f.update(classes=["a"], labels=[])), "two classes"),
    "a class twice": (changed(lambda f: f.update(classes=["a", "a"])), "all different"),
    "classes no texts": (
        changed(lambda f: f.update(classes=[1, 2])),
        r"classes\[0\] must be text, got 1",
    ),
    "no queries": (changed(lambda f: f.update(queries=0, labels=[])), "at least one query"),
    "queries true": (
        changed(lambda f: f.update(queries=True)),
        "queries must be a whole number, got True",
    ),
    "query outside": (changed(lambda f: f.update(labels=[[9, 0, 1, "teachers"]])), "outside"),
    "query negative": (changed(lambda f: f.update(labels=[[-1, 0, 1, "teachers"]])), "from 0"),
    "query a float": (
        changed(lambda f: f.update(labels=[[1.0, 0, 1, "teachers"]])),
        r"labels\[0\]\[0\] must be a whole number, got 1.0",
    ),
    "class outside": (changed(lambda f: f.update(labels=[[1, 2, 1, "teachers"]])), "no class"),
    "round 0": (changed(lambda f: f.update(labels=[[1, 0, 0, "teachers"]])), "from 1"),
    "other source": (changed(lambda f: f.update(labels=[[1, 0, 1, "a friend"]])), "a friend"),
    "source a number": (
        changed(lambda f: f.update(labels=[[1, 0, 1, 1]])),
        r"labels\[0\]\[3\] must be text, got 1",
    ),
    "row too short": (
        changed(lambda f: f.update(labels=[[1, 0, 1]])),
        r"labels\[0\] must have 4 entries, got 3",
    ),
    "two labels": (
        changed(lambda f: f.update(labels=[[1, 0, 1, "teachers"], [1, 1, 1, "teachers"]])),
        "two labels",
    ),
    "noisy a list": (changed(lambda f: f.update(noisy=[])), "noisy must be an object"),
    "noise not finite": (noisy(sigma=1e400), "Infinity"),
    "noise a whole number": (
        noisy(sigma=3),
        "noisy.sigma must be a finite number with a point, got 3",
    ),
    "noisy query outside": (noisy(queries=[2, 9]), "other classes or queries"),
    "noisy queries fall": (noisy(queries=[4, 2]), "ascend"),
    "noisy query twice": (noisy(queries=[2, 2]), "ascend"),
    "a noisy query true": (
        noisy(queries=[True, 2]),
        r"noisy.queries\[0\] must be a whole number, got True",
    ),
    "noisy counts of three classes": (noisy(counts=["1 2 3", "4 5 6"]), "other classes"),
    "noisy counts that differ": (noisy(counts=["1 2", "4"]), "differ in length"),
    "noisy counts of one row": (noisy(counts=["1 2"]), "2 "),
    "a noisy count beyond all bounds": (noisy(counts=["1 2", "4 " + "9" * 20]), "whole numbers"),
    "a noisy count of other digits": (noisy(counts=["1 2", "4 \u0663"]), "whole numbers"),
    "no statement": (changed(lambda f: f.update(privacy="")), "not JSON"),
    "statement an object": (changed(lambda f: f.update(privacy={})), "privacy must be text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, why = REFUSED[name]
    with pytest.raises(DataError, match=why):
        LabelSet.from_json(text)


@pytest.mark.parametrize("key", list(json.loads(PRIVACY)))
def test_a_statement_says_everything(key: str) -> None:
    fields = json.loads(PRIVACY)
    assert checked_statement(PRIVACY) == fields
    for nothing in (None, ""):
        with pytest.raises(DataError, match=key):
            checked_statement(json.dumps(fields | {key: nothing}))
    del fields[key]
    with pytest.raises(DataError, match=key):
        checked_statement(json.dumps(fields))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epsilon", -1), ("epsilon", "1"), ("epsilon", True), ("epsilon", 10**400), ("delta", 1),
        ("unit", 3),
    ],
)  # fmt: skip
def test_a_statement_out_of_range(key: str, value: object) -> None:
    with pytest.raises(DataError, match=key):
        checked_statement(json.dumps(json.loads(PRIVACY) | {key: value}))
