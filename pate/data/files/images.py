"""Images in folders, one folder per class or flat, and in IDX files, the format of MNIST."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.cells import plain_name
from pate.data.files.pictures import read_picture, told_size
from pate.data.limits import most_bytes, read_at_most, require_room
from pate.data.odd import Odd, Unusable, judged, usable
from pate.data.values import Images
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from pate.data.files.pictures import Picture, Size
    from pate.data.values import Window

_SUFFIXES: Final = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
)
#: Files that desktop environments leave in folders.
_LITTER: Final = frozenset({"thumbs.db", "desktop.ini", "__macosx"})


def entries(folder: Path) -> list[Path]:
    """Return a folder's entries, sorted by name, without hidden files and those of desktop environments."""
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


def class_files(
    folder: Path,
    odd: Odd | None = None,
    *,
    is_one: Callable[[Path], bool] = is_image_file,  # whether a file is of a class
    names: tuple[str, str] = ("an image file", "images"),  # what one is called, and what many are
) -> list[tuple[str, Path]]:
    """Return the class name and path of every file in a folder of class folders; others are noted."""
    found = []
    for home, path in ((h, p) for h in entries(folder) if h.is_dir() for p in entries(h)):
        if is_one(path):
            found.append((plain_name(home.name), path))
            continue
        what, to_do = f"not {names[0]}", "move it out of the class folder"
        if path.is_dir() and any(map(is_one, entries(path))):
            what = f"a folder of {names[1]} within a class folder"
            to_do = "if such folders are the classes, give the path of the folder around them"
        if odd is None:
            raise DataError(f"{path} is {what}; {to_do}")
        more = f": {to_do}" if path.is_dir() else ""
        odd.record(f"it is {what}{more}", f"{home.name}/{path.name}")
    return found


def all_files(folder: Path) -> list[Path]:
    """Return every image of a folder, flat or in class folders, by name."""
    flat = [path for path in entries(folder) if is_image_file(path)]
    return flat + [path for _, path in class_files(folder)]


def sizes_differ(folder: Path) -> bool:
    """Return whether images in class folders have several heights or widths, by their headers."""
    first: tuple[int, int] | None = None
    for _, path in class_files(folder, Odd()):
        told = told_size(path)
        if told is not None and first is not None and told[:2] != first:
            return True
        first = first if told is None else told[:2]
    return False


