"""Convolutional teachers for images, with PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # PyTorch's own name for it

from party.teachers import tensors
from party.teachers.protocol import DamagedTeacherError, Labels, Stored
from party.teachers.schema import ImageSchema
from pate.data.values import Images
from pate.errors import SchemaError, UsageError

if TYPE_CHECKING:
    from pate.data.values import Dataset, Inputs

_STEPS: Final = 300
_BATCH: Final = 32
_RATE: Final = 3e-3
_WIDTHS: Final = (32, 64, 96, 128, 128, 128)
_TURN: Final = 0.2  # most rotation, in radians
_STRETCH: Final = 0.1  # most change of scale and shear
_SHIFT: Final = 0.15  # most shift, as a share of half the image
_AT_ONCE: Final = 256


def pick_device(wanted: str) -> str:
    """Return ``cpu`` or ``cuda`` for ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UsageError: if CUDA is asked for and not there, or the name is none of the three.
    """
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda, but PyTorch finds no CUDA device; use auto or cpu")
    if wanted not in {"cpu", "cuda"}:
        raise UsageError(f"--device {wanted!r} is none of auto, cpu, cuda")
    return wanted


class _Network(nn.Sequential):
    """Blocks of two convolutions that halve the image until it is small, then one linear layer."""

    def __init__(self, size: tuple[int, int, int], classes: int) -> None:
        height, width, channels = size
        layers: list[nn.Module] = []
        for at, wide in enumerate(_WIDTHS):
            layers += [nn.Conv2d(channels, wide, 3, padding=1), nn.GroupNorm(8, wide), nn.ReLU()]
            layers += [nn.Conv2d(wide, wide, 3, padding=1), nn.GroupNorm(8, wide), nn.ReLU()]
            channels = wide
            if min(height, width) >= 4:
                layers.append(nn.MaxPool2d(2))
                height, width = height // 2, width // 2
            if at and max(height, width) <= 8:
                break
        layers += [nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * channels, classes)]
        super().__init__(*layers)


@dataclass(frozen=True, eq=False)
class CnnTeacher:
    """A fitted network.

    Attributes:
        takes: image size.
        seen: (c,) int64, the classes that the shard holds; no other is ever answered.
        network: c scores for an image, in evaluation mode.
        device: where it runs.
    """

    takes: ImageSchema
    seen: Labels
    network: nn.Module
    device: str

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input.

        Raises:
            SchemaError: if the inputs are not of the kind that the teacher was fitted on.
        """
        images = self.takes.conform(inputs)
        best = np.zeros(len(images), dtype=np.int64)
        with torch.inference_mode():
            for start in range(0, len(images), _AT_ONCE):
                batch = _as_tensor(images.pixels[start : start + _AT_ONCE]).to(self.device)
                scores = self.network(batch)
                best[start : start + _AT_ONCE] = scores.argmax(dim=1).cpu().numpy()
        return self.seen[best]

    def store(self) -> Stored:
        """Return the weights as safetensors, the image size as JSON."""
        weights = {name: held.cpu().numpy() for name, held in self.network.state_dict().items()}
        return Stored({"size": list(self.takes.size)}, tensors.dump({**weights, "seen": self.seen}))


class Cnn:
    """Makes convolutional teachers.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UsageError: if there is no such device.
    """

    name = "cnn"
    version = "1"
    suffix = "safetensors"

    def __init__(self, device: str) -> None:
        self._device = pick_device(device)

    def fit(self, shard: Dataset, seed: int) -> CnnTeacher:
        """Return the teacher of a shard.

        Raises:
            SchemaError: if the shard holds no images.
        """
        images = shard.inputs
        if not isinstance(images, Images):
            raise SchemaError(f"cnn teachers take images, the data is {images.schema()}")
        seen, labels = np.unique(shard.labels, return_inverse=True)
        # PyTorch initialises layers from its global generator: a copy of it, put back afterwards.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            network = _Network(images.size, len(seen)).to(self._device)
        _train(network, _as_tensor(images.pixels), torch.from_numpy(labels), seed, self._device)
        return CnnTeacher(ImageSchema(images.size), seen, network.eval(), self._device)

    def restore(self, stored: Stored) -> CnnTeacher:
        """Return the teacher that was stored.

        Raises:
            DamagedTeacherError: if the bytes are not such a teacher.
        """
        takes = tensors.image_size(stored.facts)
        held = tensors.load(stored.model, None)
        seen = held.pop("seen", None)
        if seen is None or seen.ndim != 1 or seen.dtype != np.int64:
            raise DamagedTeacherError("its class list")
        with torch.random.fork_rng(devices=[]):
            network = _Network(takes.size, len(seen))
        try:
            network.load_state_dict(
                {name: torch.from_numpy(np.array(w)) for name, w in held.items()}
            )
        except RuntimeError as error:
            raise DamagedTeacherError("the shapes of its weights") from error
        return CnnTeacher(
            takes, seen.astype(np.int64), network.eval().to(self._device), self._device
        )


def _train(
    network: nn.Module, images: torch.Tensor, labels: torch.Tensor, seed: int, device: str
) -> None:
    """Fit by AdamW with one rise and fall of the rate, on images turned and shifted at random."""
    draw = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(network.parameters(), lr=_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=_RATE, total_steps=_STEPS)
    images, labels = images.to(device), labels.to(device)
    order = torch.empty(0, dtype=torch.int64)
    network.train()
    for _ in range(_STEPS):
        while len(order) < _BATCH:
            order = torch.cat([order, torch.randperm(len(images), generator=draw)])
        picked, order = order[:_BATCH].to(device), order[_BATCH:]
        batch = _move(images[picked], draw)
        loss = F.cross_entropy(network(batch), labels[picked], label_smoothing=0.1)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()


def _move(batch: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """Return the images turned, stretched and shifted, each by its own amount."""
    count = len(batch)
    spread = 2 * torch.rand(count, 6, generator=draw) - 1
    turn = spread[:, 0] * _TURN
    grown = 1 + spread[:, 1:3] * _STRETCH
    shear = spread[:, 3] * _STRETCH
    matrix = torch.zeros(count, 2, 3)
    matrix[:, 0, 0] = torch.cos(turn) * grown[:, 0]
    matrix[:, 0, 1] = shear - torch.sin(turn)
    matrix[:, 1, 0] = torch.sin(turn)
    matrix[:, 1, 1] = torch.cos(turn) * grown[:, 1]
    matrix[:, :, 2] = spread[:, 4:] * _SHIFT
    grid = F.affine_grid(matrix.to(batch.device), list(batch.shape), align_corners=False)
    return F.grid_sample(batch, grid, padding_mode="border", align_corners=False)


def _as_tensor(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> torch.Tensor:
    """Return (n, channels, height, width) float32 in [-1, 1]."""
    return torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1).permute(0, 3, 1, 2).contiguous()
