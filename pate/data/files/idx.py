"""IDX files, the format of MNIST, plain or packed with gzip.

Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", file formats.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.limits import most_bytes, read_at_most, require_room
from pate.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

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
