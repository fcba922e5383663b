"""The default student for images: labels propagated to all public images, then a network.

A few noisy labels become a belief about every public image (:mod:`.beliefs`), by a graph and a
kernel machine over fixed features. A convolutional network learns these beliefs from strongly
augmented images. Several times the running mean of its weights predicts the public images, and the
beliefs are updated to combine network, features and labels. Images with less confident beliefs get
smaller weights.

For photographs with released noisy counts the beliefs are those of regression on the counts
(:mod:`.smoothing`), without updates by the network: where classes overlap, cells are mixed, clear
votes are only of easy images, and beliefs that start from them drift with each update. Such a network
is calibrated on the public images at the end. So is one that is taught by the soft labels of votes over
embeddings of a public encoder (:mod:`.head`).

Source: Iscen et al., "Label propagation for deep semi-supervised learning", CVPR 2019; the weights
from Chen et al., "SoftMatch", ICLR 2023; the running mean from Tarvainen and Valpola, "Mean
teachers are better role models", NIPS 2017; the schedule of the learning rate from Smith and Topin,
"Super-convergence", arXiv 1708.07120.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pate.errors import DataError
from pate.features.space import default_name
from student.trainers import beliefs
from student.trainers.augment import GENTLE, Strength, strong, weak
from student.trainers.base import Effort, Lesson, Progress, silent
from student.trainers.counts import cells_of
from student.trainers.images import (
    Averaged,
    ImageStudent,
    choose_device,
    decayed,
    images_of,
    repeat,
    to_tensor,
)
from student.trainers.labels import ONLY_NOISE
from student.trainers.linear import linear_chances
from student.trainers.network import build, sized_for
from student.trainers.smoothing import smooth

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from student.trainers.network import Network

KIND: Final = "propagation"
_LEAST_WRONG: Final = 1e-3
_CONTRAST, _BRIGHTNESS = Strength.contrast, Strength.brightness  # of photographs
_AT_ONCE: Final = 256  # images predicted per batch
_CALIBRATIONS: Final = 100


@dataclass(frozen=True)
class Settings:
    """Parameters of the training; the defaults were found on MNIST's training images.

    Attributes:
        batch: images per step.
        learning_rate: at its highest.
        warm_up: fraction of the training until then.
        weight_decay: of convolutions and the linear layer.
        memory: decay per step of the running mean of the weights, once it has warmed up.
        looks: fractions of the training at which the beliefs are updated.
        trust: exponent of the features' beliefs relative to the network's.
        strength: of the augmentation.
        flips: whether a mirrored image is still of its class.
        weighed: whether images with less confident beliefs get smaller weights.
        beliefs: parameters of the initial beliefs.
    """

    batch: int = 64
    learning_rate: float = 0.1
    warm_up: float = 0.2
    weight_decay: float = 5e-4
    memory: float = 0.995
    looks: tuple[float, ...] = (0.4, 0.55, 0.7, 0.85)
    trust: float = 1.0
    strength: Strength = GENTLE
    flips: bool = False
    weighed: bool = True
    beliefs: beliefs.Settings = field(default_factory=beliefs.Settings)


def default_steps(size: tuple[int, int, int], count: int, device: torch.device) -> int:
    """Return a number of steps that suits the size of an image, their number and a device."""
    if device.type == "cuda":
        return 6000
    if min(size[:2]) < 16:
        return 600
    # Thirty epochs for many images, and enough steps for few.
    return min(max(30 * count // Settings.batch, 800), 4200)


def train(
    lesson: Lesson,
    *,
    seed: int,
    device: str = "auto",
    effort: Effort | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
    chances: NDArray[np.float64] | None = None,
) -> ImageStudent:
    """Train a student on labelled and unlabelled images.

    Args:
        lesson: images of one size; labels of a few, and noisy counts where there are any.
        seed: of every random choice; no global generator is read or moved.
        device: ``auto``, ``cpu`` or ``cuda``.
        effort: how long the network is trained.
        settings: parameters of the training.
        progress: called after every step.
        chances: (n, m) soft labels of the images, of votes in another space than their pixels'; in place
            of beliefs and noisy counts.

    Raises:
        DataError: if the inputs are not images, or no label was released and the counts are only noise.
        UsageError: if the device is not here.
    """
    images = images_of(lesson)
    effort, settings = effort or Effort(), settings or Settings()
    where = choose_device(device)
    steps = effort.steps or default_steps(images.size, len(images), where)
    architecture = sized_for(images.size, len(lesson.classes), wide=where.type == "cuda")
    initial = build(architecture, torch.Generator().manual_seed(seed)).to(where)
    smoothed = _smoothed(lesson, settings, seed) if chances is None else _shares(chances)
    if smoothed is None and not len(lesson.labels):
        raise DataError(ONLY_NOISE)
    if smoothed is None:
        prior = beliefs.believe(lesson, seed=seed, settings=settings.beliefs)
        evidence = beliefs.evidence_of(lesson)
    else:  # it contains all information of the counts
        prior, evidence = smoothed, np.zeros(smoothed.shape)
        # Soft targets contain their own uncertainty, and uncertain images are informative. And
        # photographs, unlike drawings, differ in exposure.
        exposed = replace(settings.strength, contrast=_CONTRAST, brightness=_BRIGHTNESS)
        settings = replace(settings, looks=(), weighed=False, strength=exposed)
    pixels = to_tensor(images.pixels, where)
    run = _Run(
        pixels,
        prior,
        evidence,
        initial,
        settings,
        seed,
    )
    repeat(run.step, steps, effort, progress)
    network = run.averaged.mean.cpu().to(memory_format=torch.contiguous_format)
    if smoothed is not None:
        calibrate(network, pixels.cpu(), smoothed)
    return ImageStudent(architecture, network, lesson.classes, KIND)


def _smoothed(lesson: Lesson, settings: Settings, seed: int) -> NDArray[np.float32] | None:
    """Return (n, m) probabilities from noisy counts; None without, or for drawings' own votes.

    Dense votes have them for drawings, too.
    """
    images = images_of(lesson)
    if lesson.noisy is not None and lesson.noisy.dense:
        chances = linear_chances(images, lesson.noisy)
        return None if chances is None else chances.astype(np.float32)
    if lesson.noisy is None or not default_name(images).endswith("scattering"):
        return None
    cells = cells_of(images, lesson.noisy)
    if cells is None or len(images) < beliefs.FEWEST:
        return None
    return smooth(beliefs.described(lesson, settings.beliefs, seed), cells, seed=seed)


def _shares(chances: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return rows of sum one."""
    positive = np.maximum(chances, 0.0) + 1e-12
    shares: NDArray[np.float64] = positive / positive.sum(axis=1, keepdims=True)
    return shares.astype(np.float32)


