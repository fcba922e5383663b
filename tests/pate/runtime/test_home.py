"""State directories: private files, whole files, and one process at a time."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pate.errors import DiskError, StateError
from pate.runtime.child import Child
from pate.runtime.home import (
    locked,
    new_secret,
    open_private,
    private_directory,
    sweep_drafts,
    write_file,
)
from tests.support.needs import require


def test_a_secret_is_new_each_time_and_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "secret"
    first = new_secret(path)
    second = new_secret(path)
    assert first != second
    assert len(second) == 32
    assert path.read_bytes() == second
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_permissions_of_an_older_file_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError):
        write_file(tmp_path / "file" / "secret", b"x")
    with pytest.raises(DiskError):
        private_directory(tmp_path / "file" / "folder")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept"
    write_file(path, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match="No space left"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert private_directory(tmp_path / "a" / "b" / "c").stat().st_mode & 0o777 == 0o700
    for made in (tmp_path / "a", tmp_path / "a" / "b"):
        assert made.stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o777 == 0o755, "what is there stays as it is"


def test_a_second_holder_of_a_lock_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with locked(lock, "somebody"), pytest.raises(StateError, match="somebody runs on it already"):
        locked(lock, "somebody").__enter__()
    with locked(lock, "somebody"):
        pass


def test_a_write_that_is_interrupted_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "kept", b"a secret")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_write_left_is_removed_by_the_next_holder_of_the_lock(tmp_path: Path) -> None:
    left = tmp_path / ".identity.key.a1b2c3_9"
    folder = tmp_path / ".identity.z9y8x7w6"
    folder.mkdir()
    for path in (left, folder / "ca.key", tmp_path / "identity.key", tmp_path / ".hidden"):
        path.write_bytes(b"secret")
    with locked(tmp_path / "lock", "somebody"):
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            ".hidden",
            "identity.key",
            "lock",
        ]


def test_drafts_of_one_file_alone_can_be_removed(tmp_path: Path) -> None:
    for name in (".parties.json.a1b2c3d4", ".server.pem.a1b2c3d4"):
        (tmp_path / name).write_bytes(b"")
    sweep_drafts(tmp_path, "parties.json")
    assert [path.name for path in tmp_path.iterdir()] == [".server.pem.a1b2c3d4"]


#: A user who is not there, whose files root may write all the same.
STRANGER = 43_210


def owners(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_uid for path in folder.rglob("*")}


def test_root_leaves_nothing_in_a_directory_that_another_user_alone_may_use(tmp_path: Path) -> None:
    require(os.geteuid() == 0, "root")
    home = private_directory(tmp_path / "home")
    write_file(home / "kept", b"old")
    for path in (home, home / "kept"):
        os.chown(path, STRANGER, STRANGER)
    for change in (
        lambda: private_directory(home),
        lambda: write_file(home / "kept", b"new"),
        lambda: write_file(home / "other", b"new"),
        lambda: new_secret(home / "secret"),
        lambda: locked(home / "lock", "another").__enter__(),
    ):
        with pytest.raises(StateError, match=rf"belongs to user {STRANGER}, and this is user root"):
            change()
    assert owners(home) == {"kept": STRANGER}
    assert (home / "kept").read_bytes() == b"old"


def test_a_private_file_of_another_user_is_not_replaced_in_an_open_directory(
    tmp_path: Path,
) -> None:
    require(os.geteuid() == 0, "root")
    tmp_path.chmod(0o755)
    for name, mode in (("token", 0o600), ("shared", 0o644)):
        write_file(tmp_path / name, b"old", mode=mode)
        os.chown(tmp_path / name, STRANGER, STRANGER)
    with pytest.raises(StateError, match="token belongs to user"):
        write_file(tmp_path / "token", b"new")
    write_file(tmp_path / "shared", b"new", mode=0o644)
    assert (tmp_path / "token").read_bytes() == b"old"
    assert (tmp_path / "shared").read_bytes() == b"new"
    # A directory that others may use, too, such as a volume with a group, is no home.
    shared = tmp_path / "volume"
    shared.mkdir()
    shared.chmod(0o770)
    os.chown(shared, STRANGER, STRANGER)
    write_file(private_directory(shared) / "file", b"new")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_locks_and_logs_are_for_the_owner_alone_whatever_the_umask(
    tmp_path: Path, no_umask: None
) -> None:
    (tmp_path / "old.log").write_text("as an open umask left it\n")
    assert (tmp_path / "old.log").stat().st_mode & 0o777 == 0o666
    with locked(tmp_path / "home" / "lock", "another"):
        pass
    with open_private(tmp_path / "old.log") as log:
        log.write(b"more\n")
    assert (tmp_path / "old.log").read_text().endswith("left it\nmore\n")
    for path in (tmp_path / "old.log", tmp_path / "home" / "lock"):
        assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def test_what_a_child_writes_is_for_the_owner_alone_whatever_the_umask(
    tmp_path: Path, no_umask: None
) -> None:
    """As Flower's files are, which it opens itself."""
    child = Child("writer", "zipfile:main", ["-c", "made", "writer.log"], home=tmp_path / "home")
    assert child.ended(60.0)
    assert child.exit_code == 0
    child.stop()
    found = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "home").iterdir()}
    assert found["writer.log"] == 0o600
    assert found["made"] == 0o600
