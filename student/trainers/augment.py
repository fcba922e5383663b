"""Weak and strong augmentation of batches of images, as tensor operations on their device.

All of it is batched: one affine grid per image, one `grid_sample` per batch. No horizontal flips,
since a mirrored digit is another symbol; they can be enabled where they are safe. Randomness comes
from the generator that is passed in, which must live on the images' device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Strength:
    """Strength of the strong augmentation. Lengths are fractions of the image's side.

    Attributes:
        rotation: largest angle, degrees, either way.
        scale: largest relative change of size, either way.
        shear: largest shear, either way.
        shift: largest translation.
        bend: standard deviation of a smooth random displacement (elastic deformation).
        contrast: largest relative change of contrast, either way.
        brightness: largest shift of all pixels, on the [-1, 1] scale.
        noise: standard deviation of the noise per pixel, on the [-1, 1] scale, at most.
        cutout: side of the square that is blanked, at most.
    """

    rotation: float = 20.0
    scale: float = 0.2
    shear: float = 0.25
    shift: float = 0.125
    bend: float = 0.03
    contrast: float = 0.4
    brightness: float = 0.2
    noise: float = 0.1
    cutout: float = 0.4


#: Mainly changes of shape: with good labels, other changes only slow learning.
GENTLE = Strength(
    rotation=15.0,
    scale=0.15,
    shear=0.2,
    shift=0.1,
    bend=0.03,
    contrast=0.1,
    brightness=0.0,
    noise=0.05,
    cutout=0.25,
)


def weak(images: Tensor, generator: torch.Generator, *, flips: bool = False) -> Tensor:
    """Return images moved by whole pixels, at most one eighth of their side.

    Args:
        images: (b, channels, height, width) in [-1, 1].
        generator: on the device of ``images``.
        flips: also mirror each image left to right with probability one half.
    """
    count, _, height, width = images.shape
    reach = max(1, min(height, width) // 12)
    padded = functional.pad(images, (reach, reach, reach, reach), mode="replicate")
    down = _whole(count, 2 * reach + 1, generator)
    right = _whole(count, 2 * reach + 1, generator)
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = right[:, None] + torch.arange(width, device=images.device)
    if flips:
        mirrored = _uniform((count, 1), generator) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    at = torch.arange(count, device=images.device)[:, None, None]
    # Indices around a slice put the sliced axis last; back to (b, channels, height, width).
    return padded[at, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def strong(
    images: Tensor,
    generator: torch.Generator,
    strength: Strength,
    *,
    flips: bool = False,
) -> Tensor:
    """Return images with random bending, colour, noise and cutout, independently for each.

    Args:
        images: (b, channels, height, width) in [-1, 1].
        generator: on the device of ``images``.
        strength: of the augmentation.
        flips: also mirror each image left to right with probability one half.
    """
    bent = _warp(images, generator, strength, flips=flips)
    return _cutout(_recolour(bent, generator, strength), generator, strength.cutout)


def _warp(images: Tensor, generator: torch.Generator, by: Strength, *, flips: bool) -> Tensor:
    count, _, height, width = images.shape
    angle, shear, grow, stretch, right, down = _spread((6, count), generator)
    angle = angle * math.radians(by.rotation)
    across = torch.exp(grow * by.scale + stretch * by.scale / 2)
    along = torch.exp(grow * by.scale - stretch * by.scale / 2)
    if flips:
        across = torch.where(_uniform((count,), generator) < 0.5, -across, across)
    cos, sin = torch.cos(angle), torch.sin(angle)
    lean = shear * by.shear
    matrix = torch.stack(
        [
            torch.stack([across * cos, along * (lean * cos - sin), 2 * by.shift * right], dim=1),
            torch.stack([across * sin, along * (lean * sin + cos), 2 * by.shift * down], dim=1),
        ],
        dim=1,
    )
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    if by.bend > 0 and min(height, width) >= 16:
        knots = torch.randn((count, 2, 4, 4), generator=generator, device=images.device)
        field = functional.interpolate(
            knots, size=(height, width), mode="bilinear", align_corners=True
        )
        grid = grid + 2 * by.bend * field.permute(0, 2, 3, 1)
    return functional.grid_sample(
        images, grid, mode="bilinear", padding_mode="border", align_corners=False
    )


def _recolour(images: Tensor, generator: torch.Generator, by: Strength) -> Tensor:
    count, channels = images.shape[:2]
    contrast = torch.exp(by.contrast * _spread((count, channels, 1, 1), generator))
    shift = by.brightness * _spread((count, channels, 1, 1), generator)
    level = by.noise * _uniform((count, 1, 1, 1), generator)
    noise = torch.randn(images.shape, generator=generator, device=images.device)
    return (images * contrast + shift + level * noise).clamp(-1.0, 1.0)


def _cutout(images: Tensor, generator: torch.Generator, largest: float) -> Tensor:
    """Blank one square per image with the image's own mean."""
    count, _, height, width = images.shape
    half = _uniform((count, 1), generator) * largest / 2
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
