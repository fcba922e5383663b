"""Bundles with code are distinguished from those without, without running any of it."""

from __future__ import annotations

import io
import zipfile

import pytest

from aggregator_server.flower.internals import codeless_fab
from protos.flower.runtime import carries_code, fab_hash


def bundle(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return file.getvalue()


def test_our_own_bundle_carries_no_code() -> None:
    assert not carries_code(codeless_fab())


def test_our_own_bundle_is_always_the_same() -> None:
    assert fab_hash(codeless_fab()) == fab_hash(codeless_fab())


@pytest.mark.parametrize(
    "fab",
    [
        bundle("pyproject.toml", ".info/CONTENT", "evil.py"),
        bundle("pyproject.toml", "pkg/__init__.py"), bundle("../pyproject.toml"),
        bundle("pyproject.toml", "data.json"), b"not an archive", b"",
    ],
)  # fmt: skip
def test_anything_more_counts_as_code(fab: bytes) -> None:
    assert carries_code(fab)
