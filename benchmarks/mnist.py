"""MNIST: four hospitals with 50 teachers each, 9,000 public images, 1,000 to evaluate.

``python -m benchmarks.mnist`` does what five terminals would: a server with Interactive-GNMax,
four parties on a quarter of the training images each, and a student. Needs PATE_TEST_DATA.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.field import alone, campaign, data_folder
from pate.data.read import read_dataset
from pate.formats.labels import LabelSet
from simulation.datasets import write_inputs, write_labelled
from simulation.report import label_accuracy, majority_accuracy

if TYPE_CHECKING:
    from pate.data.values import Dataset

HOSPITALS = ("hospital_a", "hospital_b", "hospital_c", "hospital_d")
TEACHERS = 50
EPSILON, DELTA = 1.97, 1e-5  # the figures of Papernot et al. 2018, Table 1
SERVER = (
    "--aggregator", "interactive-gnmax", "--epsilon", str(EPSILON), "--delta", str(DELTA),
    "--threshold", "180", "--sigma1", "150", "--sigma2", "45", "--interactive-threshold", "100",
)  # fmt: skip


def prepare(place: Path) -> Dataset:
    """Write hospitals, public set and test set below ``place``; return the public set's truth."""
    raw = data_folder() / "mnist" / "MNIST" / "raw"
    scratch = place / "idx"
    for part in ("train", "t10k"):
        (scratch / part).mkdir(parents=True, exist_ok=True)
        for file in raw.glob(f"{part}-*"):
            link = scratch / part / file.name
            if not link.exists():
                link.symlink_to(file)
    train, test = read_dataset(scratch / "train"), read_dataset(scratch / "t10k")
    for number, name in enumerate(HOSPITALS):
        (place / name).mkdir(exist_ok=True)
        rows = np.arange(number, len(train), len(HOSPITALS))
        write_labelled(place / name / "records.npz", train.take(rows))
    write_inputs(place / "public", test.inputs.take(range(9000)))
    write_labelled(place / "test.npz", test.take(range(9000, 10_000)))
    return test.take(range(9000))


def run(place: Path | None = None) -> dict[str, object]:
    """Run the campaign and return its figures."""
    if place is None:
        with tempfile.TemporaryDirectory(prefix="pate-mnist-") as scratch:
            return run(Path(scratch))
    truth = prepare(place)
    found = campaign(
        place,
        public=place / "public.npz",
        test=place / "test.npz",
        parties={
            name: ("--data", str(place / name), "--teachers", str(TEACHERS)) for name in HOSPITALS
        },
        server=SERVER,
    )
    labels = LabelSet.from_json((place / "labels.json").read_text())
    found["label_accuracy"] = label_accuracy(labels, truth)
    found["majority_accuracy"] = majority_accuracy(truth)
    return found


if __name__ == "__main__":
    alone(run, __doc__ or "")
