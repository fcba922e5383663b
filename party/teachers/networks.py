"""Networks for images, small enough for a teacher's few records, with PyTorch.

Both normalise over groups of channels within one image: batches are small, and the answer to an
image must not depend on others in its batch.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

_GROUPS: Final = 8
_PLAIN_WIDTHS: Final = (32, 64, 96, 128, 128, 128)
_RESIDUAL_WIDTHS: Final = (32, 64, 128)
_BLOCKS: Final = 2  # of each width
_LARGEST_SIDE: Final = 40  # larger images are halved until they are below it


class Plain(nn.Sequential):
    """Blocks of two convolutions that halve the image until it is small, then one linear layer.

    Args:
        size: height, width, channels.
        classes: number of scores.
    """

    def __init__(self, size: tuple[int, int, int], classes: int) -> None:
        height, width, channels = size
        layers: list[nn.Module] = []
        for at, wide in enumerate(_PLAIN_WIDTHS):
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


class _Block(nn.Module):
    """Two convolutions around which the input passes: ``x + f(x)``, normalised before each."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.before = nn.GroupNorm(_GROUPS, inputs)
        self.between = nn.GroupNorm(_GROUPS, outputs)
        same = stride == 1 and inputs == outputs
        self.around = (
            nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return (n, outputs, height / stride, width / stride)."""
        ready = torch.relu(self.before(images))
        passed: torch.Tensor = self.around(ready if self.first.stride != (1, 1) else images)
        inner: torch.Tensor = self.second(torch.relu(self.between(self.first(ready))))
        return passed + inner


class Residual(nn.Sequential):
    """A small residual network: a stem of one small convolution, three widths of two blocks.

    Source: He, Zhang, Ren and Sun, "Identity mappings in deep residual networks", ECCV 2016; Wu
    and He, "Group normalization", ECCV 2018.

    Args:
        size: height, width, channels.
        classes: number of scores.
    """

    def __init__(self, size: tuple[int, int, int], classes: int) -> None:
        height, width, channels = size
        before = _RESIDUAL_WIDTHS[0]
        layers: list[nn.Module] = [nn.Conv2d(channels, before, 3, padding=1, bias=False)]
        while max(height, width) > _LARGEST_SIDE:
            layers.append(nn.AvgPool2d(2, ceil_mode=True))
            height, width = -(-height // 2), -(-width // 2)
        for at, wide in enumerate(_RESIDUAL_WIDTHS):
            for block in range(_BLOCKS):
                layers.append(_Block(before, wide, 2 if at and not block else 1))
                before = wide
        layers += [nn.GroupNorm(_GROUPS, before), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*layers, nn.Linear(before, classes))
