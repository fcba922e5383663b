"""Arrays as safetensors, with validation on reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from party.teachers.protocol import DamagedTeacherError
from party.teachers.schema import ImageSchema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


def dump(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """Return named arrays as one safetensors file."""
    from safetensors.numpy import save

    content: bytes = save({name: np.ascontiguousarray(loaded) for name, loaded in arrays.items()})
    return content


def load(content: bytes, names: Sequence[str] | None) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a safetensors file, which must be exactly those named if any are.

    Raises:
        DamagedTeacherError: if it is not such a file, or has NaN.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as load_arrays

    try:
        loaded: dict[str, NDArray[np.generic]] = load_arrays(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamagedTeacherError("its tensors cannot be read") from error
    if names is not None and loaded.keys() != set(names):
        raise DamagedTeacherError("the names of its tensors")
    if not all(np.isfinite(array.astype(np.float64)).all() for array in loaded.values()):
        raise DamagedTeacherError("its tensors have NaN")
    return loaded


def image_size(facts: Mapping[str, object]) -> ImageSchema:
    """Return the image size among a stored teacher's facts.

    Raises:
        DamagedTeacherError: if there is none.
    """
    size = facts.get("size")
    if not isinstance(size, list) or [type(side) for side in size] != [int, int, int]:
        raise DamagedTeacherError("its image size")
    return ImageSchema((size[0], size[1], size[2]))
