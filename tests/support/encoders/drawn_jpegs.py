"""JPEG files of drawn shapes, each of a size of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ("disc", "lying", "upright")


def draw(shape: str, rng: np.random.Generator) -> Image.Image:
    """Return a light shape near the middle of a dark image of 24 to 89 pixels a side."""
    width, height = (int(each) for each in rng.integers(24, 90, 2))
    dark, light = (
        tuple(int(each) for each in rng.integers(*ends, 3)) for ends in ((0, 60), (170, 256))
    )
    image = Image.new("RGB", (width, height), dark)
    x, y = width * rng.uniform(0.4, 0.6), height * rng.uniform(0.4, 0.6)
    size = min(width, height) * rng.uniform(0.2, 0.35)
    wide = {"disc": 1.0, "lying": 1.6, "upright": 1 / 3}[shape] * size
    high = {"disc": 1.0, "lying": 1 / 3, "upright": 1.6}[shape] * size
    pen, box = ImageDraw.Draw(image), (x - wide, y - high, x + wide, y + high)
    (pen.ellipse if shape == "disc" else pen.rectangle)(box, fill=light)
    return image


def write(folder: Path, each: int, seed: int, *, flat: bool = False) -> None:
    """Write images of each shape, into class folders or one flat folder."""
    rng = np.random.default_rng(seed)
    for shape in SHAPES:
        home = folder if flat else folder / shape
        home.mkdir(parents=True, exist_ok=True)
        for at in range(each):
            name = f"{rng.integers(10**9)}-{at}.jpg" if flat else f"{at}.jpg"
            draw(shape, rng).save(home / name)


def sizes(folders: Sequence[Path]) -> set[tuple[int, int]]:
    """Return the sizes of the images of some folders."""
    found = set()
    for folder in folders:
        for path in folder.rglob("*.jpg"):
            with Image.open(path) as image:
                found.add(image.size)
    return found
