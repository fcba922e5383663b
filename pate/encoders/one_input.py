"""The process of :mod:`pate.encoders.trial`."""

from __future__ import annotations

import json
import math
import resource
import sys
import time
from pathlib import Path
from typing import Any, Final

from pate.data.odd import UnusableRecordError
from pate.encoders.encoder import Encoder
from pate.errors import PateError
from pate.runtime.child import grant

#: Runs of each input: the first of a process is the slowest.
_RUNS: Final = 3


def run(folder: Path, seconds: int) -> dict[str, Any]:
    """Run some inputs in a bounded process; return the fields of a ``Trial``, or ``error``."""
    began = time.process_time()
    try:
        encoder = Encoder.open(folder, trial=False, seconds=math.inf)
        first, *others = encoder.trial_inputs()
        encoder.row(first)
        opened = time.process_time()
        took = []
        for each in (first, *others) * _RUNS:
            grant(seconds)
            start = time.process_time()
            encoder.row(each)
            took.append(time.process_time() - start)
    except UnusableRecordError as error:
        return {"error": f"the encoder in {folder} cannot embed a trial input: {error}"}
    except PateError as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": f"the encoder in {folder} needs more memory than it may take"}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": min(took),
        "slowest": max(took),
        "opening": opened - began,
        "memory": peak if sys.platform == "darwin" else peak * 1024,
    }


def main() -> None:
    """Run the trial of the command line: a folder, and seconds."""
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]))))  # noqa: T201
