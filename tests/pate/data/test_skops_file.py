"""Files of models that would take far more than they have: refused before they are unpacked."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from party.teachers.tables import Forest
from pate.data.skops_file import check_skops
from pate.errors import DataError

ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
CLASSES = np.random.default_rng(1).integers(0, 3, 60)
#: No check may need more than this to see that a file is a bomb.
MODEST = 2**22


@cache
def forest() -> bytes:
    import skops.io
    from sklearn.ensemble import RandomForestClassifier

    made: bytes = skops.io.dumps(RandomForestClassifier(3, random_state=0).fit(ROWS, CLASSES))
    return made


def test_what_students_are_made_of_passes() -> None:
    import skops.io
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    for model in (
        RandomForestClassifier(20, random_state=0),
        LogisticRegression(max_iter=500),
        HistGradientBoostingClassifier(max_iter=20, early_stopping=False),
    ):
        made = model.fit(ROWS, CLASSES)
        check_skops(skops.io.dumps(made))
        deflated = skops.io.dumps(made, compression=zipfile.ZIP_DEFLATED)
        with pytest.raises(DataError, match="unpacks to more"):
            check_skops(deflated)
        check_skops(deflated, most=2**24)


def rebuilt(
    change: Callable[[dict[str, Any], dict[str, bytes]], object],
    compression: int = zipfile.ZIP_STORED,
) -> bytes:
    """Return the forest's file with its description and arrays changed."""
    with zipfile.ZipFile(io.BytesIO(forest())) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    described = json.loads(parts.pop("schema.json"))
    change(described, parts)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        archive.writestr("schema.json", json.dumps(described))
    return out.getvalue()


def npy(shape: tuple[int, ...], dtype: str, data: bytes = b"") -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return out.getvalue() + data


def first(parts: dict[str, bytes], content: bytes) -> None:
    parts[min(parts)] = content


def nodes(described: object) -> list[dict[str, Any]]:
    found, pending = [], [described]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            found.append(each)
            pending.extend(each.values())
        elif isinstance(each, list):
            pending.extend(each)
    return found


def arrays(described: object) -> list[dict[str, Any]]:
    return [each for each in nodes(described) if "file" in each]


def read_again(described: dict[str, Any], parts: dict[str, bytes]) -> None:
    """One array, asked for a thousand times under other numbers."""
    (some, *_) = arrays(described)
    described["content"]["content"]["copies"] = [{**some, "__id__": at} for at in range(1000)]


def laughing(described: dict[str, Any], parts: dict[str, bytes]) -> None:
    """Sixty lists, each of which has the one before it twice: 2**60 ways to the first."""

    def a_list(at: int, parts_: list[object]) -> dict[str, object]:
        return {
            "__class__": "list", "__module__": "builtins", "__loader__": "ListNode",
            "content": parts_, "__id__": at,
        }  # fmt: skip

    inner = a_list(1, [])
    for at in range(2, 60):
        inner = a_list(at, [inner, a_list(at - 1, [])])
    described["content"]["content"]["laughing"] = inner


def its_own_part(described: dict[str, Any], parts: dict[str, bytes]) -> None:
    described["content"]["content"]["own"] = {"__id__": described["__id__"]}


def of_many_outputs(described: dict[str, Any], parts: dict[str, bytes]) -> None:
    tree = next(each for each in nodes(described) if each.get("__loader__") == "TreeNode")
    tree["__reduce__"]["args"]["content"][2]["content"] = str(10**9)


def brackets(depth: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("schema.json", "[" * depth)
    return out.getvalue()


def of_array(*described: Any) -> Callable[[], bytes]:
    """Return what makes a file whose first array has another header, and content."""
    return lambda: rebuilt(lambda _, parts: first(parts, npy(*described)))


BOMBS: dict[str, Callable[[], bytes]] = {
    "deflated zeros": lambda: rebuilt(
        lambda _, parts: first(parts, npy((2**25,), "|u1", bytes(2**25))), zipfile.ZIP_DEFLATED
    ),
    "a header beyond its member": of_array((2**40,), "<f8"),
    "a header short of its member": of_array((1,), "|u1", bytes(2**16)),
    "an array of nothing": of_array((2**50,), "|V0"),
    "many empty rows": of_array((2**40, 0), "<f8"),
    "an array of objects": of_array((1,), "|O", bytes(8)),
    "no array": lambda: rebuilt(lambda _, parts: first(parts, forest())),
    "an archive within": lambda: rebuilt(lambda _, parts: parts.update({"x.npz": forest()})),
    "an array that is read again": lambda: rebuilt(read_again),
    "many ways to one list": lambda: rebuilt(laughing),
    "an object in itself": lambda: rebuilt(its_own_part),
    "a tree of many outputs": lambda: rebuilt(of_many_outputs),
    "an array that is not there": lambda: rebuilt(
        lambda d, _: arrays(d)[0].update(file="gone.npy")
    ),
    "an array called by no name": lambda: rebuilt(lambda d, _: arrays(d)[0].update(file=["x"])),
    "a number that is a text": lambda: rebuilt(lambda d, _: arrays(d)[0].update(__id__="1")),
    "a number that is true": lambda: rebuilt(lambda d, _: arrays(d)[0].update(__id__=True)),
    "deep brackets": lambda: brackets(200_000),
    "nothing": lambda: b"",
    "no archive": lambda: b"not a zip",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_and_takes_little(name: str) -> None:
    bomb = BOMBS[name]()
    with pytest.raises(DataError):
        check_skops(bomb)  # once before, for what is imported on the way
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            check_skops(bomb)
        assert tracemalloc.get_traced_memory()[1] < MODEST + 4 * len(bomb)
    finally:
        tracemalloc.stop()


def test_two_members_of_one_name_are_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("schema.json", "{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("schema.json", "{}")
    with pytest.raises(DataError, match="two members"):
        check_skops(out.getvalue())


def test_a_stored_teacher_is_checked_as_well() -> None:
    from party.teachers.protocol import DamagedTeacherError, Stored
    from pate.data.values import Dataset, Table

    table = Table(("a", "b", "c"), tuple(ROWS.T.astype(np.float64)))
    stored = Forest().fit(Dataset(table, CLASSES, ("a", "b", "c")), 0).store()
    Forest().restore(stored)
    for name in ("a header beyond its member", "many ways to one list"):
        with pytest.raises(DamagedTeacherError):
            Forest().restore(Stored(stored.facts, BOMBS[name]()))
