"""Sizes with which teachers learn as they do, in less time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from party.teachers import by_records, tables


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    """Few trees, and a space of few drawings, which is fitted once for each size of images."""
    by_records._space.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_records, "_DRAWINGS", 600)
        patch.setattr(tables, "_TREES", 12)
        patch.setattr(tables, "_BOOSTED", 15)
        patch.setattr(tables, "_BINNED", 20)
        yield
    by_records._space.cache_clear()
