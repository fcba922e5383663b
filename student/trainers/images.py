"""Common parts of image students: the trained network, its device, the mean of its weights."""

from __future__ import annotations

import copy
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pate.data.values import Images
from pate.errors import DataError, SchemaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from student.trainers.base import Effort, Lesson, Progress
    from student.trainers.network import Architecture, Network


@dataclass(frozen=True, eq=False)
class ImageStudent:
    """A trained network and its classes."""

    architecture: Architecture
    network: Network
    classes: tuple[str, ...]
    kind: str

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
        shape = self.architecture
        size = (shape.height, shape.width, shape.channels)
        if not isinstance(inputs, Images) or inputs.size != size:
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


def choose_device(name: str) -> torch.device:
    """Return the device called ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UsageError: for another name, or an unavailable device.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"there is no device {name!r}; choose auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch sees no CUDA device here; use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def images_of(lesson: Lesson) -> Images:
    """Return the public inputs, which must be images.

    Raises:
        DataError: if they are not.
    """
    if not isinstance(lesson.public, Images):
        raise DataError("the image trainer needs images; use --model selftraining for tables")
    return lesson.public


def baseline_steps(size: tuple[int, int, int], device: torch.device) -> int:
    """Return a number of steps of the papers' trainers that suits an image size and a device."""
    if device.type == "cuda":
        return 6000
    return 500 if min(size[:2]) < 16 else 1500


def decayed(network: nn.Module) -> list[dict[str, list[nn.Parameter] | float]]:
    """Return an optimiser's groups: weight decay applies only to matrices and filters."""
    return [
        {"params": [w for w in network.parameters() if w.ndim > 1]},
        {"params": [w for w in network.parameters() if w.ndim <= 1], "weight_decay": 0.0},
    ]


def on_device(
    lesson: Lesson, device: torch.device, seed: int
) -> tuple[Tensor, Tensor, Tensor, torch.Generator]:
    """Return the data of a training on its device.

    Returns:
        (n, channels, height, width) public images, (l,) which of them have labels, (l,) these, and
        a generator of the steps' random choices.
    """
    return (
        to_tensor(images_of(lesson).pixels, device),
        torch.from_numpy(lesson.queries.copy()).to(device),
        torch.from_numpy(lesson.labels.copy()).to(device),
        torch.Generator(device).manual_seed(seed + 1),
    )


def descend(
    optimiser: torch.optim.Optimizer, rate: float, loss: Tensor, network: nn.Module
) -> None:
    """Take one step of an optimiser at a learning rate, with gradients of a norm of at most 5."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad(set_to_none=True)
    # Gradients may also fall on another network; its own optimiser clears them before its step.
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    nn.utils.clip_grad_norm_(network.parameters(), 5.0)
    optimiser.step()


class Averaged:
    """A network in training, and the running mean of its weights, which the student gets.

    Attributes:
        network: in training.
        mean: of the same shape.
        taken: steps until now.
    """

    def __init__(self, network: Network, memory: float) -> None:
        """Start with a network.

        Args:
            network: to be trained.
            memory: decay of the mean per step. Early on it is smaller, so that the random start is
                forgotten.
        """
        self.network = network
        self.mean = copy.deepcopy(network).requires_grad_(requires_grad=False).eval()
        self.taken = 0
        self._memory = memory

    def descend(self, optimiser: torch.optim.Optimizer, rate: float, loss: Tensor) -> float:
        """Take one step, as of :func:`descend`, and move the mean towards the network; return the loss."""
        descend(optimiser, rate, loss, self.network)
        self.taken += 1
        keep = min(self._memory, self.taken / (self.taken + 10.0))
        with torch.no_grad():
            current = self.network.state_dict()
            for name, average in self.mean.state_dict().items():
                if average.is_floating_point():
                    average.lerp_(current[name], 1.0 - keep)
        return float(loss.detach())


def falling(rate: float, fraction: float) -> float:
    """Return a learning rate that falls linearly, over the second half, to a hundredth."""
    return rate * min(1.0, 2 - 2 * fraction + 0.01)


def repeat(step: Callable[[float], float], steps: int, effort: Effort, progress: Progress) -> None:
    """Take up to ``steps`` steps, fewer if the time runs out.

    Args:
        step: called with the fraction of the training that is done, from 0 up to below 1; returns
            the loss.
        steps: largest number of steps.
        effort: with the time limit.
        progress: called after every step.
    """
    started = time.monotonic()
    fraction = 0.0
    for taken in range(steps):
        loss = step(fraction)
        fraction = (taken + 1) / steps
        if effort.seconds is not None:
            fraction = max(fraction, (time.monotonic() - started) / effort.seconds)
        progress(taken + 1, steps, loss)
        if fraction >= 1.0:
            break


def draw(bound: int, count: int, random: torch.Generator) -> Tensor:
    """Return (count,) whole numbers below ``bound``, drawn with replacement."""
    return torch.randint(bound, (count,), generator=random, device=random.device)


@contextmanager
def running_statistics_kept(network: nn.Module) -> Iterator[None]:
    """Normalise batches by their own statistics, without updating the running ones."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    before = [norm.track_running_stats for norm in norms]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm, tracked in zip(norms, before, strict=True):
            norm.track_running_stats = tracked
