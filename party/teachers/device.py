"""The device of models: the CPU, or a GPU through PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

#: Values of ``--device``.
DEVICES: Final = ("auto", "cpu", "cuda")
#: One of these exists if there is an NVIDIA driver: on Linux, and in WSL.
_DRIVER: Final = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


def pick_device(wanted: str) -> str:
    """Return ``cpu`` or ``cuda`` for ``auto``, ``cpu`` or ``cuda``.

    PyTorch takes seconds to load, so it is used only if there may be a GPU.

    Raises:
        UsageError: if CUDA is requested but unavailable, or for an unknown name.
    """
    if wanted not in DEVICES:
        raise UsageError(f"--device {wanted!r} is not one of {', '.join(DEVICES)}")
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

    # PyTorch warns about read-only arrays, such as cached features.
    left, right = (torch.from_numpy(np.array(part)).to(device) for part in (features, weights))
    found = (left @ right).cpu().numpy()
    return found
