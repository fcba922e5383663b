"""Encoding of tables, and the teachers that learn from it: linear, forest, boosting, prior."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from party.teachers.chosen import Chosen, choose
from party.teachers.columns import NumberColumn, TableEncoding
from party.teachers.linear import Linear
from party.teachers.logistic import Logistic
from party.teachers.prior.teacher import Prior
from party.teachers.protocol import DamagedTeacherError, Kind, Stored
from party.teachers.trees import Boosting, Forest
from pate.data.values import Dataset, Images, Table
from pate.errors import SchemaError

KINDS: list[Kind] = [Linear(), Forest(), Boosting(), Logistic(), Prior(), Chosen()]


def table(n: int, seed: int = 0) -> Table:
    draw = np.random.default_rng(seed)
    dose = draw.normal(5, 2, n)
    dose[::7] = np.nan
    return Table(
        ("dose", "blood", "empty"),
        (dose, draw.choice(["A", "B", "0", ""], n), np.full(n, np.nan)),
    )


def labelled(n: int, seed: int = 0) -> Dataset:
    inputs = table(n, seed)
    ill = np.nan_to_num(inputs.columns[0].astype(np.float64), nan=9.0) > 5
    labels = np.where(ill, 2, 0) + np.where(inputs.columns[1] == "A", 1, 0)
    return Dataset(inputs, labels.astype(np.int64), ("a", "b", "c", "d", "never"))


def test_encoding_by_hand() -> None:
    shard = Table(
        ("v", "c"), (np.array([1.0, 3.0, np.nan]), np.array(["x", "", "x"], dtype=np.str_))
    )
    encoding = TableEncoding.fit(shard)
    assert encoding.columns[0] == NumberColumn(centre=2.0, scale=1.0)
    query = Table(
        ("v", "c"), (np.array([4.0, np.nan]), np.array(["never seen", "x"], dtype=np.str_))
    )
    assert encoding.encode(query).tolist() == [[2.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]


def test_encoding_survives_json_and_huge_values() -> None:
    shard = Table(("v",), (np.array([1e308, -1e308, np.nan]),))
    encoding = TableEncoding.fit(shard)
    again = TableEncoding.from_facts(json.loads(json.dumps(encoding.facts())))
    assert again == encoding
    assert not np.isnan(again.encode(table_of(0.0))).any()


def table_of(value: float) -> Table:
    return Table(("v",), (np.array([value]),))


@pytest.mark.parametrize(
    "facts", [None, [], {}, {"names": ["a"], "columns": []}, {"names": ["a"], "columns": [{}]}]
)
def test_damaged_encoding(facts: object) -> None:
    with pytest.raises(DamagedTeacherError):
        TableEncoding.from_facts(facts)


def test_frequent_categories_win() -> None:
    cells = [f"rare {at}" for at in range(60)] + ["often"] * 3
    encoding = TableEncoding.fit(Table(("c",), (np.array(cells, dtype=np.str_),)))
    encoded = encoding.encode(Table(("c",), (np.array(["often", "rare 9"], dtype=np.str_),)))
    assert encoded.shape == (2, 32)
    assert encoded[0].sum() == 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_learns_stores_and_restores(kind: Kind) -> None:
    data, test = labelled(200), labelled(300, seed=1)
    teacher = kind.fit(data, 3)
    answers = teacher.predict(test.inputs)
    assert answers.dtype == np.int64
    assert (answers == test.labels).mean() > 0.85
    stored = teacher.store()
    facts = json.loads(json.dumps(stored.facts))
    again = kind.restore(Stored(facts, stored.model))
    assert (again.predict(test.inputs) == answers).all()
    assert (kind.fit(data, 3).predict(test.inputs) == answers).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("rows", [2, 3, 10])
def test_tiny_shards_answer_only_classes_they_hold(kind: Kind, rows: int) -> None:
    data = labelled(60)
    pair = data.take([int(np.flatnonzero(data.labels == label)[0]) for label in (1, 2)] * 5)
    shard = pair.take(range(rows))
    answers = kind.fit(shard, 0).predict(labelled(80, seed=2).inputs)
    assert set(answers.tolist()) <= {1, 2}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_columns_are_aligned_by_name(kind: Kind) -> None:
    teacher = kind.fit(labelled(100), 0)
    query = table(50, seed=3)
    dose, blood, empty = query.columns
    shuffled = Table(("extra", "blood", "empty", "dose"), (dose, blood, empty, dose))
    assert (teacher.predict(shuffled) == teacher.predict(query)).all()
    with pytest.raises(SchemaError, match="blood"):
        teacher.predict(Table(("dose", "empty"), (dose, empty)))
    with pytest.raises(SchemaError, match="should be numbers"):
        teacher.predict(Table(query.names, (blood, blood, empty)))
    with pytest.raises(SchemaError, match="take a table"):
        teacher.predict(Images(np.zeros((1, 2, 2, 1), np.uint8)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_damaged_models(kind: Kind) -> None:
    stored = kind.fit(labelled(50), 0).store()
    for model in (b"", stored.model[: len(stored.model) // 2], b"\x80\x04N."):
        with pytest.raises(DamagedTeacherError):
            kind.restore(replace(stored, model=model))
    with pytest.raises(DamagedTeacherError):
        kind.restore(Stored({}, stored.model))


def test_foreign_types_are_never_loaded() -> None:
    import skops.io
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    kind = Forest()
    stored = kind.fit(labelled(50), 0).store()
    foreign = Pipeline([("f", FunctionTransformer(print)), ("m", RandomForestClassifier())])
    with pytest.raises(DamagedTeacherError):
        kind.restore(replace(stored, model=skops.io.dumps(foreign)))
    # A harmless type of scikit-learn, but not the one that this kind makes.
    boosting = Boosting().fit(labelled(50), 0).store()
    with pytest.raises(DamagedTeacherError, match="GradientBoosting"):
        kind.restore(boosting)


def test_large_shards_are_boosted_on_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("party.teachers.trees._SMALL", 99)
    small, large = labelled(90), labelled(100)
    kind = Boosting()
    assert type(kind.fit(small, 0).model).__name__ == "GradientBoostingClassifier"
    teacher = kind.fit(large, 0)
    assert type(teacher.model).__name__ == "HistGradientBoostingClassifier"
    assert (
        kind.restore(teacher.store()).predict(large.inputs) == teacher.predict(large.inputs)
    ).all()


def sums(n: int, seed: int) -> Dataset:
    """Many weak numbers that add up: no tree sees enough of them."""
    values = np.random.default_rng(seed).normal(size=(20, n))
    names = tuple(f"c{at}" for at in range(20))
    labels = (values.sum(axis=0) > 0).astype(np.int64)
    return Dataset(Table(names, tuple(values)), labels, ("no", "yes"))


def parity(n: int, seed: int) -> Dataset:
    """Two signs that must be multiplied: a line can't."""
    values = np.random.default_rng(seed).normal(size=(2, n))
    labels = (values[0] * values[1] > 0).astype(np.int64)
    return Dataset(Table(("a", "b"), tuple(values)), labels, ("no", "yes"))