def calibrate(network: Network, images: Tensor, chances: NDArray[np.float32]) -> None:
    """Scale and shift the network's logits so that they fit the chances best, by cross-entropy.

    A network that has learnt from augmented images is off on plain ones: all of them look a little more
    like one class. Then its mean probabilities over the images are those of the chances.

    Args:
        network: whose linear layer is changed in place; on the CPU.
        images: (n, channels, height, width), not augmented.
        chances: (n, m) probabilities of the classes, made of noisy counts.

    Source: of logits, Guo et al., "On calibration of modern neural networks", ICML 2017, there with labels.
    """
    network.eval()
    with torch.no_grad():
        logits = torch.cat([network(some) for some in torch.split(images, _AT_ONCE)]).double()
    wanted = torch.from_numpy(chances).double()
    moved = torch.zeros(1 + logits.shape[1], dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([moved], max_iter=_CALIBRATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        found = functional.cross_entropy(moved[0].exp() * logits + moved[1:], wanted)
        found.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return found

    search.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        scale = float(moved[0].exp())
        network.head.weight.mul_(scale)
        network.head.bias.mul_(scale).add_(moved[1:].float())


class _Run:
    """One training: the network, the running mean of its weights, the beliefs."""

    def __init__(
        self,
        images: Tensor,
        prior: NDArray[np.float32],
        evidence: NDArray[np.float64],
        network: Network,
        settings: Settings,
        seed: int,
    ) -> None:
        self._settings = settings
        # Channels last is the faster order for small convolutions on a CPU.
        self.averaged = Averaged(network.to(memory_format=torch.channels_last), settings.memory)
        self._random = torch.Generator(images.device).manual_seed(seed + 1)
        self._images = images
        self._prior, self._evidence = prior, evidence
        self._looks = list(settings.looks)
        self._order = torch.zeros(0, dtype=torch.int64, device=images.device)
        self._believe(prior)
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
        if self._looks and fraction >= self._looks[0]:
            self._looks = [later for later in self._looks if later > fraction]
            self._look()
        rows = self._draw()
        bent = strong(self._images[rows], self._random, by.strength, flips=by.flips)
        self.averaged.network.train()
        logits = self.averaged.network(bent.contiguous(memory_format=torch.channels_last))
        apart = functional.cross_entropy(logits, self._targets[rows], reduction="none")
        loss = (apart * self._weights[rows]).mean()
        rate = by.learning_rate * _rate(fraction, by.warm_up)
        return self.averaged.descend(self._optimiser, rate, loss)

    def _look(self) -> None:
        """Update the beliefs of each image by the network."""
        parts = []
        with torch.no_grad():
            for some in torch.split(self._images, _AT_ONCE):
                seen = weak(some, self._random, flips=self._settings.flips)
                logits = self.averaged.mean(seen.contiguous(memory_format=torch.channels_last))
                parts.append(functional.softmax(logits, dim=1))
        seen_as = torch.cat(parts).cpu().numpy()
        # The network's error rate is estimated where the features are confident.
        sure = self._prior.max(axis=1) >= np.median(self._prior.max(axis=1))
        wrong = (seen_as.argmax(axis=1) != self._prior.argmax(axis=1))[sure].mean()
        wrong = max(float(wrong), _LEAST_WRONG)
        seen_as = (1 - wrong) * seen_as + wrong / seen_as.shape[1]
        product = seen_as * self._prior**self._settings.trust
        self._believe(product / product.sum(axis=1, keepdims=True))

    def _believe(self, probabilities: NDArray[np.float32]) -> None:
        known = beliefs.with_labels(probabilities, self._evidence)
        self._targets = torch.from_numpy(known).to(self._images.device)
        self._weights = torch.ones(len(self._targets), device=self._images.device)
        if not self._settings.weighed:
            return
        sure = self._targets.max(dim=1).values
        short = (sure.mean() - sure).clamp(min=0)
        self._weights = torch.exp(-2 * short.square() / (sure.var(correction=0) + 1e-8))

    def _draw(self) -> Tensor:
        """Return the next rows: every image once, in a new order, before any comes again."""
        batch = self._settings.batch
        while len(self._order) < batch:
            more = torch.randperm(
                len(self._images), generator=self._random, device=self._random.device
            )
            self._order = torch.cat([self._order, more])
        rows, self._order = self._order[:batch], self._order[batch:]
        return rows


def _rate(fraction: float, warm_up: float) -> float:
    """Return the learning rate relative to its highest: up in a line, down along a cosine."""
    if fraction < warm_up:
        return max(fraction / warm_up, 0.01)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (fraction - warm_up) / (1 - warm_up)))) + 1e-4
