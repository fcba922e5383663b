"""``python -m pate.encoders.one_input FOLDER SECONDS BYTES``: the process of :mod:`pate.encoders.trial`."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from pate.encoders.encoder import Encoder, UnusableRecordError
from pate.errors import PateError


def run(folder: Path, seconds: int, memory: int) -> dict[str, Any]:
    """Open an encoder and run one input twice, within bounds on this process, which ends after it.

    Args:
        folder: of the encoder.
        seconds: of processor time, after which the kernel ends this process.
        memory: most bytes of address space.

    Returns:
        The fields of :class:`pate.encoders.trial.Trial`, or ``error``.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    began = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(began) + seconds, int(began) + seconds + 2))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        encoder = Encoder.open(folder, trial=False)
        encoder.row(encoder.blank())
        opened = time.process_time()
        encoder.row(encoder.blank())
    except UnusableRecordError as error:
        return {"error": f"the encoder in {folder} cannot embed a trial input: {error}"}
    except PateError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": f"the encoder in {folder} needs more than {memory >> 30} GiB of memory"}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": time.process_time() - opened,
        "opening": opened - began,
        "memory": peak if sys.platform == "darwin" else peak * 1024,
    }


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))  # noqa: T201
