"""One input of an encoder in a process of its own, whose time and memory the kernel bounds.

ONNX Runtime cannot bound the memory of a graph, or end an operator that runs. So a graph is first opened and
run there: one that takes a minute for an input, all memory, or breaks the runtime, ends that process only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.errors import DataError
from pate.foreign import json_value

if TYPE_CHECKING:
    from pathlib import Path

    from pate.encoders.description import Description

#: Processor seconds for opening a graph and one input.
MOST_SECONDS: Final = 20
#: Bytes of address space.
MOST_MEMORY: Final = 8 << 30
#: Wall-clock seconds, on a machine that has much other work.
_PATIENCE: Final = 300
#: The module that does it, in its own process.
_CHILD: Final = "pate.encoders.one_input"
#: Digests of encoders that were tried by this process.
_tried: set[str] = set()


@dataclass(frozen=True)
class Trial:
    """What one input took.

    Attributes:
        seconds: processor time of one input, after the first.
        opening: processor time until the first input was finished.
        memory: largest resident memory of the process, bytes.
    """

    seconds: float
    opening: float
    memory: int


def require_runs(folder: Path, description: Description) -> None:
    """Try an encoder, unless this process has done so.

    Raises:
        DataError: as :func:`tried`.
    """
    if description.digest not in _tried:
        tried(folder)
        _tried.add(description.digest)


def tried(folder: Path, seconds: int = MOST_SECONDS, memory: int = MOST_MEMORY) -> Trial:
    """Open an encoder in another process and run one input of the largest size.

    Args:
        folder: of the encoder.
        seconds: most processor time.
        memory: most bytes of address space.

    Raises:
        DataError: if it takes more than that, or the graph cannot be run.
    """
    command = [sys.executable, "-m", _CHILD, str(folder.resolve()), str(seconds), str(memory)]
    what = f"the encoder in {folder}"
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PATIENCE, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{what} did not finish one input in {_PATIENCE} s") from error
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise DataError(
            f"{what} takes more than {seconds} seconds of processor time to open and run one input"
        )
    try:
        said = json_value(done.stdout[-4096:])
        if "error" in said:
            raise DataError(str(said["error"]))
        return Trial(float(said["seconds"]), float(said["opening"]), int(said["memory"]))
    except (ValueError, TypeError, KeyError) as error:
        ended = f"code {done.returncode}" if done.returncode >= 0 else f"signal {-done.returncode}"
        raise DataError(
            f"{what} cannot be run: a process that tried it within {memory >> 30} GiB of memory ended "
            f"with {ended}"
        ) from error
