"""What the tests with real processes share."""

from __future__ import annotations

import pytest

from tests.support.processes.commands import Sites


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Data and homes of three parties; their teachers are trained by whoever starts them first."""
    return Sites.make(tmp_path_factory.mktemp("sites"))
