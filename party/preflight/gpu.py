"""Check for a GPU that PyTorch can use."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from pate.foreign import json_value
from pate.preflight import Finding
from pate.runtime.child import python, python_environment

#: One of these exists if there is an NVIDIA driver: on Linux, and in WSL.
_DRIVER: Final = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
_QUERY: Final = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
_SMI_S: Final = 10.0
#: PyTorch takes seconds to load, and longer on a busy machine.
TORCH_S: Final = 60.0


def check_gpu(device: str, *, smi: str | None = None) -> Finding:
    """Look for a GPU; ``device`` is that of ``--device``, ``smi`` the path of ``nvidia-smi``."""
    if device == "cpu":
        return Finding.skipped("--device cpu: none is used")
    smi = smi or shutil.which("nvidia-smi")
    if smi is None and not any(path.exists() for path in _DRIVER):
        if device == "cuda":
            return Finding.warning(
                "--device cuda, and there is no NVIDIA driver here", "install one, or --device cpu"
            )
        return Finding.ok("none here: networks are trained on the processor")
    card = "a driver, and no nvidia-smi to ask" if smi is None else _from_driver(smi)
    try:
        torch = ask_torch()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        why = error if isinstance(error, ValueError) else type(error).__name__
        return Finding.warning(
            f"{card}; PyTorch was not to be asked: {why}", "install PyTorch again"
        )
    version, cuda, seen = torch["torch"], torch["cuda"], torch["seen"]
    if seen:
        cards = ", ".join(f"{name} ({memory / 2**30:.0f} GiB)" for name, memory in seen)
        return Finding.ok(f"PyTorch {version} sees {cards}; {card}")
    reason = (
        f"PyTorch {version} is built without CUDA"
        if cuda is None
        else f"PyTorch {version} (CUDA {cuda}) sees none: is the driver too old?"
    )
    return Finding.warning(
        f"{card}; {reason}", "install a PyTorch and a driver that fit, or --device cpu"
    )


def _from_driver(smi: str) -> str:
    """Return the driver's description of its cards."""
    try:
        said = subprocess.run(
            [smi, *_QUERY], capture_output=True, text=True, timeout=_SMI_S, check=True
        ).stdout
        rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line]
        cards = ", ".join(f"{name} ({int(memory) / 1024:.0f} GiB)" for name, memory, _ in rows)
        return f"driver {rows[0][2]}: {cards}" if rows else "the driver names no card"
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return f"nvidia-smi fails ({type(error).__name__})"


def ask_torch() -> dict[str, Any]:
    """Return PyTorch's version, CUDA's (None without), and the cards that it sees."""
    said = subprocess.run(
        python(__name__),
        env=python_environment(),
        capture_output=True,
        text=True,
        timeout=TORCH_S,
        check=False,
    )
    lines, errors = said.stdout.splitlines(), said.stderr.strip().splitlines()
    try:
        found: dict[str, Any] = json_value(lines[-1])
    except (ValueError, IndexError):
        raise ValueError(errors[-1] if errors else "no answer") from None
    return found


def _answer() -> None:
    """Print what PyTorch sees, in the process that is asked: a driver that hangs must not block the check."""
    import torch

    seen = [torch.cuda.get_device_properties(at) for at in range(torch.cuda.device_count())]
    answer = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "seen": [[each.name, each.total_memory] for each in seen],
    }
    print(json.dumps(answer))  # noqa: T201


if __name__ == "__main__":
    _answer()
