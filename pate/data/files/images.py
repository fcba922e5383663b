"""Folders of image files: one folder per class, or a flat folder without labels."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from pate.data.files.pictures import opened
from pate.data.labels import plain_name
from pate.data.limits import require_room
from pate.data.odd import Odd, UnusableRecordError, judged, usable
from pate.data.values import Images
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from PIL import Image

    from pate.data.values import Window

#: Height, width, channels.
Size: TypeAlias = tuple[int, int, int]

_SUFFIXES: Final = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
)
#: Files that desktop environments leave in folders.
_LITTER: Final = frozenset({"thumbs.db", "desktop.ini", "__macosx"})
_GREY_MODES: Final = frozenset({"1", "L", "LA"})
#: Pillow's modes of 8 bits per channel.
_SCREEN_MODES: Final = frozenset({"RGB", "RGBA", "RGBX", "RGBa", "P", "PA"})
#: Modes of more than 8 bits per pixel: grey, unscaled values.
_DEEP_MODES: Final = frozenset({"I;16", "I;16B", "I;16L", "I;16N"})
_UNUSABLE_MODES: Final = frozenset({"I", "F"})
#: The reason for refusing them.
DEEP: Final = "has more than 8 bits a pixel"
#: The same of whole numbers in an archive.
OUTSIDE: Final = "pixels lie outside 0 to 255"
#: What to do about deep images, for messages.
WINDOW: Final = (
    "say which values are black and white (`--window LOW HIGH` of the server, which goes into the "
    "campaign's terms), or save them with 8 bits"
)


class DeepImagesError(UnusableRecordError):
    """Images of more than 8 bits per pixel, without a window to read them by."""


def entries(folder: Path) -> list[Path]:
    """Return a folder's entries, sorted by name, without hidden files and those of desktop environments.

    Raises:
        DataError: if it cannot be listed.
    """
    try:
        found = sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise DataError(f"cannot list {folder}: {error.strerror}") from error
    return [p for p in found if not p.name.startswith(".") and p.name.casefold() not in _LITTER]


def is_image_file(path: Path) -> bool:
    """Return whether a file has one image, by its name."""
    return path.suffix.casefold() in _SUFFIXES and path.is_file()


def holds_images(folder: Path) -> bool:
    """Return whether a folder directly contains an image file."""
    return any(is_image_file(path) for path in entries(folder))


def class_files(folder: Path, odd: Odd | None = None) -> list[tuple[str, Path]]:
    """Return the class name and path of every image in a folder of class folders.

    Args:
        folder: with one folder per class.
        odd: collects files that are no images; None: they are errors.

    Raises:
        DataError: if a class folder holds something that is no image.
    """
    return [
        (plain_name(home.name), path)
        for home in entries(folder)
        if home.is_dir()
        for path in _only_images(home, odd)
    ]


def all_files(folder: Path) -> list[Path]:
    """Return every image of a folder, flat or in class folders, by name.

    Raises:
        DataError: if a class folder holds something that is no image.
    """
    flat = [path for path in entries(folder) if is_image_file(path)]
    return flat + [path for _, path in class_files(folder)]


def sizes_differ(folder: Path) -> bool:
    """Return whether images in class folders have several heights or widths, by their headers.

    Raises:
        DataError: if a folder cannot be listed.
    """
    first: tuple[int, int] | None = None
    for _, path in class_files(folder, Odd()):
        told = _told_size(path)
        if told is not None and first is not None and told[:2] != first:
            return True
        first = first if told is None else told[:2]
    return False


def read_images(
    paths: Sequence[Path], window: Window | None = None, odd: Odd | None = None
) -> Images:
    """Return the images of files that all have one size.

    Images are greyscale if all files are, else RGB.

    Args:
        paths: of the files.
        window: the values that become black and white in files of more than 8 bits a pixel, whatever
            values a file has; None: such files are refused.
        odd: notes the files of which something is lost in reading.

    Raises:
        DataError: if a file is damaged, of another size, or of a kind that is not read.
    """
    if not paths:
        raise DataError("there are no image files")
    pictures: list[NDArray[np.uint8]] = []
    for path in paths:
        picture = read_one(path, window)
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
        if odd is not None:
            note_oddity(path, odd)
    channels = max(picture.shape[2] for picture in pictures)
    # A grey picture among coloured ones is repeated over the channels.
    return Images(
        np.stack([np.repeat(p, channels // p.shape[2], axis=2) for p in pictures]), window
    )


def read_fitting(
    paths: Sequence[Path], odd: Odd, size: Size | None, window: Window | None
) -> tuple[Images, list[int]]:
    """Return the images of one size, and the indices of their files; others are noted.

    Each file is judged by itself. Without a size, before the campaign is known, the most frequent one
    is used.

    Args:
        paths: of the files.
        odd: collects the excluded files.
        size: height, width and channels, or None.
        window: as of :func:`read_images`.

    Raises:
        DataError: if none of them can be read.
    """
    if size is None:
        told = Counter(found for path in paths if (found := _told_size(path)) is not None)
        if not told:
            raise DataError("there are no image files that can be read")
        size = min(told, key=lambda each: (-told[each], each))
    height, width, channels = size
    require_room(paths[0].parent if paths else Path(), height * width * channels * len(paths))
    pixels = np.empty((len(paths), height, width, channels), dtype=np.uint8)
    kept: list[int] = []
    for at, path in enumerate(paths):
        place = f"{path.parent.name}/{path.name}"
        told_size = _told_size(path)
        if told_size is not None and told_size[:2] != (height, width):
            odd.record(f"the image is not of {height}x{width} pixels", place)
            continue
        read = judged(partial(read_one, path, window), partial(why_not, path=path))
        picture = usable(read, odd, place)
        if picture is None:
            continue
        if picture.shape[2] > channels or picture.shape[:2] != (height, width):
            odd.record("the image is in colour, and the others are grey", place)
            continue
        pixels[len(kept)] = picture
        kept.append(at)
        note_oddity(path, odd)
    return Images(pixels[: len(kept)], window), kept


def windowed(
    values: NDArray[np.integer] | NDArray[np.floating], window: Window
) -> NDArray[np.uint8]:
    """Return grey values of 8 bits: 0 up to the window's low end, 255 from its high one, linear between.

    Each pixel by itself, rounded to the nearest, a half up.
    """
    low, high = window
    # As floats: exact for whole numbers. Within 32 bits no quotient is near enough to a half that is not
    # one, at least 2^-33 away, to be rounded to it.
    inside = np.clip(values.astype(np.float64), low, high) - low
    return np.floor(255 * inside / (high - low) + 0.5).astype(np.uint8)


def oddity(path: Path) -> str:
    """Return what is lost in reading an image file, "" if nothing is."""
    try:
        with opened(path) as image:
            # A camera's MPO is a photograph with previews.
            if image.format != "MPO" and getattr(image, "is_animated", False):
                return "each has several frames: only the first one is read"
            if image.mode not in _SCREEN_MODES | _GREY_MODES | _DEEP_MODES:
                return f"each has the colours {image.mode}: red, green and blue are approximate"
    except DataError:
        pass
    return ""


def note_oddity(path: Path, odd: Odd) -> None:
    """Note what is lost in reading an image file, if anything is."""
    if why := oddity(path):
        odd.note(why, f"{path.parent.name}/{path.name}")


def _told_size(path: Path) -> Size | None:
    """Return height, width and channels from a file's header, None if it cannot be read."""
    try:
        with opened(path) as image:
            grey = image.mode in _GREY_MODES | _DEEP_MODES | _UNUSABLE_MODES
            return image.size[1], image.size[0], 1 if grey else 3
    except DataError:
        return None