def test_a_shard_chooses_what_errs_least() -> None:
    assert choose(sums(90, 0), 0).name == "logistic"
    assert choose(parity(120, 0), 0).name in ("boosting", "forest")
    test = sums(500, 1)
    answers = Chosen().fit(sums(90, 0), 0).predict(test.inputs)
    assert (answers == test.labels).mean() > 0.85


def test_small_or_one_sided_shards_do_not_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("party.teachers.chosen._FOLDS", 0)  # choosing at all would fail
    assert choose(sums(59, 0), 0).name == "prior"
    many = sums(300, 0)
    rows = np.concatenate([np.flatnonzero(many.labels == 0), np.flatnonzero(many.labels == 1)[:5]])
    assert choose(many.take(rows), 0).name == "forest"
    with pytest.raises(ValueError, match="at least one train/test split"):
        choose(sums(60, 0), 0)


def test_a_choice_survives_rare_classes() -> None:
    data = labelled(70)
    labels = data.labels.copy()
    labels[0] = 4  # one record of this class: it is in no more than one fold
    assert Chosen().fit(Dataset(data.inputs, labels, data.classes), 0).predict(data.inputs).any()


def test_a_damaged_choice() -> None:
    stored = Chosen().fit(labelled(62), 0).store()
    wrong: list[dict[str, object]] = [
        {},
        {"chosen": "linear", "facts": {}},
        {"chosen": stored.facts["chosen"]},
    ]
    for facts in wrong:
        with pytest.raises(DamagedTeacherError):
            Chosen().restore(Stored(facts, stored.model))
