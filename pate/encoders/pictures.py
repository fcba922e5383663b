"""From an image of any size to the numbers that an encoder's graph takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from pate.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.encoders.description import ImageSteps


def prepared(pixels: NDArray[np.uint8], steps: ImageSteps) -> NDArray[np.float32]:
    """Return one image of any size as the graph takes it, (1, channels, height, width) or channels last.

    Pillow scales 8-bit images in whole numbers, so the result is the same on every machine.
    """
    if pixels.ndim != 3 or pixels.dtype != np.uint8 or pixels.shape[2] not in (1, 3):
        raise DataError("an image must be (height, width, 1 or 3) uint8")
    if not pixels.size:
        raise DataError("the image has no pixels")
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    image = _scaled(image.convert("L" if steps.channels == 1 else "RGB"), steps)
    size = steps.height, steps.width, steps.channels
    values: NDArray[np.float32] = np.array(image, dtype=np.float32).reshape(size)
    values /= np.float32(255)
    values -= np.array(steps.mean, dtype=np.float32)
    values /= np.array(steps.spread, dtype=np.float32)
    if steps.layout == "first":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values[np.newaxis])


def _scaled(image: Image.Image, steps: ImageSteps) -> Image.Image:
    """Return the image in the graph's size. Only what is used is scaled: memory is bounded by that size."""
    wide, high = image.size
    filter_ = Image.Resampling[steps.resample.upper()]
    size = steps.width, steps.height
    if steps.fit == "crop":
        # The largest part of the graph's proportions, then the share of it in the middle.
        scale = min(wide / steps.width, high / steps.height) * steps.crop
        part_wide, part_high = steps.width * scale, steps.height * scale
        left, above = (wide - part_wide) / 2, (high - part_high) / 2
        box = (
            max(left, 0.0), max(above, 0.0),
            min(left + part_wide, float(wide)), min(above + part_high, float(high)),
        )  # fmt: skip
        return image.resize(size, filter_, box)
    if steps.fit == "stretch":
        return image.resize(size, filter_)
    scale = min(steps.width / wide, steps.height / high)
    inner = max(1, round(wide * scale)), max(1, round(high * scale))
    made = Image.new(image.mode, size)
    made.paste(image.resize(inner, filter_), ((size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2))
    return made