def why_not(error: DataError, path: Path) -> str:
    """Return why a file was not read, without its name, so that equal reasons can be counted."""
    text = str(error).replace(f"{path} ", "the image ", 1)
    return text.partition(" (")[0].partition(";")[0]


def _only_images(folder: Path, odd: Odd | None = None) -> list[Path]:
    held = entries(folder)
    found = [path for path in held if is_image_file(path)]
    for path in held:
        if not is_image_file(path):
            if odd is None:
                raise DataError(f"{path} is not an image file; move it out of the class folder")
            odd.record("it is not an image file", f"{folder.name}/{path.name}")
    return found


def read_one(path: Path, window: Window | None) -> NDArray[np.uint8]:
    """Return the pixels of one image.

    Args:
        path: of the file.
        window: as of :func:`read_images`.

    Returns:
        (height, width, 1 or 3) uint8.

    Raises:
        DataError: as :func:`read_images`.
    """
    with opened(path) as image:
        return _pixels(image, path, window)


def _pixels(image: Image.Image, path: Path, window: Window | None) -> NDArray[np.uint8]:
    if image.mode in _UNUSABLE_MODES:
        raise DataError(f"{path} has pixels of mode {image.mode}; save it with 8 bits a channel")
    if image.mode in _DEEP_MODES:
        if window is None:
            raise DeepImagesError(f"{path} {DEEP}; {WINDOW}")
        # By a table of all values, which is smaller than a large image as floats.
        table = windowed(np.arange(2**16), window)
        return table[np.asarray(image).astype(np.uint16)][..., np.newaxis]
    if _cut_to_eight(image):
        raise DataError(f"{path} has more than 8 bits a channel in colour; save it with 8 bits")
    if image.mode in _GREY_MODES:
        return np.array(image.convert("L"), dtype=np.uint8)[..., np.newaxis]
    return np.array(image.convert("RGB"), dtype=np.uint8)


def _cut_to_eight(image: Image.Image) -> bool:
    """Return whether Pillow would silently keep only the upper byte of each value of this file."""
    return any(";16" in str(tile) for tile in getattr(image, "tile", ()))
