"""The non-private reference of image rows: the student's network, trained on all private labels.

The same architecture, augmentation, optimiser and schedule as the default student's, without its techniques
for few labels, since every image has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch.nn import functional

from pate.data.values import Images
from pate.errors import UsageError
from student.trainers.augment import GENTLE, strong
from student.trainers.base import Effort
from student.trainers.images import (
    Averaged,
    ImageStudent,
    choose_device,
    decayed,
    repeat,
    to_tensor,
)
from student.trainers.network import build, sized_for
from student.trainers.propagation import calibrate as calibrate_network

if TYPE_CHECKING:
    from pate.data.values import Dataset
    from student.trainers.base import Progress

_BATCH: Final = 64
_RATE: Final = 0.1
_WARM_UP: Final = 0.2
_MEMORY: Final = 0.995
#: Thirty epochs, at most twice the student's steps.
_EPOCHS, _FEWEST, _MOST = 30, 800, 8_400


def train(
    data: Dataset, *, seed: int, progress: Progress, steps: int | None = None
) -> ImageStudent:
    """Return a network trained on every label.

    Args:
        data: labelled images.
        seed: of all randomness.
        progress: called after every step.
        steps: of 64 images each; None: according to their number.

    Raises:
        UsageError: if the data are not images.
    """
    if not isinstance(data.inputs, Images):
        raise UsageError("a network is for images; choose boosting")
    device = choose_device("auto")
    steps = steps or min(max(_EPOCHS * len(data) // _BATCH, _FEWEST), _MOST)
    shape = sized_for(data.inputs.size, len(data.classes), wide=device.type == "cuda")
    network = build(shape, torch.Generator().manual_seed(seed)).to(device)
    network = network.to(memory_format=torch.channels_last)
    averaged = Averaged(network, _MEMORY)
    random = torch.Generator(device).manual_seed(seed + 1)
    images = to_tensor(data.inputs.pixels, device)
    labels = torch.from_numpy(data.labels.copy()).to(device)
    optimiser = torch.optim.SGD(
        decayed(network), lr=_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, _RATE, total_steps=steps, pct_start=_WARM_UP, cycle_momentum=False
    )

    def step(_fraction: float) -> float:
        rows = torch.randint(len(images), (_BATCH,), generator=random, device=device)
        bent = strong(images[rows], random, GENTLE)
        network.train()
        logits = network(bent.contiguous(memory_format=torch.channels_last))
        loss = functional.cross_entropy(logits, labels[rows])
        reached = averaged.descend(optimiser, float(schedule.get_last_lr()[0]), loss)
        schedule.step()
        return reached

    repeat(step, steps, Effort(), progress)
    last = averaged.mean.cpu().to(memory_format=torch.contiguous_format)
    return ImageStudent(shape, last, data.classes, "network")


def calibrate(student: ImageStudent, data: Dataset) -> None:
    """Calibrate a network on the plain images that it learned from, as the default student is.

    Args:
        student: changed in place.
        data: its training images, with their labels.
    """
    assert isinstance(data.inputs, Images)  # it was trained on them
    known = np.eye(len(data.classes), dtype=np.float32)[data.labels]
    calibrate_network(student.network, to_tensor(data.inputs.pixels, torch.device("cpu")), known)
