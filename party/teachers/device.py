"""Where models run: on the processor, or on a GPU through PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

#: What ``--device`` takes.
DEVICES: Final = ("auto", "cpu", "cuda")
#: One of these is there where an NVIDIA driver is: on Linux, and on Windows' Linux subsystem.
_DRIVER: Final = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


def pick_device(wanted: str) -> str:
    """Return ``cpu`` or ``cuda`` for ``auto``, ``cpu`` or ``cuda``.

    PyTorch takes seconds to load, so it is asked only where a GPU may be.

    Raises:
        UsageError: if CUDA is asked for and not there, or the name is none of the three.
    """
    if wanted not in DEVICES:
        raise UsageError(f"--device {wanted!r} is none of {', '.join(DEVICES)}")
    if wanted == "cpu" or (wanted == "auto" and not any(path.exists() for path in _DRIVER)):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        raise UsageError("--device cuda, but PyTorch finds no CUDA device; use auto or cpu")
    return "cpu"


def product(features: Floats, weights: Floats, device: str) -> Floats:
    """Return ``features @ weights`` in single precision, computed on a device.

    Args:
        features: (n, d).
        weights: (d, c).
        device: ``cpu`` or ``cuda``.
    """
    found: Floats
    if device == "cpu":
        found = np.matmul(features, weights, dtype=np.float32)
        return found
    import torch

    # PyTorch warns of arrays that must not be written, such as features that are kept.
    left, right = (torch.from_numpy(np.array(part)).to(device) for part in (features, weights))
    found = (left @ right).cpu().numpy()
    return found
