"""The convolutional network of an image student, described by plain numbers; and the student.

One description (:class:`Architecture`) is enough to build the torch module here and the ONNX
graph in :mod:`student.onnx_graph`, so the two always agree: both read the same fields.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pate.data.values import Images
from pate.errors import DataError, SchemaError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Inputs

#: Slope of the leaky rectifier, and the epsilon of batch normalisation; part of the format.
SLOPE = 0.1
NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Architecture:
    """A small residual network: a stem, stages of residual blocks, global mean, one linear layer."""

    height: int
    width: int
    channels: int
    classes: int
    # output channels per stage; the first stage keeps the resolution of the stem, and each later
    # one halves it
    stages: tuple[int, ...]
    blocks: int = 1  # residual blocks per stage, at least 1
    stem_stride: int = 1  # 1, or 2 to halve the resolution at once

    def __post_init__(self) -> None:
        counts = (self.height, self.width, self.channels, self.classes, self.blocks, *self.stages)
        if not self.stages or min(counts) < 1 or max(counts) > 4096:
            raise DataError(f"an architecture out of range: {self}")
        if self.channels not in (1, 3) or self.stem_stride not in (1, 2) or self.classes < 2:
            raise DataError(f"an architecture out of range: {self}")
        if self.blocks > 16 or len(self.stages) > 8:
            raise DataError(f"an architecture deeper than this program builds: {self}")


def sized_for(size: tuple[int, int, int], classes: int, *, wide: bool) -> Architecture:
    """Return an architecture that learns most per second of a device from images of a size.

    On a CPU the stem halves the resolution from 24 pixels a side on: a quarter of the work, so that
    every image is seen four times as often.

    ``wide``: twice the channels and blocks, for an accelerator.
    """
    height, width, channels = size
    side = min(height, width)
    grow = 2 if wide else 1
    stages: tuple[int, ...]
    if side < 16:
        stages = (32, 64)
    elif channels == 1:
        stages = (16, 32, 64)
    else:
        stages = (24, 48, 96)
    return Architecture(
        height=height,
        width=width,
        channels=channels,
        classes=classes,
        stages=tuple(grow * stage for stage in stages),
        blocks=grow,
        stem_stride=2 if side > 48 or (side >= 24 and not wide) else 1,
    )


class Block(nn.Module):
    """Two normalised 3x3 convolutions and a shortcut, a 1x1 convolution if shapes differ."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(before, after, 3, stride)
        self.norm1 = _norm(after)
        self.conv2 = _conv(after, after, 3, 1)
        self.norm2 = _norm(after)
        self.shortcut = (
            _conv(before, after, 1, stride) if has_projection(before, after, stride) else None
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return (b, after, height / stride, width / stride)."""
        aside = images if self.shortcut is None else self.shortcut(images)
        inner = functional.leaky_relu(self.norm1(self.conv1(images)), SLOPE)
        summed: Tensor = self.norm2(self.conv2(inner)) + aside
        return functional.leaky_relu(summed, SLOPE)


class Network(nn.Module):
    """The module of an :class:`Architecture`; input (b, channels, height, width) in [-1, 1]."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        stem = architecture.stages[0]
        self.stem = _conv(architecture.channels, stem, 3, architecture.stem_stride)
        self.stem_norm = _norm(stem)
        self.blocks = nn.ModuleList(Block(*shape) for shape in block_shapes(architecture))
        self.head = nn.Linear(architecture.stages[-1], architecture.classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return (b, classes) logits."""
        logits: Tensor = self.head(self.features(images))
        return logits

    def features(self, images: Tensor) -> Tensor:
        """Return (b, channels of the last stage), the input of the linear layer."""
        maps = functional.leaky_relu(self.stem_norm(self.stem(images)), SLOPE)
        for block in self.blocks:
            maps = block(maps)
        return maps.mean(dim=(2, 3))


def block_shapes(architecture: Architecture) -> list[tuple[int, int, int]]:
    """Return (channels before, channels after, stride) of every block, in order."""
    shapes = []
    before = architecture.stages[0]
    for place, after in enumerate(architecture.stages):
        for number in range(architecture.blocks):
            stride = 2 if place > 0 and number == 0 else 1
            shapes.append((before, after, stride))
            before = after
    return shapes


def has_projection(before: int, after: int, stride: int) -> bool:
    """Return whether a block of this shape has a 1x1 convolution on its shortcut."""
    return before != after or stride != 1


def build(architecture: Architecture, generator: torch.Generator) -> Network:
    """Return a network with weights drawn only from ``generator`` (on the CPU), not the global one."""
    with torch.device("meta"):
        network = Network(architecture)
    network.to_empty(device="cpu")
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                fan = module.weight[:, 0].numel() / module.stride[0] ** 2
                module.weight.normal_(0.0, math.sqrt(2.0 / fan), generator=generator)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
                module.reset_running_stats()
            elif isinstance(module, nn.Linear):
                module.weight.normal_(0.0, math.sqrt(1.0 / module.in_features), generator=generator)
                module.bias.zero_()
        for block in network.blocks:
            if isinstance(block, Block):  # starts as its shortcut, for stability
                block.norm2.weight.fill_(0.2)
    return network


def _conv(before: int, after: int, kernel: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=NORM_EPSILON, momentum=0.05)


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
        """Return (n, classes) probabilities."""
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
    """Return the device called ``auto``, ``cpu`` or ``cuda``."""
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"there is no device {name!r}; choose auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch sees no CUDA device here; use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
