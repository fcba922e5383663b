"""MNIST as the code of "Fine-grained Private Knowledge Distillation" (arXiv 2207.13253) divides it.

Half of the test images are public, the student is measured on the other half. Which half an image is in is
theirs: numpy's legacy generator with seed 42 shuffles the test images. The halves are not the first and the
last 5,000, which NIST took from different writers.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.papers.data.mnist import read
from benchmarks.papers.split import Split

PUBLIC: Final = 5_000
_SEED: Final = 42


def load() -> Split:
    """Return 60,000 private, 5,000 public and 5,000 test images. Needs PATE_TEST_DATA.

    Raises:
        SystemExit: if the data are not there.
    """
    test = read("t10k")
    order = np.random.RandomState(_SEED).permutation(len(test))
    return Split(
        private=read("train"),
        public=test.take(order[:PUBLIC]),
        test=test.take(order[PUBLIC:]),
        note=(
            "label: the digit; unit: record; private: the 60,000 training images; public: "
            f"{PUBLIC:,} of the test images, drawn by the paper's seed; test: the other {PUBLIC:,}"
        ),
    )
