from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pate.data.read import read_dataset, read_inputs
from pate.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file or folder at"):
        read_dataset(tmp_path / "absent")


def test_nothing_readable(tmp_path: Path) -> None:
    (tmp_path / "notes.doc").write_text("x")
    for read in (read_dataset, read_inputs):
        with pytest.raises(DataError, match="holds nothing that can be read; use"):
            read(tmp_path)
        with pytest.raises(DataError, match=r"notes.doc is of no format"):
            read(tmp_path / "notes.doc")


def test_several_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((1, 2, 2), np.uint8))
    (tmp_path / "b.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match=r"several data files \(a.npz, b.csv\)"):
        read_inputs(tmp_path)


def test_an_empty_public_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((0, 2, 2), np.uint8))
    with pytest.raises(DataError, match="no records"):
        read_inputs(tmp_path)
