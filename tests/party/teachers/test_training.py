"""Training of teachers, their files, and what they cast."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from party.teachers.ensemble import Ensemble, assign_shards, idle_column
from party.teachers.linear import Linear
from party.teachers.training import load_teacher, train_ensemble
from pate.data.values import Dataset, Images, Table
from pate.errors import DataError, DiskError, SchemaError
from pate.votes import check_votes
from tests.support.world.in_process import killed_at

KEY = b"k" * 32
CLASSES = ("cat", "dog", "eel")


def images(n: int, seed: int = 0) -> Dataset:
    """Squares that are bright at the top, at the left, or in the middle."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, n)
    pixels = draw.integers(0, 60, (n, 8, 8, 1))
    for at, label in enumerate(labels.tolist()):
        part = (slice(0, 3), slice(0, 8)), (slice(0, 8), slice(0, 3)), (slice(3, 6), slice(3, 6))
        pixels[(at, *part[label])] += 150
    return Dataset(Images(pixels.astype(np.uint8)), labels.astype(np.int64), CLASSES)


def train(
    data: Dataset,
    home: Path,
    *,
    teachers: int = 5,
    model: str = "auto",
    key: bytes = KEY,
    steps: list[tuple[int, int]] | None = None,
) -> Ensemble:
    return train_ensemble(
        data,
        teachers=teachers,
        model=model,
        device="cpu",
        home=home,
        key=key,
        progress=lambda done, total: None if steps is None else steps.append((done, total)),
    )


def written(home: Path) -> dict[str, int]:
    """Return the inode of each stored file: it changes when the file is written again."""
    return {path.name: path.stat().st_ino for path in home.rglob("*") if path.is_file()}


def votes_of(
    ensemble: Ensemble, data: Dataset, classes: Sequence[str] = CLASSES
) -> list[list[int]]:
    votes: list[list[int]] = ensemble.vote(data.inputs, range(len(data)), classes).tolist()
    return votes


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    return train(images(120), tmp_path_factory.mktemp("home"))


