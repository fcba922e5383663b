"""Weak and strong augmentation of batches of images, as tensor operations on their device.

All of it is batched: one affine grid per image, one `grid_sample` per batch. No horizontal flips, since a
mirrored digit is another symbol. Changes are mainly of shape: with good labels, other changes only slow
learning. Randomness comes from the generator that is passed in, which must live on the images' device.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

#: Largest rotation in degrees, relative changes of size and shear, either way; lengths of translation, of a
#: smooth random displacement (elastic deformation) and of the blanked square, as fractions of the image's
#: side.
_ROTATION: Final = 15.0
_SCALE: Final = 0.15
_SHEAR: Final = 0.2
_SHIFT: Final = 0.1
_BEND: Final = 0.03
_CUTOUT: Final = 0.25
_NOISE: Final = 0.05  # standard deviation per pixel, on the [-1, 1] scale, at most


def weak(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return (b, channels, height, width) images moved by whole pixels, at most one eighth of their side."""
    count, _, height, width = images.shape
    reach = max(1, min(height, width) // 12)
    padded = functional.pad(images, (reach, reach, reach, reach), mode="replicate")
    down = _whole(count, 2 * reach + 1, generator)
    right = _whole(count, 2 * reach + 1, generator)
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = right[:, None] + torch.arange(width, device=images.device)
    at = torch.arange(count, device=images.device)[:, None, None]
    # Indices around a slice put the sliced axis last; back to (b, channels, height, width).
    return padded[at, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def strong(
    images: Tensor, generator: torch.Generator, contrast: float = 0.1, brightness: float = 0.0
) -> Tensor:
    """Return (b, channels, height, width) images in [-1, 1] with random bending, colour, noise and cutout."""
    bent = _recolour(_warp(images, generator), generator, contrast, brightness)
    return _cutout(bent, generator)


def _warp(images: Tensor, generator: torch.Generator) -> Tensor:
    count, _, height, width = images.shape
    angle, shear, grow, stretch, right, down = _spread((6, count), generator)
    angle = angle * math.radians(_ROTATION)
    across = torch.exp(grow * _SCALE + stretch * _SCALE / 2)
    along = torch.exp(grow * _SCALE - stretch * _SCALE / 2)
    cos, sin = torch.cos(angle), torch.sin(angle)
    lean = shear * _SHEAR
    matrix = torch.stack(
        [
            torch.stack([across * cos, along * (lean * cos - sin), 2 * _SHIFT * right], dim=1),
            torch.stack([across * sin, along * (lean * sin + cos), 2 * _SHIFT * down], dim=1),
        ],
        dim=1,
    )
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    if min(height, width) >= 16:
        knots = torch.randn((count, 2, 4, 4), generator=generator, device=images.device)
        field = functional.interpolate(
            knots, size=(height, width), mode="bilinear", align_corners=True
        )
        grid = grid + 2 * _BEND * field.permute(0, 2, 3, 1)
    return functional.grid_sample(
        images, grid, mode="bilinear", padding_mode="border", align_corners=False
    )


def _recolour(
    images: Tensor, generator: torch.Generator, contrast: float, brightness: float
) -> Tensor:
    count, channels = images.shape[:2]
    factor = torch.exp(contrast * _spread((count, channels, 1, 1), generator))
    shift = brightness * _spread((count, channels, 1, 1), generator)
    level = _NOISE * _uniform((count, 1, 1, 1), generator)
    noise = torch.randn(images.shape, generator=generator, device=images.device)
    return (images * factor + shift + level * noise).clamp(-1.0, 1.0)


def _cutout(images: Tensor, generator: torch.Generator) -> Tensor:
    """Blank one square per image with the image's own mean."""
    count, _, height, width = images.shape
    half = _uniform((count, 1), generator) * _CUTOUT / 2
    middle_row, middle_column = _uniform((2, count, 1), generator)
    rows = (torch.arange(height, device=images.device) + 0.5) / height
    columns = (torch.arange(width, device=images.device) + 0.5) / width
    inside = ((rows - middle_row).abs() < half)[:, None, :, None]
    inside = inside & ((columns - middle_column).abs() < half)[:, None, None, :]
    return torch.where(inside, images.mean(dim=(1, 2, 3), keepdim=True), images)


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device)


def _spread(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return uniform numbers in [-1, 1]."""
    return 2 * _uniform(shape, generator) - 1


def _whole(count: int, bound: int, generator: torch.Generator) -> Tensor:
    return torch.randint(bound, (count,), generator=generator, device=generator.device)
