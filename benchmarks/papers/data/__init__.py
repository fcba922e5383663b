"""The data sets of the rows, with the splits of the papers."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """Return the folder of the real data sets, PATE_TEST_DATA.

    Raises:
        SystemExit: if it is not there.
    """
    folder = os.environ.get("PATE_TEST_DATA")
    if not folder or not Path(folder, "mnist").is_dir():
        raise SystemExit("set PATE_TEST_DATA to the folder that holds the real data sets")
    return Path(folder)
