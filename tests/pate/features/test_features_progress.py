"""Progress of features is reported as a percentage, only within the requesting block."""

from __future__ import annotations

import numpy as np
import pytest

from pate.data.values import Images
from pate.features.progress import telling, told
from pate.features.space import ImageSpace


@pytest.mark.parametrize("name", ["scattering", "gradients", "upright"])
def test_features_of_many_images_tell_how_far_they_are(name: str) -> None:
    images = Images(np.zeros((2000, 16, 16, 1), dtype=np.uint8))
    said: list[tuple[int, int]] = []
    space = ImageSpace(name, images.size)
    with telling(lambda done, total: said.append((done, total))):
        inside = space.embed(images)
    assert said[-1] == (100, 100)
    assert len(said) > 1
    before = len(said)
    np.testing.assert_array_equal(space.embed(images), inside)
    assert len(said) == before


def test_a_single_block_is_not_told() -> None:
    said: list[int] = []
    with telling(lambda done, _: said.append(done)):
        assert list(told(range(0, 10, 10))) == [0]
        assert list(told(range(0, 30, 10))) == [0, 10, 20]
    assert said == [33, 66, 100]
