"""What every kind of teachers promises, whatever it learns from; and teachers by the nearest record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from party.teachers.by_records import Nearest, Prior
from party.teachers.linear import Linear
from party.teachers.protocol import (
    NO_OPINION,
    Constant,
    DamagedTeacherError,
    Kind,
    Stored,
    Teacher,
    check_kind,
    dump,
    load,
)
from party.teachers.tables import Boosting, Chosen, Forest, Logistic
from party.teachers.training import (
    kind_for,
    load_teacher,
    pick_device,
    save_teacher,
    train_ensemble,
)
from pate.data.values import Dataset, Images, Inputs, Table
from pate.errors import SchemaError, UsageError
from pate.features.distortions import distorted, strokes
from tests.support.encoders.embedded import embedded, embedded_records

KINDS = 40
SIZE = (20, 20, 1)


def drawings(classes: range, copies: int, kinds: int = KINDS) -> Dataset:
    """Each class is a drawing, and its records are distorted copies of it."""
    labels = np.tile(np.array(classes, dtype=np.int64), copies)
    pixels = distorted(strokes(kinds, SIZE).take(labels)).pixels
    return Dataset(Images(pixels), labels, tuple(f"{kind:03d}" for kind in range(kinds)))


def test_a_teacher_knows_its_classes_and_is_quiet_about_the_others() -> None:
    teacher = Nearest().fit(drawings(range(20), 2), 0)
    queries = drawings(range(KINDS), 3)
    answers, known = teacher.predict(queries.inputs), queries.labels < 20
    assert (answers[known] == queries.labels[known]).mean() > 0.7
    assert (answers[~known] == NO_OPINION).mean() > 0.7


def test_quiet_teachers_have_a_vote_each_that_is_spread(tmp_path: Path) -> None:
    data = drawings(range(KINDS), 20)
    ensemble = train_ensemble(
        data, teachers=80, model="nearest", device="cpu", home=tmp_path, key=b"key",
        progress=lambda _done, _all: None,
    )  # fmt: skip
    queries = drawings(range(KINDS), 2)
    votes = ensemble.vote(queries.inputs, range(len(queries)), data.classes)
    assert (votes.sum(axis=1) == 80).all()
    # Ten records a teacher: a quarter of them know a class, the rest are spread over forty.
    assert (votes.argmax(axis=1) == queries.labels).mean() > 0.7
    blank = ensemble.vote(Images(np.zeros((1, *SIZE), np.uint8)), (0,), data.classes)
    assert blank.max() < 20


def test_tables_and_teachers_without_a_label_are_refused() -> None:
    table = Dataset(Table(("a",), (np.arange(4.0),)), np.array([0, 1, 0, 1]), ("x", "y"))
    with pytest.raises(UsageError, match="for images"):
        Nearest().fit(table, 0)
    stored = Nearest().fit(drawings(range(5), 2), 0).store()
    arrays = load(stored.model, None)
    fewer = dump({**arrays, "labels": arrays["labels"][1:]})
    with pytest.raises(DamagedTeacherError, match="shapes"):
        Nearest().restore(Stored(stored.facts, fewer))


IMAGES = Images(np.random.default_rng(0).integers(0, 256, (12, 6, 6, 1), dtype=np.uint8))
ALONE = Table(("a",), (np.zeros(3),))


def table(n: int, seed: int = 0) -> Table:
    draw = np.random.default_rng(seed)
    dose = draw.normal(5, 2, n)
    dose[::7] = np.nan
    return Table(
        ("dose", "blood", "empty"), (dose, draw.choice(["A", "B", "0", ""], n), np.full(n, np.nan))
    )


def labelled(n: int, seed: int = 0) -> Dataset:
    inputs = table(n, seed)
    ill = np.nan_to_num(inputs.columns[0].astype(np.float64), nan=9.0) > 5
    labels = np.where(ill, 2, 0) + np.where(inputs.columns[1] == "A", 1, 0)
    return Dataset(inputs, labels.astype(np.int64), ("a", "b", "c", "d", "never"))


@cache
def digits() -> Dataset:
    from sklearn.datasets import load_digits

    loaded = load_digits()
    pixels = np.rint(loaded.images / 16 * 255).astype(np.uint8)[..., None]
    names = tuple(str(at) for at in range(10))
    whole = Dataset(Images(pixels), loaded.target.astype(np.int64), names)
    return whole.take(np.random.default_rng(0).permutation(len(pixels)))


@dataclass(frozen=True)
class Case:
    """A kind with records that it learns from."""

    kind: Kind  # of teachers
    data: Dataset  # records; shards are the first of them
    shard: int  # number of records of a shard
    right: float  # least share of right answers on the other records
    # inputs that its teachers take as the same
    alike: tuple[Inputs, ...]
    # inputs that its teachers refuse, with a part of the message
    others: tuple[tuple[Inputs, str], ...]
    damaged: tuple[dict[str, object], ...]  # facts that are no teacher's


def of_table(kind: Kind) -> Case:
    asked = table(20, 3)
    dose, blood, empty = asked.columns
    shuffled = Table(("extra", "blood", "empty", "dose"), (dose, blood, empty, dose))
    others: tuple[tuple[Inputs, str], ...] = (
        (Table(("dose", "empty"), (dose, empty)), "blood"),
        (Table(("dose", "blood", "empty"), (blood, blood, empty)), "should be numbers"),
        (IMAGES, "take a table"),
    )
    damaged: tuple[dict[str, object], ...] = ({}, {"table": {"names": ["a"]}})
    return Case(kind, labelled(260), 60, 0.85, (asked, shuffled), others, damaged)


def of_digits(kind: Kind, right: float) -> Case:
    sizes: tuple[dict[str, object], ...] = ({}, {"size": [8, 8]}, {"size": [8, 8, "1"]})
    refused = "the teachers take images 8x8x1, the queries are"
    return Case(
        kind, digits().take(range(200)), 60, right, (), ((IMAGES, refused), (ALONE, refused)), sizes
    )


def of_networks() -> Case:
    from party.teachers.networks import Cnn

    return of_digits(Cnn("cpu"), 0.05)


def of_drawings() -> Case:
    sizes: tuple[dict[str, object], ...] = ({"size": [20, 20]}, {})
    refused = "the teachers take images 20x20x1"
    return Case(Nearest(), drawings(range(20), 4), 40, 0.4, (), ((IMAGES, refused),), sizes)


def of_embeddings() -> Case:
    lines = (embedded(1, width=13).schema(), "table age:number", "images 2x2x3", "", 3)
    damaged: tuple[dict[str, object], ...] = tuple({"embeddings": line} for line in lines)
    others: tuple[tuple[Inputs, str], ...] = (
        (embedded(3, width=13), "the teachers take embeddings 12"),
        (embedded(3, source="images"), "of images"),
    )
    return Case(Linear(), embedded_records(150), 30, 0.9, (), others, damaged)


OF_TABLES: tuple[Kind, ...] = (Linear(), Forest(), Boosting(), Logistic(), Prior(), Chosen())
CASES: dict[str, Callable[[], Case]] = {
    **{f"{kind.name} of a table": partial(of_table, kind) for kind in OF_TABLES},
    "linear of images": partial(of_digits, Linear(), 0.6),
    "cnn": of_networks,
    "nearest": of_drawings,
    "linear of embeddings": of_embeddings,
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "cnn":
            patch.setattr("party.teachers.networks.STEPS", 3)
        yield CASES[request.param]()


@pytest.fixture(scope="module")
def teacher(case: Case) -> Teacher:
    return case.kind.fit(case.data.take(range(case.shard)), 3)


def test_learns_is_stored_and_votes_as_it_did(case: Case, teacher: Teacher, tmp_path: Path) -> None:
    import torch

    shard, rest = (
        case.data.take(range(case.shard)),
        case.data.take(range(case.shard, len(case.data))),
    )
    before = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    check_kind(case.kind, shard, rest.inputs.take(range(20)))
    # Nobody's global generators were touched.
    after = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1] == after[1]
    answers = teacher.predict(rest.inputs)
    assert (answers == rest.labels).mean() > case.right
    save_teacher(tmp_path, 3, case.kind, teacher)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == sorted(["00003.json", f"00003.{case.kind.suffix}"])
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    again = load_teacher(tmp_path, 3, case.kind)
    assert again is not None
    assert (again.predict(rest.inputs) == answers).all()
    assert load_teacher(tmp_path, 4, case.kind) is None
    same = {tuple(teacher.predict(each).tolist()) for each in case.alike}
    assert len(same) <= 1, "columns are not aligned by name"


@pytest.mark.parametrize("rows", [2, 9])
def test_tiny_shards_answer_only_classes_they_have(case: Case, rows: int) -> None:
    pair = [int(np.flatnonzero(case.data.labels == label)[0]) for label in (1, 2)]
    answers = case.kind.fit(case.data.take((pair * 5)[:rows]), 0).predict(case.data.inputs)
    assert set(answers.tolist()) <= {1, 2, -1}


def test_other_inputs_and_damaged_teachers_are_refused(case: Case, teacher: Teacher) -> None:
    for inputs, why in case.others:
        with pytest.raises(SchemaError, match=why):
            teacher.predict(inputs)
    stored = teacher.store()
    case.kind.restore(Stored(json.loads(json.dumps(stored.facts)), stored.model))
    models = (b"", stored.model[:100], stored.model[:-8], b"\x80\x04N.")
    for damaged in (
        *(replace(stored, model=model) for model in models),
        *(replace(stored, facts=facts) for facts in case.damaged),
    ):
        with pytest.raises(DamagedTeacherError):
            case.kind.restore(damaged)


@pytest.mark.parametrize("kind", [Forest(), Boosting(), Logistic(), Prior()], ids=lambda k: k.name)
def test_teachers_of_tables_take_no_images(kind: Kind) -> None:
    data = Dataset(IMAGES, np.arange(12) % 2, ("a", "b"))
    with pytest.raises(SchemaError, match=f"{kind.name} teachers take tables"):
        kind.fit(data, 0)


def test_constants(tmp_path: Path) -> None:
    labels = np.arange(12) % 3
    assert Constant.of(labels) is None
    for few, label in ((labels[[2, 5]], 2), (labels[:0], -1)):
        made = Constant.of(few)
        assert made == Constant(label)
        assert made is not None
        assert made.predict(IMAGES).tolist() == [label] * 12
        save_teacher(tmp_path, 0, Linear(), made)
        assert load_teacher(tmp_path, 0, Linear()) == made


@pytest.mark.parametrize(
    ("inputs", "names"),
    [
        (IMAGES, {"auto": "linear", "linear": "linear", "cnn": "cnn", "nearest": "nearest"}),
        (
            ALONE,
            {each: each for each in ("auto", "linear", "forest", "boosting", "logistic", "prior")},
        ),
        (embedded(3), {"auto": "linear", "linear": "linear"}),
    ],
    ids=["images", "table", "embeddings"],
)
def test_kinds_by_name(inputs: Inputs, names: dict[str, str]) -> None:
    assert {model: kind_for(model, inputs, "cpu").name for model in names} == names


@pytest.mark.parametrize(
    ("model", "inputs", "device", "message"),
    [
        ("vgg", IMAGES, "cpu", "no model 'vgg'; for images there are auto, linear, nearest, cnn$"),
        ("cnn", ALONE, "cpu", "a table; use auto, linear, forest, boosting, logistic or prior"),
        ("forest", IMAGES, "cpu", "forest is not for images; use auto, linear, nearest or cnn"),
        ("linear", IMAGES, "tpu", "not one of auto, cpu, cuda"),
        ("forest", embedded(3), "cpu", "forest is not for embeddings; use auto or linear"),
    ],
)
def test_kinds_that_do_not_fit(model: str, inputs: Inputs, device: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kind_for(model, inputs, device)


def test_devices() -> None:
    import torch

    assert pick_device("cpu") == "cpu"
    assert pick_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(UsageError, match="not one of auto, cpu, cuda"):
        pick_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="finds no CUDA device"):
            pick_device("cuda")
