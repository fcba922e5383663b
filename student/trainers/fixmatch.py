"""The default student for images: semi-supervised training of the FixMatch family.

Source: Sohn et al., "FixMatch: Simplifying Semi-Supervised Learning with Consistency and
Confidence", NeurIPS 2020; class-wise thresholds from Zhang et al., "FlexMatch", NeurIPS 2021;
pseudo-labels from the running mean of the weights after Tarvainen and Valpola, "Mean teachers
are better role models", NeurIPS 2017.

What differs here is that the labels are the noisy answers of a vote, so some are wrong. Once the
student has a view of its own, from an eighth of the training on, a label that its averaged
weights contradict with confidence has no say until they waver; its image goes on as an unlabelled one.
"""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pate.data.values import Images
from pate.errors import DataError, SchemaError, UsageError
from student.trainers.augment import strong, weak
from student.trainers.base import Effort, Lesson, Progress, silent
from student.trainers.network import Architecture, Network, build, sized_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Inputs

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


def choose_device(name: str) -> torch.device:
    """Return the device called ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UsageError: if the name is another, or there is no such device here.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"there is no device {name!r}; choose auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch sees no CUDA device here; use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


@dataclass(frozen=True, eq=False)
class ImageStudent:
    """A trained network and the classes that it tells apart."""

    architecture: Architecture
    network: Network
    classes: tuple[str, ...]
    kind: str = KIND

    @property
    def schema(self) -> str:
        """Return the line of the images that it accepts."""
        shape = self.architecture
        return f"images {shape.height}x{shape.width}x{shape.channels}"

    def predict_probabilities(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return (n, classes) probabilities.

        Raises:
            SchemaError: if the inputs are not images of the size that it was trained on.
        """
        if not isinstance(inputs, Images) or inputs.schema() != self.schema:
            raise SchemaError(f"this student takes {self.schema}, not {inputs.schema()[:80]}")
        device = next(self.network.parameters()).device
        self.network.eval()
        parts = [np.zeros((0, len(self.classes)), dtype=np.float32)]
        with torch.inference_mode():
            for start in range(0, len(inputs), 512):
                batch = to_tensor(inputs.pixels[start : start + 512], device)
                parts.append(functional.softmax(self.network(batch), dim=1).cpu().numpy())
        return np.concatenate(parts)

    def predict(self, inputs: Inputs) -> NDArray[np.int64]:
        """Return (n,) indices into the classes."""
        best: NDArray[np.int64] = self.predict_probabilities(inputs).argmax(axis=1)
        return best


def to_tensor(pixels: NDArray[np.uint8], device: torch.device) -> Tensor:
    """Return (n, channels, height, width) float32 in [-1, 1] from (n, height, width, channels)."""
    moved = torch.from_numpy(np.array(pixels.transpose(0, 3, 1, 2), order="C"))
    return moved.to(device).float().div_(127.5).sub_(1.0)


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
    if not isinstance(lesson.public, Images):
        raise DataError("the image trainer needs images; use --model selftraining for tables")
    effort, settings = effort or Effort(), settings or Settings()
    where = choose_device(device)
    steps = effort.steps or default_steps(lesson.public.size, where)
    architecture = sized_for(lesson.public.size, len(lesson.classes), wide=where.type == "cuda")
    initial = build(architecture, torch.Generator().manual_seed(seed)).to(where)
    run = _Run(lesson, lesson.public, initial, settings, steps, seed)
    started = time.monotonic()
    fraction = 0.0
    for step in range(steps):
        loss = run.step(fraction)
        fraction = (step + 1) / steps
        if effort.seconds is not None:
            fraction = max(fraction, (time.monotonic() - started) / effort.seconds)
        progress(step + 1, steps, loss)
        if fraction >= 1.0:
            break
    return ImageStudent(architecture, run.mean.cpu(), lesson.classes)


class _Run:
    """One training: the network, the running mean of its weights, the state of the labels."""

    def __init__(
        self,
        lesson: Lesson,
        images: Images,
        network: Network,
        settings: Settings,
        steps: int,
        seed: int,
    ) -> None:
        device = next(network.parameters()).device
        self._settings = settings
        self._network = network
        self.mean = copy.deepcopy(network).requires_grad_(requires_grad=False).eval()
        self._random = torch.Generator(device).manual_seed(seed + 1)
        self._images = to_tensor(images.pixels, device)
        self._queries = torch.from_numpy(lesson.queries.copy()).to(device)
        self._labels = torch.from_numpy(lesson.labels.copy()).to(device)
        #: Running mean of how far the averaged weights contradict each label, in [0, 1].
        self._doubt = torch.zeros(len(self._queries), device=device)
        #: What is believed of each public image, -1 before it was believed to be anything.
        self._belief = torch.full((len(images),), -1, device=device)
        self._classes = len(lesson.classes)
        self._steps = steps
        self._taken = 0
        groups: list[dict[str, list[nn.Parameter] | float]] = [
            {"params": [w for w in network.parameters() if w.ndim > 1]},
            {"params": [w for w in network.parameters() if w.ndim <= 1], "weight_decay": 0.0},
        ]
        self._optimiser = torch.optim.SGD(
            groups,
            lr=settings.learning_rate,
            momentum=0.9,
            nesterov=True,
            weight_decay=settings.weight_decay,
        )

    def step(self, fraction: float) -> float:
        """Take one step, ``fraction`` of the training being done; return the loss."""
        by = self._settings
        rows = self._draw(len(self._queries), by.labelled)
        others = self._draw(len(self._images), by.unlabelled)
        given = self._labels[rows]
        seen = weak(self._images[self._queries[rows]], self._random, flips=by.flips)
        calm = weak(self._images[others], self._random, flips=by.flips)
        with torch.no_grad():
            believed = functional.softmax(self.mean(torch.cat([seen, calm])), dim=1)
        trusted = self._audit(rows, given, believed[: len(rows)], fraction)
        confidence, guess = believed[len(rows) :].max(dim=1)
        counts = (confidence >= self._thresholds()[guess]) & (fraction > 0.02)
        sure = confidence >= by.threshold
        self._belief[others[sure]] = guess[sure]

        bent = strong(self._images[others], self._random, flips=by.flips)
        self._network.train()
        logits = self._network(torch.cat([seen, bent]))
        labelled = functional.cross_entropy(logits[: len(rows)], given, reduction="none")
        pseudo = functional.cross_entropy(logits[len(rows) :], guess, reduction="none")
        loss = (labelled * trusted).mean() + (pseudo * counts).mean()
        self._set_rate(fraction)
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        nn.utils.clip_grad_norm_(self._network.parameters(), 5.0)
        self._optimiser.step()
        self._follow()
        return float(loss.detach())

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

    def _set_rate(self, fraction: float) -> None:
        warm = min(1.0, (self._taken + 1) / (0.03 * self._steps + 1))
        rate = self._settings.learning_rate * warm * math.cos(7 / 16 * math.pi * min(1.0, fraction))
        for group in self._optimiser.param_groups:
            group["lr"] = rate

    def _follow(self) -> None:
        """Move the running mean; early on it forgets faster, or it would remember the start."""
        self._taken += 1
        keep = min(self._settings.memory, self._taken / (self._taken + 10.0))
        with torch.no_grad():
            current = self._network.state_dict()
            for name, mean in self.mean.state_dict().items():
                if mean.is_floating_point():
                    mean.lerp_(current[name], 1.0 - keep)

    def _draw(self, bound: int, count: int) -> Tensor:
        return torch.randint(bound, (count,), generator=self._random, device=self._random.device)
