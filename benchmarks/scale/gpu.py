"""``python -m benchmarks.scale.gpu [--out DIR] [--quick]``: what a GPU changes for a party and a student.

Needs PATE_TEST_DATA, for MNIST. A party trains teachers of 240 images each on the processor, then on the
GPU, and both vote on 9,000 public images: seconds a teacher, and the share of votes that are for another
class. The GPU rounds in another order, so a few are; a party's ledger refuses votes that changed, so a
party keeps to one device during a campaign. Then the image student of 1,000 labels, each device with its
defaults: on a GPU the network is wider and takes more steps.

Without a GPU only the processor is measured. Seconds are wall time, so compare them within one run.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from benchmarks import measure
from benchmarks.figures import options, publish
from benchmarks.papers.data import mnist
from party.teachers.training import train_ensemble
from student.trainers import propagation
from student.trainers.base import Effort, Lesson
from student.trainers.images import choose_device, images_of

if TYPE_CHECKING:
    from pate.data.values import Dataset
    from pate.votes import Counts

#: Images of a teacher, and public images with a label.
RECORDS: Final = 240
LABELS: Final = 1_000
#: Kind of teachers, and their number on each device; a GPU trains networks together.
TEACHERS: Final = (
    ("linear", {"cpu": 50, "cuda": 50}),
    ("cnn", {"cpu": 8, "cuda": 8}),
    ("cnn", {"cuda": 64}),
)
#: Teachers, and public images, of a run that only shows that it runs.
_QUICK: Final = (("linear", {"cpu": 2, "cuda": 2}),)
_FEW: Final = 400


def teachers_on(
    device: str, model: str, number: int, records: Dataset, public: Dataset
) -> tuple[dict[str, Any], Counts]:
    """Return what a party's teachers take on a device, and their (queries, classes) int64 votes.

    Args:
        device: ``cpu`` or ``cuda``.
        model: kind of the teachers.
        number: of teachers.
        records: of which the party has the first.
        public: the queries; their labels only say how often most teachers are right.
    """
    with tempfile.TemporaryDirectory() as home:
        began = time.monotonic()
        made = train_ensemble(
            records.take(np.arange(RECORDS * number)), teachers=number, model=model, device=device,
            home=Path(home), key=bytes(32), progress=lambda *_: None,
        )  # fmt: skip
        trained = time.monotonic()
    votes = made.vote(public.inputs, public.classes)
    figures = {
        "device": device,
        "model": model,
        "teachers": number,
        "train_seconds_each": (trained - began) / number,
        "vote_seconds_each": (time.monotonic() - trained) / number,
        "accuracy": float((votes.argmax(axis=1) == public.labels).mean()),
    }
    return figures, votes


def student_on(device: str, public: Dataset, test: Dataset, steps: int | None) -> dict[str, Any]:
    """Return what the image student takes on a device.

    Args:
        device: ``cpu`` or ``cuda``.
        public: of which the first have their true labels.
        test: for its accuracy.
        steps: None: as many as suit the device.
    """
    labelled = min(LABELS, len(public))
    lesson = Lesson(public.inputs, np.arange(labelled), public.labels[:labelled], public.classes)
    size = images_of(lesson).size
    began = time.monotonic()
    student = propagation.train(lesson, seed=0, device=device, effort=Effort(steps))
    seconds = time.monotonic() - began
    return {
        "device": device,
        "steps": steps or propagation.default_steps(size, len(public), choose_device(device)),
        "seconds": seconds,
        "accuracy": measure.accuracy(student.predict_probabilities(test.inputs), test.labels),
    }


def run(*, quick: bool) -> dict[str, Any]:
    """Return all figures."""
    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    split = mnist.load()
    public = split.public.take(np.arange(_FEW)) if quick else split.public
    if len(devices) > 1:  # its first use takes seconds
        torch.zeros(1, device="cuda")
    teachers = []
    for model, numbers in _QUICK if quick else TEACHERS:
        found = [
            teachers_on(device, model, number, split.private, public)
            for device, number in numbers.items()
            if device in devices
        ]
        away = sum(np.abs(found[0][1] - votes).sum() / 2 for _, votes in found[1:])
        for figures, votes in found:
            moved = float(away / votes.sum()) if len(found) > 1 else None
            teachers.append({**figures, "votes_moved": moved})
    return {
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if len(devices) > 1 else None,
        "torch": torch.__version__,
        "records_each": RECORDS,
        "queries": len(public),
        "teachers": teachers,
        "students": [
            student_on(device, public, split.test, 3 if quick else None) for device in devices
        ],
    }


def main() -> None:
    asked = options(__doc__, "a few teachers and steps")
    publish(run(quick=asked.quick), asked.out, "gpu")


if __name__ == "__main__":
    main()
