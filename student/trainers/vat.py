"""A baseline for images: virtual adversarial training with entropy minimisation.

The network should give the same answer for an image and for the image moved slightly in the
direction that changes its answer most, and with low entropy. That direction is found by one round
of power iteration on the divergence's second derivative. No image is augmented.

Two measures prevent a constant answer, which would also be smooth and certain. Unlabelled images are
normalised as a separate batch, as moved ones are: in one batch with labelled ones their answers would
differ before any move, and the divergence would penalise that difference. And the entropy's weight
grows with the training, so that the labels separate the classes before answers are sharpened.

Source: Miyato et al., "Virtual adversarial training: a regularization method for supervised and
semi-supervised learning", IEEE PAMI 41(8), 2019 (arXiv 1704.03976), equations 5, 13 to 15 and
section 3.3, the entropy in section 4.3. PATE 2018 trained its students with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.nn import functional

from student.trainers.base import Effort, Lesson, Progress, silent
from student.trainers.images import (
    Averaged,
    ImageStudent,
    baseline_steps,
    choose_device,
    decayed,
    draw,
    falling,
    images_of,
    on_device,
    repeat,
    running_statistics_kept,
)
from student.trainers.network import build, sized_for

if TYPE_CHECKING:
    from student.trainers.network import Network

KIND: Final = "vat"


@dataclass(frozen=True)
class Settings:
    """Parameters of the training.

    Attributes:
        labelled: labelled images per step.
        unlabelled: unlabelled images per step.
        radius: length of the adversarial move, as a root mean square per value on the [-1, 1]
            scale.
        probe: length of the move by which the direction is found, on the same scale.
        smoothness: weight of the divergence.
        decision: weight of the entropy at the end; it grows in a line from nothing.
        learning_rate: at the start; it falls in a line to a hundredth over the second half.
        memory: decay per step of the running mean of the weights.
    """

    labelled: int = 32
    unlabelled: int = 64
    radius: float = 0.1
    probe: float = 1e-3
    smoothness: float = 1.0
    decision: float = 1.0
    learning_rate: float = 2e-3
    memory: float = 0.99


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
    effort, by = effort or Effort(), settings or Settings()
    where = choose_device(device)
    architecture = sized_for(images.size, len(lesson.classes), wide=where.type == "cuda")
    network = build(architecture, torch.Generator().manual_seed(seed)).to(where)
    averaged = Averaged(network, by.memory)
    pixels, queries, labels, random = on_device(lesson, where, seed)
    optimiser = torch.optim.AdamW(decayed(network), lr=by.learning_rate, weight_decay=1e-3)

    def step(fraction: float) -> float:
        rows = draw(len(queries), by.labelled, random)
        some = pixels[draw(len(pixels), by.unlabelled, random)]
        network.train()
        supervised = functional.cross_entropy(network(pixels[queries[rows]]), labels[rows])
        guess = functional.log_softmax(network(some), dim=1)
        smooth = divergence(network, some, guess.detach(), by, random)
        entropy = -(guess.exp() * guess).sum(dim=1).mean()
        loss = supervised + by.smoothness * smooth + fraction * by.decision * entropy
        return averaged.descend(optimiser, falling(by.learning_rate, fraction), loss)

    repeat(step, effort.steps or baseline_steps(images.size, where), effort, progress)
    return ImageStudent(architecture, averaged.mean.cpu(), lesson.classes, KIND)


def divergence(
    network: Network, images: Tensor, guess: Tensor, by: Settings, random: torch.Generator
) -> Tensor:
    """Return the mean divergence of the guesses from those of adversarially moved images.

    Args:
        network: in training mode; its running statistics stay as they are.
        images: (b, channels, height, width).
        guess: (b, m) log-probabilities of the images, without a gradient.
        by: lengths of the moves.
        random: draws where the power iteration starts.
    """
    with running_statistics_kept(network):
        length = images[0].numel() ** 0.5
        aim = unit(torch.randn(images.shape, generator=random, device=images.device))
        aim.requires_grad_()
        moved = functional.log_softmax(network(images + by.probe * length * aim), dim=1)
        apart = functional.kl_div(moved, guess, reduction="batchmean", log_target=True)
        (steepest,) = torch.autograd.grad(apart, aim)
        worst = images + by.radius * length * unit(steepest)
        moved = functional.log_softmax(network(worst), dim=1)
    return functional.kl_div(moved, guess, reduction="batchmean", log_target=True)


def unit(moves: Tensor) -> Tensor:
    """Return each image's move, scaled to length one; a move of nearly zero remains zero."""
    largest = moves.abs().amax(dim=(1, 2, 3), keepdim=True)  # against underflow of the squares
    scaled = moves / (largest + 1e-30)
    length = scaled.square().sum(dim=(1, 2, 3), keepdim=True).sqrt()
    return scaled / (length + 1e-6)
