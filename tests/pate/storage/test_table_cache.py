"""Tables on disk: taken up again if they are what was asked for, built again otherwise."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from pate.accounting.bounds import theorem6_plus
from pate.accounting.bounds.theorem6_plus import Table
from pate.errors import AccountingError
from pate.storage import table_cache
from pate.storage.table_cache import cached_table, default_folder

MU, ORDERS = 0.1, [2.0, 8.0]


class Builds:
    """Counts how often a table is built; small ones, for speed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        real = Table.build

        def build(mu: float, orders: ArrayLike, knots: int, *others: Any) -> Table:
            self.number += 1
            return real(mu, orders, knots, *others)

        monkeypatch.setattr(theorem6_plus, "KNOTS", 32)
        monkeypatch.setattr(Table, "build", build)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Builds:
    return Builds(monkeypatch)


def same(one: Table, other: Table) -> bool:
    arrays, others = one.to_arrays(), other.to_arrays()
    return all(np.array_equal(arrays[name], others[name]) for name in arrays)


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_a_table_is_built_once(tmp_path: Path, builds: Builds) -> None:
    folder = tmp_path / "new" / "tables"
    first = cached_table(MU, ORDERS, folder)
    again = cached_table(MU, np.array(ORDERS), folder)
    assert builds.number == 1
    assert same(first, again)
    assert first.knots.size == 32
    assert only_file(folder).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "other", [(0.1000000001, ORDERS), (MU, [2.0]), (MU, [8.0, 2.0]), (MU, [2.0, 8.0, 9.0])]
)
def test_another_table_is_another_file(
    tmp_path: Path, builds: Builds, other: tuple[float, list[float]]
) -> None:
    cached_table(MU, ORDERS, tmp_path)
    made = cached_table(*other, tmp_path)
    assert builds.number == 2
    assert made.mu == other[0]
    assert made.orders.tolist() == other[1]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("name", "value"), [("KNOTS", 40), ("TIGHTNESS", 0.01), ("VERSION", "another")]
)
def test_a_table_of_other_settings_is_not_taken(
    tmp_path: Path, builds: Builds, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    cached_table(MU, ORDERS, tmp_path)
    monkeypatch.setattr(theorem6_plus, name, value)
    cached_table(MU, ORDERS, tmp_path)
    assert builds.number == 2


def flipped(place: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        at = place % len(content)
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

    return flip


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:0],
        lambda content: content[:40],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: b"x" * len(content),
        lambda content: content[43:],
        *(flipped(place) for place in (0, 5, 11, 30, 50, 200, 600, 900, -100, -1)),
    ],
)
def test_a_damaged_file_is_built_again(
    tmp_path: Path, builds: Builds, damage: Callable[[bytes], bytes]
) -> None:
    good = cached_table(MU, ORDERS, tmp_path)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert same(cached_table(MU, ORDERS, tmp_path), good)
    assert builds.number == 2
    # And written over.
    assert path.read_bytes() == whole
    cached_table(MU, ORDERS, tmp_path)
    assert builds.number == 2


def test_a_table_under_the_name_of_another_is_not_taken(tmp_path: Path, builds: Builds) -> None:
    cached_table(MU, ORDERS, tmp_path)
    path = only_file(tmp_path)
    cached_table(MU / 2.0, ORDERS, tmp_path)
    (cheaper,) = set(tmp_path.iterdir()) - {path}
    path.write_bytes(cheaper.read_bytes())
    assert cached_table(MU, ORDERS, tmp_path).mu == MU
    assert builds.number == 3


class Boom:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize("kind", ["pickle", "no table", "no archive", "another mu"])
def test_a_file_with_a_right_digest_that_is_no_table_is_built_again(
    tmp_path: Path, builds: Builds, kind: str
) -> None:
    good = cached_table(MU, ORDERS, tmp_path)
    path = only_file(tmp_path)
    body = io.BytesIO()
    if kind == "pickle":
        np.savez(body, values=np.array([Boom()], object))
    elif kind == "no table":
        np.savez(body, allow_pickle=False, **(good.to_arrays() | {"values": -good.values}))
    elif kind == "another mu":
        np.savez(body, allow_pickle=False, **Table.build(MU / 2.0, ORDERS, 32, 1e-3).to_arrays())
    else:
        body.write(b"PK\3\4 but not more than that")
    key = bytes.fromhex(path.stem)
    digest = hashlib.sha256(key + body.getvalue()).digest()
    path.write_bytes(b"pate table\n" + digest + body.getvalue())
    before = builds.number
    assert same(cached_table(MU, ORDERS, tmp_path), good)
    assert builds.number == before + 1


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_to_is_not_believed(
    tmp_path: Path, builds: Builds, mode: int
) -> None:
    cached_table(MU, ORDERS, tmp_path)
    path = only_file(tmp_path)
    path.chmod(mode)
    cached_table(MU, ORDERS, tmp_path)
    assert builds.number == 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_of_somebody_else_is_not_believed(
    tmp_path: Path, builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached_table(MU, ORDERS, tmp_path)
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    cached_table(MU, ORDERS, tmp_path)
    assert builds.number == 2


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_plain_file_is_not_read(tmp_path: Path, builds: Builds, kind: str) -> None:
    folder = tmp_path / "tables"
    good = cached_table(MU, ORDERS, folder)
    path = only_file(folder)
    moved = tmp_path / "elsewhere"
    path.rename(moved)
    if kind == "link":
        path.symlink_to(moved)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert same(cached_table(MU, ORDERS, folder), good)
    assert builds.number == 2


def test_a_file_of_a_senseless_size_is_not_read(
    tmp_path: Path, builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached_table(MU, ORDERS, tmp_path)
    monkeypatch.setattr(table_cache, "_LARGEST", 100)
    cached_table(MU, ORDERS, tmp_path)
    assert builds.number == 2


def test_a_place_that_cannot_be_written_costs_only_time(tmp_path: Path, builds: Builds) -> None:
    (tmp_path / "file").write_text("")
    first = cached_table(MU, ORDERS, tmp_path / "file")
    assert same(cached_table(MU, ORDERS, tmp_path / "file" / "deep"), first)
    assert builds.number == 2


def test_a_full_disk_costs_only_time(
    tmp_path: Path, builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    cached_table(MU, ORDERS, tmp_path)
    cached_table(MU, ORDERS, tmp_path)
    assert builds.number == 2
    assert not list(tmp_path.iterdir())


def test_the_oldest_tables_go(
    tmp_path: Path, builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_cache, "_KEPT", 3)
    (tmp_path / "notes").write_text("not a table")
    for number in range(5):
        cached_table(MU + number, ORDERS, tmp_path)
        newest = max(tmp_path.glob("*.table"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    assert len(list(tmp_path.glob("*.table"))) == 3
    assert (tmp_path / "notes").exists()
    cached_table(MU + 4, ORDERS, tmp_path)
    assert builds.number == 5
    cached_table(MU, ORDERS, tmp_path)
    assert builds.number == 6


def test_the_place_is_the_users_cache(
    tmp_path: Path, builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder().is_relative_to(tmp_path)
    cached_table(MU, ORDERS)
    cached_table(MU, ORDERS)
    assert builds.number == 1
    assert only_file(default_folder()).suffix == ".table"


@pytest.mark.parametrize(("mu", "orders"), [(-1.0, ORDERS), (float("nan"), ORDERS), (MU, [1.0])])
def test_what_makes_no_sense_is_refused(tmp_path: Path, mu: float, orders: list[float]) -> None:
    with pytest.raises(AccountingError):
        cached_table(mu, orders, tmp_path)
    assert not list(tmp_path.iterdir())