def read_images(
    paths: Sequence[Path], window: Window | None = None, odd: Odd | None = None
) -> Images:
    """Return the images of files that all have one size: greyscale if all files are, else RGB."""
    if not paths:
        raise DataError("there are no image files")
    pictures: list[NDArray[np.uint8]] = []
    for path in paths:
        picture, notes = read_picture(path, window)
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
            note(notes, path, odd)
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
    """
    if size is None:
        sizes = Counter(found for path in paths if (found := told_size(path)) is not None)
        if not sizes:
            raise DataError("there are no image files that can be read")
        size = min(sizes, key=lambda each: (-sizes[each], each))
    height, width, channels = size
    require_room(paths[0].parent if paths else Path(), height * width * channels * len(paths))
    pixels = np.empty((len(paths), height, width, channels), dtype=np.uint8)
    kept: list[int] = []
    for at, path in enumerate(paths):
        place = f"{path.parent.name}/{path.name}"
        told = told_size(path, upright=False)
        if told is not None and {*told[:2]} != {height, width}:
            odd.record(_other_size(height, width), place)
            continue
        picture = usable(judged_picture(path, window), odd, place)
        if picture is None:
            continue
        if picture.pixels.shape[:2] != (height, width):
            odd.record(_other_size(height, width), place)
        elif picture.pixels.shape[2] > channels:
            odd.record("the image is in colour, and the others are grey", place)
        else:
            pixels[len(kept)] = picture.pixels
            kept.append(at)
            note(picture.notes, path, odd)
    return Images(pixels[: len(kept)], window), kept


def each_picture(
    paths: Sequence[Path], window: Window | None, odd: Odd | None, notes: Odd | None
) -> Iterator[NDArray[np.uint8] | None]:
    """Yield the picture in each file, of any size; None for an unusable one, which is noted."""
    for path in paths:
        picture = usable(judged_picture(path, window), odd, f"{path.parent.name}/{path.name}")
        if notes is not None and picture is not None:
            note(picture.notes, path, notes)
        yield None if picture is None else picture.pixels


def judged_picture(path: Path, window: Window | None) -> Picture | Unusable:
    """Return the picture in a file, or that it has none."""
    return judged(partial(read_picture, path, window), partial(_why_not, path=path))


def note(notes: Sequence[str], path: Path, odd: Odd) -> None:
    """Note what is lost in reading an image file."""
    for why in notes:
        odd.note(why, f"{path.parent.name}/{path.name}")


def _other_size(height: int, width: int) -> str:
    return f"the image is not of {height}x{width} pixels"


def _why_not(error: DataError, path: Path) -> str:
    """Return why a file was not read, without its name, so that equal reasons can be counted."""
    text = str(error).replace(f"{path} ", "the image ", 1)
    return text.partition(" (")[0].partition(";")[0]


# IDX files, plain or packed with gzip.
#
# Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", file formats.

#: Some archives of MNIST have a dot in place of the second hyphen.
_IMAGES: Final = re.compile(r"images([-.])idx3-ubyte(?:\.gz)?\Z")


def is_idx_images(path: Path) -> bool:
    """Return whether a file has IDX images, by its name."""
    return _IMAGES.search(path.name) is not None


def image_files(folder: Path) -> list[Path]:
    """Return the IDX image files of a folder by name; an unpacked file takes precedence over its ``.gz``."""
    found = {path.name: path for path in folder.iterdir() if path.is_file() and is_idx_images(path)}
    return [
        path
        for name, path in sorted(found.items())
        if not (name.endswith(".gz") and name.removesuffix(".gz") in found)
    ]


def labels_beside(images: Path) -> Path:
    """Return the file of labels that belongs to a file of images."""
    own = _IMAGES.search(images.name)
    signs = ".-" if own is not None and own[1] == "." else "-."
    stems = [_IMAGES.sub(f"labels{sign}idx1-ubyte", images.name) for sign in signs]
    for name in (*stems, *(f"{stem}.gz" for stem in stems)):
        if (images.parent / name).is_file():
            return images.parent / name
    raise DataError(
        f"{images} has no labels beside it; put {stems[0]} or {stems[0]}.gz in that folder"
    )


def read_idx_images(path: Path) -> NDArray[np.uint8]:
    """Return (n, height, width, 1) uint8 pixels."""
    return _read(path, axes=3)[..., np.newaxis]


def read_idx_labels(path: Path) -> list[str]:
    """Return one class name, a number from 0 to 255, per record."""
    return [str(value) for value in _read(path, axes=1).tolist()]


def _read(path: Path, *, axes: int) -> NDArray[np.uint8]:
    head = 4 + 4 * axes
    start = read_at_most(path, head)
    # Two zero bytes, 8 for unsigned bytes, the number of axes; then one big-endian size each.
    if len(start) < head or start[:4] != bytes([0, 0, 8, axes]):
        raise DataError(f"{path} is not an IDX file of unsigned bytes with {axes} axes")
    shape = [int.from_bytes(start[at : at + 4], "big") for at in range(4, head, 4)]
    wanted = head + math.prod(shape)  # Python integers: forged sizes cannot wrap
    if wanted > most_bytes(path):
        raise DataError(f"{path} is truncated: its header promises {wanted} bytes; copy it again")
    require_room(path, wanted)
    content = read_at_most(path, wanted + 1)
    if len(content) != wanted:
        state = "truncated" if len(content) < wanted else "longer than its header says"
        raise DataError(f"{path} is {state}: {wanted} bytes were promised; copy it again")
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)
