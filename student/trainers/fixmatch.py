"""FixMatch for images: pseudo-labels of weakly augmented images teach strongly augmented ones.

Source: Sohn et al., "FixMatch: Simplifying Semi-Supervised Learning with Consistency and
Confidence", NeurIPS 2020; class-wise thresholds from Zhang et al., "FlexMatch", NeurIPS 2021;
pseudo-labels from the running mean of the weights after Tarvainen and Valpola, "Mean teachers
are better role models", NeurIPS 2017.

Here the labels are noisy answers of a vote, so some are wrong. From an eighth of the training on, a
label that the averaged weights contradict with confidence is ignored as long as they do; its image
is then used as an unlabelled one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from student.trainers.augment import strong, weak
from student.trainers.base import Effort, Lesson, Progress, silent
from student.trainers.images import (
    Averaged,
    ImageStudent,
    choose_device,
    decayed,
    draw,
    images_of,
    on_device,
    repeat,
)
from student.trainers.network import Network, build, sized_for

KIND: Final = "fixmatch"


@dataclass(frozen=True)
class Settings:
    """Parameters of the training.

    Attributes:
        labelled: labelled images per step.
        unlabelled: unlabelled images per step.
        threshold: confidence from which a pseudo-label counts.
        learning_rate: at its highest.
        weight_decay: of convolutions and the linear layer.
        memory: decay per step of the running mean of the weights, once it has warmed up.
        doubt_from: fraction of the training after which labels may be doubted.
        flips: whether a mirrored image is still of its class.
    """

    labelled: int = 32
    unlabelled: int = 64
    threshold: float = 0.95
    learning_rate: float = 0.1
    weight_decay: float = 5e-4
    memory: float = 0.995
    doubt_from: float = 0.125
    flips: bool = False


def default_steps(size: tuple[int, int, int], device: torch.device) -> int:
    """Return a number of steps that suits an image size and a device."""
    if device.type == "cuda":
        return 6000
    return 450 if min(size[:2]) < 16 else 1400


def train(
    lesson: Lesson,
    *,
    seed: int,
    device: str = "auto",
    effort: Effort | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> ImageStudent:
    """Train a student on labelled and unlabelled images.

    Args:
        lesson: images of one size; labels of a few.
        seed: of every random choice; no global generator is read or moved.
        device: ``auto``, ``cpu`` or ``cuda``.
        effort: how long.
        settings: parameters of the training.
        progress: called after every step.

    Raises:
        DataError: if the inputs are not images.
        UsageError: if the device is not here.
    """
    images = images_of(lesson)
    effort, settings = effort or Effort(), settings or Settings()
    where = choose_device(device)
    steps = effort.steps or default_steps(images.size, where)
    architecture = sized_for(images.size, len(lesson.classes), wide=where.type == "cuda")
    initial = build(architecture, torch.Generator().manual_seed(seed)).to(where)
    run = _Run(lesson, initial, settings, steps, seed)
    repeat(run.step, steps, effort, progress)
    return ImageStudent(architecture, run.averaged.mean.cpu(), lesson.classes, KIND)


class _Run:
    """One training: the network, the running mean of its weights, the state of the labels."""

    def __init__(
        self,
        lesson: Lesson,
        network: Network,
        settings: Settings,
        steps: int,
        seed: int,
    ) -> None:
        device = next(network.parameters()).device
        self._settings = settings
        self.averaged = Averaged(network, settings.memory)
        self._images, self._queries, self._labels, self._random = on_device(lesson, device, seed)
        #: Running mean of how far the averaged weights contradict each label, in [0, 1].
        self._doubt = torch.zeros(len(self._queries), device=device)
        #: The believed class of each public image, -1 if none yet.
        self._belief = torch.full((len(self._images),), -1, device=device)
        self._classes = len(lesson.classes)
        self._steps = steps
        self._optimiser = torch.optim.SGD(
            decayed(network),
            lr=settings.learning_rate,
            momentum=0.9,
            nesterov=True,
            weight_decay=settings.weight_decay,
        )

    def step(self, fraction: float) -> float:
        """Take one step, ``fraction`` of the training being done; return the loss."""
        by = self._settings
        rows = draw(len(self._queries), by.labelled, self._random)
        others = draw(len(self._images), by.unlabelled, self._random)
        given = self._labels[rows]
        seen = weak(self._images[self._queries[rows]], self._random, flips=by.flips)
        calm = weak(self._images[others], self._random, flips=by.flips)
        with torch.no_grad():
            believed = functional.softmax(self.averaged.mean(torch.cat([seen, calm])), dim=1)
        trusted = self._audit(rows, given, believed[: len(rows)], fraction)
        confidence, guess = believed[len(rows) :].max(dim=1)
        counts = (confidence >= self._thresholds()[guess]) & (fraction > 0.02)
        sure = confidence >= by.threshold
        self._belief[others[sure]] = guess[sure]

        bent = strong(self._images[others], self._random, flips=by.flips)
        self.averaged.network.train()
        logits = self.averaged.network(torch.cat([seen, bent]))
        labelled = functional.cross_entropy(logits[: len(rows)], given, reduction="none")
        pseudo = functional.cross_entropy(logits[len(rows) :], guess, reduction="none")
        loss = (labelled * trusted).mean() + (pseudo * counts).mean()
        return self.averaged.descend(self._optimiser, self._rate(fraction), loss)

    def _audit(self, rows: Tensor, given: Tensor, believed: Tensor, fraction: float) -> Tensor:
        """Return the weight, 0 or 1, of each label drawn."""
        if fraction < self._settings.doubt_from:
            return torch.ones(len(rows), device=rows.device)
        against = believed.max(dim=1).values - believed.gather(1, given[:, None])[:, 0]
        self._doubt[rows] = 0.7 * self._doubt[rows] + 0.3 * against
        return (self._doubt[rows] < 0.6).float()

    def _thresholds(self) -> Tensor:
        """Return a threshold per class: lower for classes that few images are believed to be of."""
        held = torch.bincount(self._belief[self._belief >= 0], minlength=self._classes).float()
        unknown = (self._belief < 0).sum().float()
        share = held / torch.maximum(held.max(), unknown).clamp(min=1.0)
        return self._settings.threshold * (0.5 + 0.5 * share / (2.0 - share)).clamp(max=1.0)

    def _rate(self, fraction: float) -> float:
        warm = min(1.0, (self.averaged.taken + 1) / (0.03 * self._steps + 1))
        return self._settings.learning_rate * warm * math.cos(7 / 16 * math.pi * min(1.0, fraction))