def test_votes_are_valid_and_right(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    ensemble = train(images(120), tmp_path, steps=steps)
    assert steps == [(done, 5) for done in range(6)]
    assert (ensemble.teachers, ensemble.classes, ensemble.unit) == (5, CLASSES, "record")
    assert (ensemble.schema, len(ensemble.fingerprint)) == ("images 8x8x1", 32)
    test = images(200, seed=1)
    votes = ensemble.vote(test.inputs, range(len(test)), CLASSES)
    assert votes.dtype == np.int64
    check_votes(votes, teachers=5, classes=3, queries=200)
    assert (votes.argmax(axis=1) == test.labels).mean() > 0.9


def test_columns_follow_the_campaign_and_votes_the_query(
    trained: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    test, every = images(50, seed=1).inputs, range(50)
    own = trained.vote(test, every, CLASSES)
    wider = trained.vote(test, every, ("eel", "fox", "cat", "dog"))
    assert (wider[:, [2, 3, 0]] == own).all()
    assert not wider[:, 1].any()
    with pytest.raises(SchemaError, match="the campaign lacks: eel"):
        trained.vote(test, every, ("cat", "dog"))
    with pytest.raises(SchemaError, match="the queries are images 9x9x1"):
        trained.vote(Images(np.zeros((1, 9, 9, 1), np.uint8)), (0,), CLASSES)
    monkeypatch.setattr("party.teachers.ensemble._ROWS_AT_ONCE", 7)
    for rows in (every, (), (4, 40, 3)):
        assert (trained.vote(test, rows, CLASSES) == own[list(rows)]).all()


def test_more_teachers_than_filled_shards(tmp_path: Path) -> None:
    # 9 records over 9 shards: hashing leaves some empty, and others with one class only.
    data = images(9)
    assert len(set(assign_shards(data, 9, KEY).tolist())) < 9
    for home in (tmp_path, tmp_path):  # trained, then read back
        votes = train(data, home, teachers=9).vote(images(20, seed=1).inputs, range(20), CLASSES)
        check_votes(votes, teachers=9, classes=3, queries=20)
    # The votes of empty shards depend only on the key and the classes.
    idle = [idle_column(KEY, number, 3) for number in range(200)]
    assert set(idle) == {0, 1, 2}


def test_stored_teachers_are_used_again(tmp_path: Path) -> None:
    data, test = images(120), images(40, seed=1)
    first = train(data, tmp_path)
    before = written(tmp_path)
    assert len(before) == 10
    shuffled = data.take(np.random.default_rng(5).permutation(len(data)))
    again = train(shuffled, tmp_path)
    assert written(tmp_path) == before
    assert again.fingerprint == first.fingerprint
    assert votes_of(again, test) == votes_of(first, test)


@pytest.mark.parametrize(
    "change", ["record", "label", "teachers", "key", "classes", "groups", "model"]
)
def test_a_change_trains_anew_and_keeps_only_the_current(tmp_path: Path, change: str) -> None:
    data = images(60)
    first = train(data, tmp_path)
    labels = data.labels.copy()
    labels[0] = (labels[0] + 1) % 3
    groups = np.array([str(at) for at in range(60)], dtype=np.str_)
    other = {
        "record": data.take(range(59)),
        "label": Dataset(data.inputs, labels, CLASSES),
        "classes": data.with_classes(("ant", *CLASSES)),
        "groups": Dataset(data.inputs, data.labels, CLASSES, groups),
    }.get(change, data)
    second = (
        train(
            other,
            tmp_path,
            teachers=6 if change == "teachers" else 5,
            key=b"other" if change == "key" else KEY,
        )
        if change != "model"
        else _with_cnn(data, tmp_path)
    )
    assert second.fingerprint != first.fingerprint
    assert second.unit == ("patient" if change == "groups" else "record")
    [folder] = (tmp_path / "teachers").iterdir()
    assert second.fingerprint.hex().startswith(folder.name)


def _with_cnn(data: Dataset, home: Path) -> Ensemble:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("party.teachers.networks.STEPS", 1)
        return train(data, home, model="cnn")


def test_a_record_changes_one_teacher_at_most(tmp_path: Path) -> None:
    # The sensitivity that the accounting starts from, with the strongest record there can be: one
    # that lies beyond all others, and has a category that no other has.
    def table(rows: list[tuple[float, str, int]]) -> Dataset:
        numbers, texts, labels = zip(*rows, strict=True)
        return Dataset(
            Table(("n", "t"), (np.array(numbers), np.array(texts, dtype=np.str_))),
            np.array(labels, np.int64),
            CLASSES,
        )

    draw = np.random.default_rng(2)
    rows = [
        (float(value), "ab"[int(value) % 2], int(value) % 3) for value in draw.integers(0, 99, 80)
    ]
    grown = table([(1e9, "new", 2), *rows])
    shard = int(assign_shards(grown, 5, KEY)[0])
    queries = table([(float(value), "ab"[value % 2], 0) for value in range(99)]).inputs
    for model in ("linear", "logistic", "forest"):
        one = train(table(rows), tmp_path / "a", model=model)
        more = train(grown, tmp_path / "b", model=model)
        pairs = list(enumerate(zip(one.members, more.members, strict=True)))
        if model != "forest":  # scikit-learn's files differ where trees do not
            assert [number for number, (x, y) in pairs if x.store() != y.store()] == [shard]
        for number, (x, y) in pairs:
            assert number == shard or (x.predict(queries) == y.predict(queries)).all()
        less, cast = (each.vote(queries, range(99), CLASSES) for each in (one, more))
        moved = np.abs(less - cast).sum(axis=1)
        assert moved.max() <= 2


def test_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    data = images(60)
    ensemble = train(data, tmp_path)
    litter = tmp_path / "teachers" / ensemble.fingerprint.hex()[:32] / ".00001.json.x8d2"
    litter.write_bytes(b"half")
    kept = tmp_path / "teachers" / "notes of mine"
    kept.mkdir()
    train(data, tmp_path)
    assert not litter.exists()
    assert kept.exists()


def test_bad_data_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="4 records for 5 teachers"):
        train(images(4), tmp_path)
    with pytest.raises(DataError, match="one class only"):
        train(images(60).take(np.flatnonzero(images(60).labels == 1)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_killed_process_goes_on_with_the_rest(tmp_path: Path) -> None:
    assert killed_at("teacher-trained:3", lambda: train(images(120), tmp_path))
    before = written(tmp_path)
    assert sorted(before) == [
        "00000.json", "00000.safetensors", "00001.json", "00001.safetensors",
    ]  # fmt: skip
    train(images(120), tmp_path)
    after = written(tmp_path)
    assert len(after) == 10
    assert {name: after[name] for name in before} == before


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    def full() -> None:
        # A limit on file size makes writes fail as a full disk does: model files are larger than it.
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        with pytest.raises(DiskError, match="cannot write"):
            train(images(120), tmp_path)

    assert not killed_at(None, full)  # in a process of its own
    assert not written(tmp_path)
    train(images(120), tmp_path)


def _version(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "version": "0"}).encode()


#: What happens to a file; any byte of a model will do, in the JSON a letter of a key.
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "json empty": lambda _: b"",
    "json cut": lambda content: content[:-30],
    "json flipped": lambda content: content.replace(b"sha256", b"rha256"),
    "json a list": lambda _: b"[]",
    "json no facts": lambda _: b"{}",
    "json other facts": lambda _: b'{"facts": 3}',
    "json no text": lambda _: b"\xff",
    "json of another version": _version,
    "safetensors empty": lambda _: b"",
    "safetensors cut": lambda content: content[:-30],
    "safetensors flipped": lambda content: content[:-5] + bytes([content[-5] ^ 1]) + content[-4:],
}


def test_a_damaged_teacher_is_trained_again_and_no_other(tmp_path: Path) -> None:
    data, test = images(120), images(40, seed=1)
    votes = votes_of(train(data, tmp_path), test)
    [folder] = (tmp_path / "teachers").iterdir()
    own = {"00002.json", "00002.safetensors"}
    for damage, how in DAMAGE.items():
        path = folder / f"00002.{damage.split()[0]}"
        path.write_bytes(how(path.read_bytes()))
        assert load_teacher(folder, 2, Linear()) is None, damage
        before = written(tmp_path)
        assert votes_of(train(data, tmp_path), test) == votes
        after = written(tmp_path)
        assert {name for name in before if before[name] != after[name]} == own, damage
    for name in own:
        (folder / name).unlink()
        assert load_teacher(folder, 2, Linear()) is None
        train(data, tmp_path)
