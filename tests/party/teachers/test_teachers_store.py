"""Teachers on disk, the teachers of shards with nothing to learn, and kinds by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from party.teachers.constant import Constant
from party.teachers.linear import Linear
from party.teachers.protocol import NO_OPINION
from party.teachers.registry import kind_for
from party.teachers.store import load_teacher, save_teacher
from pate.data.values import Dataset, Images, Table
from pate.errors import UsageError
from tests.support.encoders.embedded import embedded

if TYPE_CHECKING:
    from pathlib import Path

    from pate.data.values import Inputs

IMAGES = Images(np.random.default_rng(0).integers(0, 256, (12, 6, 6, 1), dtype=np.uint8))
TABLE = Table(("a",), (np.zeros(3),))
DATA = Dataset(IMAGES, np.arange(12) % 3, ("a", "b", "c"))


def test_round_trip(tmp_path: Path) -> None:
    teacher = Linear().fit(DATA, 0)
    save_teacher(tmp_path, 3, Linear(), teacher)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00003.json", "00003.safetensors"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    again = load_teacher(tmp_path, 3, Linear())
    assert again is not None
    assert (again.predict(IMAGES) == teacher.predict(IMAGES)).all()
    assert load_teacher(tmp_path, 4, Linear()) is None


@pytest.mark.parametrize("name", ["00000.json", "00000.safetensors"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "empty"])
def test_damage_is_noticed(tmp_path: Path, name: str, damage: str) -> None:
    save_teacher(tmp_path, 0, Linear(), Linear().fit(DATA, 0))
    path = tmp_path / name
    content = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    elif damage == "flip":
        # In the JSON, the first letter of "sha256" and so a key; in the model any byte will do.
        content[content.find(b"sha256") if name.endswith("json") else -5] ^= 1
        path.write_bytes(content)
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "truncate" else b"")
    assert load_teacher(tmp_path, 0, Linear()) is None


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"facts": 3}', b"null", b"\xff"])
def test_other_json_is_no_teacher(tmp_path: Path, content: bytes) -> None:
    save_teacher(tmp_path, 0, Linear(), Linear().fit(DATA, 0))
    (tmp_path / "00000.json").write_bytes(content)
    assert load_teacher(tmp_path, 0, Linear()) is None


def test_another_version_is_another_teacher(tmp_path: Path) -> None:
    save_teacher(tmp_path, 0, Linear(), Linear().fit(DATA, 0))
    path = tmp_path / "00000.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "version": "0"}))
    assert load_teacher(tmp_path, 0, Linear()) is None
    path.write_text(json.dumps(facts))
    assert load_teacher(tmp_path, 0, Linear()) is not None


def test_constants(tmp_path: Path) -> None:
    assert Constant.of(DATA.labels) is None
    single = Constant.of(DATA.labels[[2, 5]])
    assert single == Constant(2)
    assert single is not None
    assert single.predict(IMAGES).tolist() == [2] * 12
    empty = Constant.of(DATA.labels[:0])
    assert empty == Constant(NO_OPINION)
    assert empty is not None
    save_teacher(tmp_path, 0, Linear(), empty)
    assert load_teacher(tmp_path, 0, Linear()) == empty


@pytest.mark.parametrize(
    ("model", "inputs", "name"),
    [
        ("auto", IMAGES, "linear"),
        ("auto", TABLE, "auto"),
        ("logistic", TABLE, "logistic"),
        ("forest", TABLE, "forest"),
        ("linear", TABLE, "linear"),
        ("cnn", IMAGES, "cnn"),
        ("nearest", IMAGES, "nearest"),
        ("boosting", TABLE, "boosting"),
        ("prior", TABLE, "prior"),
        ("auto", embedded(3), "linear"),
        ("linear", embedded(3), "linear"),
    ],
)
def test_kinds_by_name(model: str, inputs: Inputs, name: str) -> None:
    assert kind_for(model, inputs, "cpu").name == name


@pytest.mark.parametrize(
    ("model", "inputs", "device", "message"),
    [
        (
            "vgg",
            IMAGES,
            "cpu",
            "no model 'vgg'; for images there are auto, linear, nearest, cnn$",
        ),
        (
            "cnn",
            TABLE,
            "cpu",
            "cnn is not for a table; use auto, linear, forest, boosting, logistic or prior",
        ),
        (
            "forest",
            IMAGES,
            "cpu",
            "forest is not for images; use auto, linear, nearest or cnn",
        ),
        ("logistic", IMAGES, "cpu", "logistic is not for images"),
        ("linear", IMAGES, "tpu", "not one of auto, cpu, cuda"),
        ("forest", embedded(3), "cpu", "forest is not for embeddings; use auto or linear"),
        ("vgg", embedded(3), "cpu", "no model 'vgg'; for embeddings there are auto, linear$"),
    ],
)
def test_kinds_that_do_not_fit(model: str, inputs: Inputs, device: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kind_for(model, inputs, device)
