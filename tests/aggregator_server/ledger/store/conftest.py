"""Ledgers in a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store.place import InDatabase
from tests.support.postgres import Cluster
from tests.support.server.campaigns import make_spec, start


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path) -> InDatabase:
    return cluster.place(tmp_path)


@pytest.fixture
def ledger(place: InDatabase) -> Iterator[Ledger]:
    with start(place, make_spec(queries=20)) as made:
        yield made
