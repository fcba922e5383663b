"""Encoding of tables, trees in files, and what a shard chooses."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from party.teachers.protocol import DamagedTeacherError, Stored
from party.teachers.schema import NumberColumn, TableEncoding
from party.teachers.tables import Boosting, Chosen, Forest, choose
from pate.data.values import Dataset, Table
from tests.party.teachers.test_kinds import labelled


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
    monkeypatch.setattr("party.teachers.tables._SMALL", 99)
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
    monkeypatch.setattr("party.teachers.tables._FOLDS", 0)  # choosing at all would fail
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
