"""Teachers that a network answers for: what it sees, what may not matter, and what is stored."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files

import numpy as np
import pytest
from numpy.typing import NDArray

import party.teachers
from party.teachers import by_records as prior
from party.teachers.by_records import _MOST_COLUMNS, _MOST_KNOWN, Prior, PriorTeacher, _parts
from party.teachers.protocol import DamagedTeacherError, Stored, Sure, dump, load
from party.teachers.tables import Chosen, Forest, choose
from pate.data.values import Dataset, Table
from pate.errors import DataError, UsageError

NAN = float("nan")


def noisy(n: int, seed: int, width: int = 10) -> Dataset:
    """Ten numbers, a category and holes; half of the numbers say a little about the class."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, n)
    values = draw.normal(size=(n, width))
    values[:, : width // 2] += 0.8 * (2 * labels[:, None] - 1)
    values[draw.random((n, width)) < 0.1] = NAN
    kind = np.where(draw.random(n) < 0.7, np.array(["no", "yes"])[labels], "other")
    names = (*(f"c{at}" for at in range(width)), "kind")
    return Dataset(Table(names, (*values.T.copy(), kind)), labels.astype(np.int64), ("a", "b"))


def logits(values: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float32]:
    import torch

    with torch.inference_mode():
        found: NDArray[np.float32] = (
            prior.trained_network()(torch.from_numpy(values)[None], torch.from_numpy(labels)[None])[
                0
            ]
        ).numpy()
    return found


def some(
    seed: int = 0, known: int = 14, asked: int = 9
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    draw = np.random.default_rng(seed)
    labels = np.arange(known) % 2
    values = draw.normal(size=(known + asked, 6)).astype(np.float32)
    values[draw.random(values.shape) < 0.1] = NAN
    values[:known, :3] += labels[:, None]
    return values, labels.astype(np.int64)


def test_cells_by_hand() -> None:
    import torch

    from party.teachers.prior_network import describe

    values = torch.tensor([[[1.0, 5.0, 0.0], [3.0, 5.0, NAN], [9.0, 7.0, 1.0], [NAN, NAN, NAN]]])
    cells, facts, live = describe(values, 2)
    # The mean of 1 and 3 is 2, their spread 1. A query of 9 is cut off at 3 spreads, above all ranks.
    assert cells[0, :, 0, 0].tolist() == [-1.0, 1.0, 3.0, 0.0]
    assert cells[0, :, 0, 4].tolist() == [0.0, 0.0, 0.0, 1.0]
    torch.testing.assert_close(cells[0, :, 0, 2], torch.tensor([-0.85, 0.85, 1.7, 0.0]))
    assert not cells[0, :, 1].any()  # constant among the labelled rows
    # The third column has one value; that it may be missing still tells rows apart.
    assert cells[0, :, 2, 4].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert live.tolist() == [[True, False, True]]
    assert facts[0, :, 0].tolist() == [1.0, 1.0, 0.5]


def test_the_order_of_rows_and_columns_does_not_matter() -> None:
    values, labels = some()
    known = len(labels)
    expected = logits(values, labels)
    draw = np.random.default_rng(1)
    rows, columns = draw.permutation(known), draw.permutation(values.shape[1])
    shuffled = np.concatenate([values[:known][rows], values[known:]])[:, columns]
    np.testing.assert_allclose(logits(shuffled, labels[rows]), expected, atol=1e-4)


def test_units_do_not_matter() -> None:
    values, labels = some()
    scaled = (values * np.float32(-30) + np.float32(7)).astype(np.float32)
    other = logits(scaled, labels)
    again = logits((values * np.float32(-1)).astype(np.float32), labels)
    np.testing.assert_allclose(other, again, atol=1e-3)


def test_a_query_does_not_reach_another() -> None:
    values, labels = some()
    expected = logits(values, labels)
    values[-1] = 1e6
    np.testing.assert_allclose(logits(values, labels)[:-1], expected[:-1], atol=1e-4)
    single = values[: len(labels) + 1]
    np.testing.assert_allclose(logits(single, labels), expected[:1], atol=1e-4)


@pytest.mark.parametrize("filling", [0.0, NAN, 1e6, -1e6])
def test_strange_tables_have_finite_answers(filling: float) -> None:
    values, labels = some()
    values[:, 1:] = filling
    assert np.isfinite(logits(values, labels)).all()
    values[:] = filling
    assert np.isfinite(logits(values, labels)).all()
    values[0, 0] = 3
    assert np.isfinite(logits(values[:, :1], labels)).all()


def test_the_names_of_the_classes_do_not_matter() -> None:
    shard, queries = noisy(14, 0), noisy(50, 1).inputs
    teacher = Prior().fit(shard, 0)
    other = Prior().fit(Dataset(shard.inputs, 1 - shard.labels, shard.classes), 0)
    np.testing.assert_allclose(teacher.chances(queries), 1 - other.chances(queries), atol=1e-5)
    assert isinstance(teacher, Sure)
    assert ((teacher.chances(queries) > 0.5) == teacher.predict(queries)).all()


@pytest.mark.slow
def test_tiny_shards_are_read_better_than_by_a_forest() -> None:
    """Made-up data of a fixed seed: a broken network would be near one half."""
    test = noisy(200, 99)
    right = {
        kind.name: np.mean(
            [
                (kind.fit(noisy(12, seed), 0).predict(test.inputs) == test.labels).mean()
                for seed in range(25)
            ]
        )
        for kind in (Prior(), Forest())
    }
    assert right["prior"] > right["forest"] + 0.02
    assert right["prior"] > 0.8


def test_several_classes() -> None:
    draw = np.random.default_rng(0)
    labels = np.arange(40) % 3
    values = draw.normal(size=(4, 40)) + 3 * (np.arange(4)[:, None] == labels)
    data = Dataset(Table(("a", "b", "c", "d"), tuple(values)), labels, ("x", "y", "z", "never"))
    shard, test = data.take(range(20)), data.take(range(20, 40))
    assert (Prior().fit(shard, 0).predict(test.inputs) == test.labels).mean() > 0.85


def test_too_many_classes_are_refused_and_auto_takes_a_forest() -> None:
    data = noisy(30, 0)
    many = Dataset(data.inputs, data.labels, tuple(f"class {at:02}" for at in range(11)))
    with pytest.raises(UsageError, match="at most 10 classes, the data has 11; use auto"):
        Prior().fit(many, 0)
    assert choose(many, 0).name == "forest"
    assert choose(data, 0).name == "prior"


def test_large_shards_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    has = np.arange(300) < 7
    parts = _parts(has)
    assert sorted(np.concatenate(parts).tolist()) == list(range(300))
    assert max(map(len, parts)) <= _MOST_KNOWN
    assert {int(has[part].sum()) for part in parts} == {1, 2}
    # A part without one of the classes would only say how frequent they are.
    rare = np.arange(300) < 2
    assert [int(rare[part].sum()) for part in _parts(rare)] == [1, 1]
    monkeypatch.setattr("party.teachers.by_records._MOST_KNOWN", 30)
    test = noisy(100, 1)
    assert (Prior().fit(noisy(80, 0), 0).predict(test.inputs) == test.labels).mean() > 0.85


def test_of_many_records_each_class_keeps_its_share() -> None:
    draw = np.random.default_rng(0)
    labels = (np.arange(5000) % 10 == 0).astype(np.int64)
    labels[7] = 2
    data = Dataset(Table(("c",), (draw.normal(size=5000),)), labels, ("a", "b", "once"))
    assert np.bincount(Prior().fit(data, 0).labels).tolist() == [922, 103, 1]


def test_of_many_columns_the_most_telling_are_read() -> None:
    draw = np.random.default_rng(0)
    labels = np.arange(24) % 2
    values = draw.normal(size=(600, 24))
    values[[17, 333, 598]] += 6 * labels
    values[40] = NAN
    names = tuple(f"c{at}" for at in range(600))
    teacher = Prior().fit(Dataset(Table(names, tuple(values)), labels, ("a", "b")), 0)
    assert len(teacher.kept) == _MOST_COLUMNS
    assert {17, 333, 598} <= set(teacher.kept.tolist())


def test_missing_cells_and_unknown_categories() -> None:
    teacher = Prior().fit(noisy(14, 0), 0)
    assert np.isnan(teacher.rows).any()
    again = Prior().restore(teacher.store())
    assert (np.isnan(again.rows) == np.isnan(teacher.rows)).all()
    empty = Table(
        noisy(1, 0).inputs.names,  # type: ignore[union-attr]
        (*(np.array([NAN, 1e300]),) * 10, np.array(["", "unheard of"])),
    )
    assert np.isfinite(teacher.chances(empty)).all()


def stored(**changes: NDArray[np.generic]) -> Stored:
    made = Prior().fit(noisy(14, 0), 0).store()
    arrays = load(made.model, None)
    return Stored(json.loads(json.dumps(made.facts)), dump({**arrays, **changes}))


def test_damaged_records_and_columns() -> None:
    Prior().restore(stored())
    kept = Prior().fit(noisy(14, 0), 0).kept
    damaged: tuple[dict[str, NDArray[np.generic]], ...] = (
        {"kept": np.array([0, 1])},
        {"labels": np.zeros(14, np.int64)},
        {"labels": np.arange(13)},
        {"rows": np.zeros((14, 2), np.float32)},
        {"missing": np.zeros((2, 2), bool)},
        {"rows": np.zeros(3, np.float32), "missing": np.zeros(3, bool)},
        {"more": np.zeros(1)},
        *({"kept": np.array([*kept[:-1], wrong])} for wrong in (-1, 1000)),
    )
    for changes in damaged:
        with pytest.raises(DamagedTeacherError):
            Prior().restore(stored(**changes))


def test_auto_restores_it() -> None:
    shard, queries = noisy(14, 0), noisy(40, 1).inputs
    teacher = Chosen().fit(shard, 0)
    assert isinstance(teacher.teacher, PriorTeacher)
    again = Chosen().restore(teacher.store())
    assert (again.predict(queries) == teacher.predict(queries)).all()
    assert (again.chances(queries) == teacher.chances(queries)).all()


def test_the_weights_are_those_of_this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    content = files(party.teachers).joinpath(prior.NAME).read_bytes()
    assert hashlib.sha256(content).hexdigest() == prior.DIGEST
    assert prior.DIGEST[:16] in Prior.version
    prior.check_weights(content)
    with pytest.raises(DataError, match="the installation is damaged"):
        prior.check_weights(content[:-1] + b"\1")
    monkeypatch.setattr(prior, "DIGEST", "0" * 64)
    prior.trained_network.cache_clear()
    with pytest.raises(DataError, match="instead of 0000"):
        prior.trained_network()
