"""Fixtures that many tests share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pate.runtime.environment import QUIET_FLOWER
from tests.postgres import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.postgres import Cluster

# Before the first import of flwr anywhere: no telemetry, no update check, no runtime installs.
os.environ.update(QUIET_FLOWER)

_BESIDE_THE_CHECKOUT = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real data sets; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("PATE_TEST_DATA", _BESIDE_THE_CHECKOUT))
    if not (folder / "mnist").is_dir():
        pytest.skip("PATE_TEST_DATA is not set: the real data sets are not here")
    return folder


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server of our own; tests that need it are skipped where it is not installed."""
    yield from running_cluster()
