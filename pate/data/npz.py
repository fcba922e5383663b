"""NumPy ``.npz`` archives of images, never with pickled objects.

Keys: ``images``, ``x`` or ``data``, (n, height, width[, channels]); ``labels`` or ``y``, (n,)
numbers or text; optional ``classes``, (m,) text that integer labels index; optional ``groups``,
(n,) numbers or text.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.labels import plain_names
from pate.data.limits import require_room
from pate.data.values import Images
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_IMAGES: Final = ("images", "x", "data")
_LABELS: Final = ("labels", "y")


class Archive:
    """An open ``.npz`` file whose arrays are checked before they are read.

    Args:
        path: of the file.

    Raises:
        DataError: if it is no archive, is truncated, or would unpack to too much.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self._sizes = {
                    info.filename.removesuffix(".npy"): info.file_size
                    for info in archive.infolist()
                }
        except (OSError, zipfile.BadZipFile) as error:
            raise DataError(f"{path} is not an .npz archive or is truncated ({error})") from error
        require_room(path, sum(self._sizes.values()))

    def images(self) -> Images:
        """Return the images.

        Raises:
            DataError: if there are none, or they hold NaN or values out of range.
        """
        return Images(_as_pixels(self._one_of(_IMAGES), self._path))

    def labels(self, key: str | None) -> list[str]:
        """Return one class name per record.

        Args:
            key: name of the array, or None for the usual ones.

        Raises:
            DataError: if the array is absent, holds NaN, or points outside ``classes``.
        """
        array = _flat(self._one_of(_LABELS if key is None else (key,)), "labels", self._path)
        if "classes" not in self._sizes or array.dtype.kind not in "iu":
            return _as_names(array, "labels", self._path)
        names = _as_names(
            _flat(self._read("classes"), "classes", self._path), "classes", self._path
        )
        outside = [at for at in set(array.tolist()) if not 0 <= at < len(names)]
        if outside:
            raise DataError(
                f"{self._path}: label {outside[0]} lies outside its {len(names)} classes"
            )
        return [names[at] for at in array.tolist()]

    def declared_classes(self) -> list[str] | None:
        """Return the class list of the archive, or None.

        Raises:
            DataError: if it cannot be read.
        """
        if "classes" not in self._sizes:
            return None
        return _as_names(_flat(self._read("classes"), "classes", self._path), "classes", self._path)

    def groups(self, key: str | None) -> NDArray[np.str_] | None:
        """Return the group of each record, or None if the archive has no groups.

        Args:
            key: name of the array, which must then exist, or None for ``groups`` if it is there.

        Raises:
            DataError: if the array is absent, or a group is missing.
        """
        if key is None and "groups" not in self._sizes:
            return None
        names = _as_names(
            _flat(self._one_of((key or "groups",)), "groups", self._path), "groups", self._path
        )
        if not all(names):
            raise DataError(f"{self._path}: record {names.index('') + 1} has no group")
        return np.array(names, dtype=np.str_)

    def _one_of(self, keys: Sequence[str]) -> NDArray[np.generic]:
        for key in keys:
            if key in self._sizes:
                return self._read(key)
        raise DataError(
            f"{self._path} has no array called {' or '.join(keys)}; "
            f"it has: {', '.join(sorted(self._sizes)) or 'none'}"
        )

    def _read(self, key: str) -> NDArray[np.generic]:
        try:
            with zipfile.ZipFile(self._path) as archive, archive.open(f"{key}.npy") as member:
                # The header is checked against the member's length before anything is allocated.
                version = np.lib.format.read_magic(member)
                read_header = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read_header(member)
                if dtype.hasobject:
                    raise DataError(
                        f"{self._path}: array {key!r} holds Python objects, which are never "
                        "loaded; save it as numbers or text"
                    )
                if math.prod(shape) * dtype.itemsize > self._sizes[key]:
                    raise DataError(f"{self._path}: array {key!r} is truncated; save it again")
            with np.load(self._path, allow_pickle=False) as arrays:
                found: NDArray[np.generic] = arrays[key]
                return found
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(
                f"{self._path}: array {key!r} cannot be read ({error}); save it again"
            ) from error


def _as_pixels(array: NDArray[np.generic], path: Path) -> NDArray[np.uint8]:
    if array.ndim == 3:
        array = array[..., np.newaxis]
    if array.ndim != 4 or array.shape[3] not in (1, 3):
        raise DataError(
            f"{path}: images have shape {array.shape}; "
            "they must be (n, height, width) or (n, height, width, 1 or 3)"
        )
    if array.dtype == np.uint8:
        return array.astype(np.uint8)
    if array.dtype.kind in "iu":
        if array.size and not 0 <= int(array.min()) <= int(array.max()) <= 255:
            raise DataError(f"{path}: pixels lie outside 0 to 255")
        return array.astype(np.uint8)
    if array.dtype.kind != "f":
        raise DataError(
            f"{path}: images are {array.dtype}; they must be uint8, or floats in [0, 1]"
        )
    if np.isnan(array).any():
        raise DataError(f"{path}: images hold NaN; take those records out")
    # Compared one by one: infinity fails as well.
    if array.size and not (float(array.min()) >= 0.0 and float(array.max()) <= 1.0):
        raise DataError(
            f"{path}: pixels lie in [{array.min()}, {array.max()}]; scale them to [0, 1] or uint8"
        )
    return np.rint(array.astype(np.float64) * 255).astype(np.uint8)


def _flat(array: NDArray[np.generic], what: str, path: Path) -> NDArray[np.generic]:
    if array.ndim == 2 and array.shape[1] == 1:  # (n, 1), as MedMNIST has its labels
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{path}: {what} have shape {array.shape}; they must be one a record")
    return array


def _as_names(array: NDArray[np.generic], what: str, path: Path) -> list[str]:
    if array.dtype.kind in "iu":
        return [str(value) for value in array.tolist()]
    if array.dtype.kind == "b":
        return [str(int(value)) for value in array.tolist()]
    if array.dtype.kind == "f":
        if not np.isfinite(array.astype(np.float64)).all():
            raise DataError(f"{path}: {what} hold NaN or infinity; take those records out")
        return plain_names([repr(float(value)) for value in array.tolist()])
    if array.dtype.kind == "U":
        return [str(value) for value in array.tolist()]
    raise DataError(f"{path}: {what} are {array.dtype}; save them as numbers or text")
