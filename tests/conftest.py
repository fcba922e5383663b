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

#: The files that take a minute and more, the longest first. Each is the work of one process: begun last,
#: it would be worked on alone while the others have nothing left to do.
LONGEST = (
    "benchmarks/test_soak.py",
    "end_to_end/test_clock.py",
    "end_to_end/test_simulate_ray.py",
    "end_to_end/test_simulate.py",
    "end_to_end/test_network.py",
    "end_to_end/test_failpoints.py",
    "end_to_end/test_crashes.py",
    "student/test_image_trainers.py",
    "commands/test_audit_bugs.py",
    "end_to_end/test_misbehaving_party.py",
    "end_to_end/test_enrolled_campaign.py",
    "end_to_end/test_superlink_restart.py",
    "end_to_end/test_nothing_secret.py",
    "aggregator_server/watch/test_page_of_campaign.py",
    "end_to_end/test_full_disk.py",
    "end_to_end/test_errors.py",
    "docs/test_pages_run.py",
    "commands/test_audit.py",
    "pate/auditing/test_auditing_mechanism.py",
    "aggregator_server/test_fleet_attackers.py",
    "commands/test_account.py",
    "party/test_lying_server.py",
    "party/synthesis/test_cli_synthesize.py",
    "party/test_teachers_images.py",
    "party/test_teachers_tables.py",
    "student/test_fixmatch.py",
    "plugins/test_plugins.py",
)

_TESTS = Path(__file__).resolve().parent
_BESIDE_THE_CHECKOUT = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest-xdist keep our order: its own begins with the files that have most tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, then those with slow tests, then the others."""
    rank = {_TESTS / name: at for at, name in enumerate(LONGEST)}
    if gone := [str(path) for path in rank if not path.is_file()]:
        raise pytest.UsageError(f"the longest files name {', '.join(gone)}")
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (rank.get(item.path, len(rank)), item.path not in slow))


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
