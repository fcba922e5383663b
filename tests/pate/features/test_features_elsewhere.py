"""A record's place depends on only that record, on other processors, too.

How a matrix product rounds is the processor's affair: on some, a row's result hangs on where the row
stands. OpenBLAS can be told to work as on another one, which takes a new process.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
from pate.data.values import Images
from pate.features.space import IMAGE_SPACES, space_over

draw = np.random.default_rng(5)

def drawn(count, size):
    # Strokes on an empty ground, so that they are set upright, and of several scales.
    images = np.zeros((count, *size, 1), dtype=np.uint8)
    for image in images:
        for _ in range(3):
            row, column = draw.integers(2, size[0] - 6), draw.integers(2, size[1] - 6)
            image[row : row + draw.integers(1, 6), column : column + 2] = draw.integers(120, 255)
    return Images(images)

for size, public in (((20, 20), 600), ((40, 64), 40)):
    seen, records = drawn(public, size), drawn(83, size)
    for name in IMAGE_SPACES:
        if name.startswith(("diffusion", "steady")) and public < 500:
            continue
        space = space_over(seen, name)
        whole = space.embed(records)
        less = space.embed(records.take(range(1, len(records))))
        assert np.array_equal(whole[1:], less), (name, size)
        alone = np.concatenate([space.embed(records.take([row])) for row in range(0, 83, 7)])
        assert np.array_equal(whole[::7], alone), (name, size)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="kernels of another kind of processor")
@pytest.mark.parametrize("kernels", ["Haswell", "Prescott"])
def test_places_do_not_hang_on_other_records(kernels: str) -> None:
    surroundings = {**os.environ, "OPENBLAS_CORETYPE": kernels, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
