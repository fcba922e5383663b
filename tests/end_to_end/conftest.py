"""What the tests with real processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.world.forked import children_forked
from tests.support.world.sites import Sites

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Data and homes of three parties; their teachers are trained by whoever starts them first."""
    return Sites(tmp_path_factory.mktemp("sites")).deal()


@pytest.fixture(scope="module")
def children() -> Iterator[None]:
    """SuperLinks and SuperNodes of this process are forks of one that has imported what they need."""
    with children_forked():
        yield
