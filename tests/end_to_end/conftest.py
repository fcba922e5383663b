"""What the tests with real processes share."""

from __future__ import annotations

import pytest

from tests.support.world.sites import Sites


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Data and homes of three parties; their teachers are trained by whoever starts them first."""
    return Sites(tmp_path_factory.mktemp("sites")).deal()
