"""Folders of image files: one folder per class, or a flat folder without labels."""

from __future__ import annotations

import struct
import warnings
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image, UnidentifiedImageError

from pate.data.limits import require_room
from pate.data.values import Images
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_SUFFIXES: Final = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
)
#: Files that desktops leave in every folder they show.
_LITTER: Final = frozenset({"thumbs.db", "desktop.ini", "__macosx"})
_GREY_MODES: Final = frozenset({"1", "L", "LA"})
_DEEP_MODES: Final = frozenset({"I;16", "I;16B", "I;16L"})
_UNUSABLE_MODES: Final = frozenset({"I", "F"})


def entries(folder: Path) -> list[Path]:
    """Return what a folder holds, sorted by name, without hidden files and desktop litter.

    Raises:
        DataError: if it cannot be listed.
    """
    try:
        found = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise DataError(f"cannot list {folder}: {error.strerror}") from error
    return [p for p in found if not p.name.startswith(".") and p.name.casefold() not in _LITTER]


def is_image_file(path: Path) -> bool:
    """Tell by its name whether a file holds one image."""
    return path.suffix.casefold() in _SUFFIXES and path.is_file()


def holds_images(folder: Path) -> bool:
    """Tell whether a folder holds an image file itself."""
    return any(is_image_file(path) for path in entries(folder))


def class_files(folder: Path) -> list[tuple[str, Path]]:
    """Return the class name and path of every image in a folder of class folders.

    Raises:
        DataError: if a class folder holds something that is no image.
    """
    return [
        (home.name, path)
        for home in entries(folder)
        if home.is_dir()
        for path in _only_images(home)
    ]


def all_files(folder: Path) -> list[Path]:
    """Return every image of a folder, flat or in class folders, by name.

    Raises:
        DataError: if a class folder holds something that is no image.
    """
    flat = [path for path in entries(folder) if is_image_file(path)]
    return flat + [path for _, path in class_files(folder)]


def read_images(paths: Sequence[Path]) -> Images:
    """Return the images of files that all have one size.

    Images are greyscale if all files are, else RGB; 16-bit greyscale keeps its upper byte.

    Raises:
        DataError: if a file is damaged, of another size, or of a kind that is not read.
    """
    if not paths:
        raise DataError("there are no image files")
    pictures: list[NDArray[np.uint8]] = []
    for path in paths:
        picture = _read_one(path)
        if not pictures:
            require_room(path.parent, picture.nbytes * len(paths))
        elif picture.shape[:2] != pictures[0].shape[:2]:
            height, width = picture.shape[:2]
            first = "{}x{}".format(*pictures[0].shape[:2])
            raise DataError(
                f"{path} is {height}x{width} pixels, {paths[0].name} is {first}; "
                "bring all images to one size"
            )
        pictures.append(picture)
    channels = max(picture.shape[2] for picture in pictures)
    # A grey picture among coloured ones is repeated over the channels.
    return Images(np.stack([np.repeat(p, channels // p.shape[2], axis=2) for p in pictures]))


def _only_images(folder: Path) -> list[Path]:
    held = entries(folder)
    for path in held:
        if not is_image_file(path):
            raise DataError(f"{path} is not an image file; move it out of the class folder")
    return held


def _read_one(path: Path) -> NDArray[np.uint8]:
    """Return (height, width, 1 or 3) uint8."""
    try:
        with warnings.catch_warnings():
            # Pillow warns of an image so large that it may be an attack; we refuse it.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                return _pixels(image, path)
    except UnidentifiedImageError as error:
        raise DataError(f"{path} is not an image that can be read") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise DataError(f"{path} has too many pixels; scale it down") from error
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        raise DataError(f"{path} is damaged or truncated ({error}); copy it again") from error


def _pixels(image: Image.Image, path: Path) -> NDArray[np.uint8]:
    if image.mode in _UNUSABLE_MODES:
        raise DataError(f"{path} has pixels of mode {image.mode}; save it with 8 bits a channel")
    if image.mode in _DEEP_MODES:
        return (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)[..., np.newaxis]
    if image.mode in _GREY_MODES:
        return np.array(image.convert("L"), dtype=np.uint8)[..., np.newaxis]
    return np.array(image.convert("RGB"), dtype=np.uint8)
