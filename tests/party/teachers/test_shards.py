"""Shards, and teachers of several labels of their own shard only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from party.teachers.ensemble import Ensemble, assign_shards, split
from party.teachers.linear import Linear
from party.teachers.protocol import (
    NO_OPINION,
    Constant,
    DamagedTeacherError,
    Kind,
    Labels,
    Stored,
    Sure,
    Teacher,
)
from party.teachers.several import Several, SeveralTeacher, votes_of
from party.teachers.tables import Boosting, Forest, Logistic
from party.teachers.training import train_ensemble
from pate.codes import code_of
from pate.data.read import read_dataset
from pate.data.values import Dataset, Inputs, Table
from pate.errors import DataError, SchemaError, UsageError
from tests.support.encoders.embedded import embedded_records

KEY = b"k" * 32
values = st.lists(st.integers(-50, 50), min_size=1, max_size=40)
teachers = st.integers(1, 9)
#: A busy machine is no slow hash.
UNTIMED = settings(deadline=None)


def dataset(cells: list[int], groups: list[str] | None = None) -> Dataset:
    return Dataset(
        Table(("v",), (np.array(cells, np.float64),)),
        np.array([abs(cell) % 2 for cell in cells], np.int64),
        ("even", "odd"),
        None if groups is None else np.array(groups, dtype=np.str_),
    )


@given(values, teachers)
@UNTIMED
def test_each_record_is_in_exactly_one_shard(cells: list[int], k: int) -> None:
    shards = assign_shards(dataset(cells), k, KEY)
    assert shards.shape == (len(cells),)
    assert shards.dtype == np.int64
    parts = [np.flatnonzero(shards == shard) for shard in range(k)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(cells)))


@given(st.lists(st.tuples(st.integers(-50, 50), st.text(max_size=2)), min_size=1), teachers)
@UNTIMED
def test_each_group_is_in_exactly_one_shard(rows: list[tuple[int, str]], k: int) -> None:
    # numpy drops trailing NULs of text; the group is what the array holds.
    data = dataset([v for v, _ in rows], [g for _, g in rows])
    assert data.groups is not None
    seen: dict[str, int] = {}
    for group, shard in zip(
        data.groups.tolist(), assign_shards(data, k, KEY).tolist(), strict=True
    ):
        assert seen.setdefault(group, shard) == shard


@given(values, st.integers(-50, 50), st.data(), teachers)
@UNTIMED
def test_adding_a_record_moves_no_other(
    cells: list[int], more: int, draw: st.DataObject, k: int
) -> None:
    at = draw.draw(st.integers(0, len(cells)))
    before = assign_shards(dataset(cells), k, KEY).tolist()
    after = assign_shards(dataset([*cells[:at], more, *cells[at:]]), k, KEY).tolist()
    assert after[:at] + after[at + 1 :] == before


@given(values, st.data(), teachers)
@UNTIMED
def test_adding_a_group_moves_no_other(cells: list[int], draw: st.DataObject, k: int) -> None:
    names = draw.draw(
        st.lists(st.sampled_from("abcdefg"), min_size=len(cells), max_size=len(cells))
    )
    before = assign_shards(dataset(cells, names), k, KEY).tolist()
    after = assign_shards(dataset([3, *cells], ["new", *names]), k, KEY).tolist()
    assert after[1:] == before


def test_the_key_and_the_content_decide() -> None:
    assert len(set(assign_shards(dataset([7] * 20), 5, KEY).tolist())) == 1
    data = dataset(list(range(64)))
    own, hashes = assign_shards(data, 8, KEY), data.row_hashes()
    assert (assign_shards(data, 8, KEY, row_hashes=hashes) == own).all()
    assert (assign_shards(data, 8, b"other" * 6) != own).any()
    with pytest.raises(UsageError, match="1 or more"):
        assign_shards(data, 0, KEY)
    for number, rows in enumerate(split(data, hashes, 8, KEY)):
        assert sorted(rows.tolist()) == np.flatnonzero(own == number).tolist()
        assert [hashes[row] for row in rows.tolist()] == sorted(
            hashes[row] for row in rows.tolist()
        )


def test_shards_are_even() -> None:
    # The hash is deterministic, so this holds or not once and for all; for a uniform hash each
    # of 10 counts of 20,000 lies within 6 standard deviations (42 each) but for odds of 2e-8.
    counts = np.bincount(assign_shards(dataset(list(range(20000))), 10, KEY), minlength=10)
    assert (abs(counts - 2000) < 6 * 42.5).all()


def test_one_patients_odd_identifier_moves_no_other_patient(tmp_path: Path) -> None:
    def shards(identifiers: list[str]) -> dict[str, int]:
        path = tmp_path / "records.csv"
        rows = [f"{name},{at},{'ab'[at % 2]}" for at, name in enumerate(identifiers)]
        path.write_text("patient,x,y\n" + "\n".join(rows) + "\n")
        records = read_dataset(path, label="y", group="patient")
        found = assign_shards(records, 20, KEY).tolist()
        return dict(zip(identifiers, found, strict=True))

    numbers = [f"{at:05d}" for at in range(200)]
    before, after = shards(numbers), shards([*numbers, "T0001"])
    assert {name: after[name] for name in numbers} == before
    mixed = shards(["12", "12.0", "T1"])
    assert mixed["12"] == mixed["12.0"]


NAMES = ("a", "b", "c", "d")
#: Of up to two labels, whatever their number.
TWO = code_of("each-50 labels-2-of-4")


def records(number: int, seed: int = 1) -> Dataset:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(number, 3))
    answers = values @ np.random.default_rng(0).normal(size=(3, len(NAMES))) > -0.2
    columns = tuple(np.ascontiguousarray(each) for each in values.T)
    table = Table(("x", "y", "z"), columns)
    return Dataset(table, np.zeros(number, dtype=np.int64), NAMES, None, answers)


QUERIES = records(50, 2)


@pytest.mark.parametrize("kind", [Linear(), Logistic(), Forest(), Boosting()])
def test_a_teacher_casts_the_surest_of_the_labels_that_it_predicts(kind: Kind) -> None:
    teacher = Several(kind).fit(records(80), 3)
    whole = teacher.labels(QUERIES.inputs, len(NAMES))
    assert (whole == QUERIES.answers).mean() > 0.8
    chances = np.stack(
        [each.chances(QUERIES.inputs) for each in teacher.models if isinstance(each, Sure)], axis=1
    )
    assert chances.shape == whole.shape
    assert (
        np.array_equal(chances > 0.5, whole)
        or np.abs(chances - 0.5)[(chances > 0.5) != whole].max() < 1e-6
    )
    for most in (1, 2, 3):
        cast = teacher.labels(QUERIES.inputs, most)
        assert (cast <= whole).all()
        assert np.array_equal(cast.sum(axis=1), np.minimum(whole.sum(axis=1), most))
        # No label that was left out is surer than one that was cast.
        least = np.where(cast, chances, 2.0).min(axis=1)
        left = np.where(whole & ~cast, chances, -1.0).max(axis=1)
        assert (left <= least).all()
    one_by_one = [teacher.labels(QUERIES.inputs.take([at]), 2)[0] for at in range(len(QUERIES))]
    assert np.array_equal(np.stack(one_by_one), teacher.labels(QUERIES.inputs, 2))


class Always:
    """A model that predicts one class, and does not say how sure it is."""

    def __init__(self, label: int) -> None:
        self._label = label

    def predict(self, inputs: Inputs) -> Labels:
        return np.full(len(inputs), self._label, dtype=np.int64)

    def store(self) -> Stored:
        raise NotImplementedError


def test_of_labels_that_are_as_sure_the_first_ones_count() -> None:
    models: tuple[Teacher, ...] = (Always(0), Always(1), Constant(1), Always(1))
    teacher = SeveralTeacher(models)
    assert teacher.labels(QUERIES.inputs, 2)[0].tolist() == [False, True, True, False]
    assert teacher.labels(QUERIES.inputs, 3)[0].tolist() == [False, True, True, True]
    assert teacher.predict(QUERIES.inputs)[0] == 1


def test_a_shard_without_records_casts_nothing_and_a_label_of_all_is_always_cast() -> None:
    empty = Several(Linear()).fit(records(9).take([]), 1)
    assert [each for each in empty.models if isinstance(each, Constant)] == list(empty.models)
    assert all(each.label == NO_OPINION for each in empty.models if isinstance(each, Constant))
    assert not empty.labels(QUERIES.inputs, len(NAMES)).any()
    some = records(60)
    answers = np.array(some.answers, dtype=np.bool_)
    answers[:, 1], answers[:, 2] = True, False
    cast = Several(Linear()).fit(replace(some, answers=answers), 1).labels(QUERIES.inputs, 4)
    assert cast[:, 1].all()
    assert not cast[:, 2].any()


@pytest.mark.parametrize("kind", [Linear(), Forest()])
def test_a_stored_teacher_casts_what_it_cast(kind: Kind) -> None:
    several = Several(kind)
    some = records(60)
    answers = np.array(some.answers, dtype=np.bool_)
    answers[:, 3] = True
    teacher = several.fit(replace(some, answers=answers), 1)
    stored = teacher.store()
    again = several.restore(stored)
    assert np.array_equal(again.labels(QUERIES.inputs, 2), teacher.labels(QUERIES.inputs, 2))
    first, *rest = list(stored.facts["several"])  # type: ignore[call-overload]
    damaged: list[tuple[dict[str, object], bytes]] = [
        ({}, stored.model),
        ({"several": []}, stored.model),
        (stored.facts, stored.model[:-1]),
        (stored.facts, stored.model + b"x"),
        ({"several": [first | {"bytes": -1}, *rest]}, stored.model),
        ({"several": [first | {"bytes": 10**9}, *rest]}, stored.model),
        ({"several": [first | {"sha256": "0"}, *rest]}, stored.model),
        ({"several": ["x", *rest]}, stored.model),
    ]
    for facts, model in damaged:
        with pytest.raises(DamagedTeacherError):
            several.restore(replace(stored, facts=facts, model=model))


class Generous(SeveralTeacher):
    """Casts one label more than count."""

    def labels(self, inputs: Inputs, most: int) -> NDArray[np.bool_]:
        return super().labels(inputs, most + 1)


def test_a_teacher_that_casts_more_than_counts_is_caught_before_a_vote_leaves() -> None:
    fitted = Several(Linear()).fit(records(80), 3)
    assert (fitted.labels(QUERIES.inputs, 4).sum(axis=1) > 1).any()
    assert votes_of([fitted], QUERIES.inputs, 4, 1).max() == 1
    with pytest.raises(AssertionError, match="more labels than count"):
        votes_of([fitted, Generous(fitted.models)], QUERIES.inputs, 4, 1)


def trained(data: Dataset, home: Path, model: str = "linear") -> Ensemble:
    return train_ensemble(
        data, teachers=4, model=model, device="cpu", home=home, key=b"k", progress=lambda *_: None
    )


def test_embeddings_have_labels(tmp_path: Path) -> None:
    data, queries = embedded_records(160), embedded_records(200, seed=1)
    answers = np.stack([data.labels != at for at in range(3)], axis=1)
    several = replace(data, answers=answers, labels=np.zeros(160, dtype=np.int64))
    votes = trained(several, tmp_path).vote(queries.inputs, range(200), data.classes, TWO)
    assert (votes.argmin(axis=1) == queries.labels).mean() > 0.9


def test_a_record_reaches_one_teacher_and_columns_are_found_by_name(tmp_path: Path) -> None:
    data = records(120)
    ensemble = trained(data, tmp_path / "a")
    assert (ensemble.answer, ensemble.teachers, ensemble.unit) == ("labels", 4, "record")
    votes = ensemble.vote(QUERIES.inputs, range(50), ("c", "a", "x", "d", "b"), TWO)
    assert (votes.sum(axis=1) <= 2 * 4).all()
    assert votes.max() <= 4
    each = [member.labels(QUERIES.inputs, 2) for member in ensemble.members]  # type: ignore[attr-defined]
    assert np.array_equal(votes[:, [1, 4, 0, 3]], np.sum(each, axis=0))
    assert not votes[:, 2].any()
    with pytest.raises(SchemaError, match="the campaign lacks: d"):
        ensemble.vote(QUERIES.inputs, range(50), NAMES[:3], TWO)
    # One record more, and one less: one teacher's array changes, by the lemma's bound.
    for other in (data.take(range(119)), data.take([*range(120), 7])):
        now = trained(other, tmp_path / str(len(other)))
        changed = [
            np.abs(one.labels(QUERIES.inputs, 2).astype(int) - two.astype(int)).sum()  # type: ignore[attr-defined]
            for one, two in zip(now.members, each, strict=True)
        ]
        assert sum(change > 0 for change in changed) <= 1
        assert max(changed) <= 50 * 4
    # They are loaded again, not trained.
    assert np.array_equal(
        trained(data, tmp_path / "a").vote(QUERIES.inputs, range(50), NAMES, TWO),
        ensemble.vote(QUERIES.inputs, range(50), NAMES, TWO),
    )


def test_a_number_has_no_teachers(tmp_path: Path) -> None:
    data = records(9)
    number = replace(data, answers=np.arange(9.0))
    with pytest.raises(DataError, match="and the data has a number each"):
        trained(number, tmp_path)
