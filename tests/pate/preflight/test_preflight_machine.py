"""Python, packages, memory and disk, on real files; nothing that is looked at is changed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from pate.errors import DiskError, PateError, StateError
from pate.preflight.checks import Finding, Status
from pate.preflight.machine import (
    check_home,
    check_memory,
    check_packages,
    check_python,
    check_sqlite,
    file_system,
)

GIB = 2**30
LOCAL = "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


def status_of(found: Finding) -> Status:
    return found.status


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which packages are imported; what lies in it counts as installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def distribution(folder: Path, name: str, version: str, *lines: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    head = ("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}")
    (info / "METADATA").write_text("\n".join((*head, *lines)) + "\n")


def test_this_installation_is_as_it_should_be() -> None:
    assert status_of(check_python()) is Status.OK
    found = check_packages()
    assert status_of(found) is Status.OK, found.text


def test_a_python_below_the_floor_fails(install: Path) -> None:
    distribution(install, "far-ahead", "1.0", "Requires-Python: >=9.1")
    found = check_python("far-ahead")
    assert found.kind is PateError
    assert ">=9.1" in found.text


def test_packages_below_their_floors_and_missing_ones_are_named(install: Path) -> None:
    distribution(install, "old-one", "1.5")
    distribution(
        install, "whole", "1.0",
        "Requires-Dist: old-one>=2.0",
        "Requires-Dist: not-there-at-all>=1",
        "Requires-Dist: numpy>=1",
        'Requires-Dist: of-no-interest>=7; extra == "more"',
        'Requires-Dist: of-no-interest>=7; python_version < "3"',
    )  # fmt: skip
    found = check_packages("whole")
    assert found.kind is PateError
    assert found.text == "old-one is 1.5, wanted is >=2.0; not-there-at-all is missing"
    distribution(install, "not-there-at-all", "1.0")
    distribution(install, "older-floor", "1.0", "Requires-Dist: old-one>=1.2,<2")
    assert status_of(check_packages("older-floor")) is Status.OK


def test_a_checkout_that_nobody_installed_is_a_warning() -> None:
    assert status_of(check_packages("never-installed-here")) is Status.WARNING
    assert status_of(check_python("never-installed-here")) is Status.WARNING


def test_memory_of_the_machine_and_of_a_container(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n")
    found = check_memory(2 * GIB, meminfo=meminfo, cgroup=tmp_path)
    assert (found.status, found.text) == (Status.OK, "16.0 GiB, 8.0 GiB free")
    assert status_of(check_memory(9 * GIB, meminfo=meminfo, cgroup=tmp_path)) is Status.WARNING
    (tmp_path / "memory.max").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{2 * GIB}\n")
    found = check_memory(2 * GIB, meminfo=meminfo, cgroup=tmp_path)
    assert found.status is Status.WARNING
    assert "3.0 GiB (this container's limit), 1.0 GiB free" in found.text
    (tmp_path / "memory.max").write_text("max\n")
    assert status_of(check_memory(2 * GIB, meminfo=meminfo, cgroup=tmp_path)) is Status.OK
    assert status_of(check_memory(1, meminfo=tmp_path / "none")) is Status.SKIPPED


def test_a_home_is_probed_and_left_as_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "kept").write_text("kept")
    for found in (check_home(home, "all"), check_sqlite(home)):
        assert status_of(found) in (Status.OK, Status.WARNING)
    assert [path.name for path in home.iterdir()] == ["kept"]
    new = tmp_path / "not" / "yet"
    found = check_home(new, "all")
    assert "which a start will make" in found.text
    assert status_of(check_sqlite(new)) in (Status.OK, Status.WARNING)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_a_home_that_cannot_be_written_fails(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert check_home(file, "all").kind is DiskError
    from pathlib import Path as Place

    proc = Place("/proc")  # it exists, and not even root can write to it
    assert check_home(proc, "all").kind is DiskError
    assert check_sqlite(proc).kind is DiskError


def test_a_home_that_others_may_write_to_fails_and_one_they_may_read_warns(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for mode, status in ((0o770, Status.FAILED), (0o750, Status.WARNING), (0o700, Status.OK)):
        home.chmod(mode)
        found = check_home(home, "all")
        assert found.status is status, (oct(mode), found.text)
        assert found.status is Status.OK or "chmod 700" in found.to_do
    home.chmod(0o770)
    assert check_home(home, "all").kind is StateError


def test_sqlite_is_written_as_ledgers_are(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(LOCAL)
    found = check_sqlite(tmp_path, mounts)
    assert found.status is Status.OK
    assert found.text == (
        f"SQLite {sqlite3.sqlite_version}: write-ahead log, synchronous=FULL, on ext4"
    )


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "tmpfs", "overlay"])
def test_disks_of_others_and_disks_that_pass_are_a_warning(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"{LOCAL}25 24 0:30 / {tmp_path.resolve()} rw - {kind} there rw\n")
    found = check_sqlite(tmp_path / "home", mounts)
    assert found.status is Status.WARNING
    assert kind in found.text


def test_the_nearest_mount_counts(tmp_path: Path) -> None:
    place = tmp_path.resolve() / "with space" / "below"
    place.mkdir(parents=True)
    written = str(place.parent).replace(" ", "\\040")
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"25 24 0:30 / {written} rw - xfs a rw\n26 24 0:31 / {written}/belo rw - nfs b rw\nx\n{LOCAL}"
    )
    assert file_system(place, mounts) == "xfs"
    assert file_system(tmp_path, mounts) == "ext4"
    assert file_system(tmp_path, tmp_path / "none") == ""
