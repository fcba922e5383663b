"""Some inputs of an encoder in a process of its own, whose time and memory the kernel bounds.

ONNX Runtime cannot bound the memory of a graph, or end an operator that runs. So a graph is first opened and
run there: one that takes a minute for an input, all memory, or breaks the runtime, ends that process only.
What it takes there bounds what it may take for a record.
"""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.encoders.limit import seconds_of
from pate.errors import DataError
from pate.foreign import json_value
from pate.runtime.child import run_limited

if TYPE_CHECKING:
    from pathlib import Path

    from pate.encoders.description import Description

#: Processor seconds for opening a graph and one input.
MOST_SECONDS: Final = 20
#: Bytes of address space.
MOST_MEMORY: Final = 8 << 30
#: Wall-clock seconds, on a machine that has much other work.
_PATIENCE: Final = 300
#: What does it, in its own process.
_CHILD: Final = "pate.encoders.one_input:main"
#: By the digest of an encoder that was tried by this process: seconds that a record is granted.
_granted: dict[str, float] = {}


@dataclass(frozen=True)
class Trial:
    """What inputs took."""

    seconds: float  # processor time of the fastest run of an input
    slowest: float  # the same of the slowest
    opening: float  # processor time until the first input was finished
    memory: int  # largest resident memory of the process, bytes


def seconds_after(folder: Path, description: Description) -> float:
    """Return the processor seconds that a record is granted, after a trial; one in this process is enough."""
    if description.digest not in _granted:
        _granted[description.digest] = seconds_of(tried(folder).slowest)
    return _granted[description.digest]


def tried(folder: Path, seconds: int = MOST_SECONDS, memory: int = MOST_MEMORY) -> Trial:
    """Open an encoder in another process and run some inputs of the largest size.

    ``seconds`` of processor time are for opening it and one input; ``memory`` is of address space, in bytes.
    """
    what = f"the encoder in {folder}"
    try:
        done = run_limited(
            _CHILD, folder.resolve(), seconds, seconds=seconds, memory=memory, patience=_PATIENCE
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{what} did not finish some inputs in {_PATIENCE} s") from error
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise DataError(
            f"{what} takes more than {seconds} seconds of processor time to open and run one input"
        )
    try:
        said = json_value(done.stdout[-4096:])
        if "error" in said:
            raise DataError(str(said["error"]))
        return Trial(
            float(said["seconds"]),
            float(said["slowest"]),
            float(said["opening"]),
            int(said["memory"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        ended = f"code {done.returncode}" if done.returncode >= 0 else f"signal {-done.returncode}"
        raise DataError(
            f"{what} cannot be run: a process that tried it within {memory >> 30} GiB of memory ended "
            f"with {ended}"
        ) from error
