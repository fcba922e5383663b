"""Secrets are readable by their owner alone, whatever was there before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pate.errors import DiskError
from pate.runtime.private_files import new_secret, write_privately

if TYPE_CHECKING:
    from pathlib import Path


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
    write_privately(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError):
        write_privately(tmp_path / "file" / "secret", b"x")
