from __future__ import annotations

import numpy as np
import pytest

from pate.data.records import require_trainable
from pate.data.values import Dataset, Images
from pate.errors import DataError, UsageError


def dataset(labels: list[int], groups: list[str] | None = None) -> Dataset:
    return Dataset(
        Images(np.zeros((len(labels), 2, 2, 1), np.uint8)),
        np.array(labels, np.int64),
        ("a", "b"),
        None if groups is None else np.array(groups, dtype=np.str_),
    )


def test_enough_of_everything_passes() -> None:
    require_trainable(dataset([0, 1, 0]), 3)
    require_trainable(dataset([0, 1, 0], ["x", "x", "y"]), 2)


def test_one_class_only() -> None:
    with pytest.raises(DataError, match="one class only, 'b'"):
        require_trainable(dataset([1, 1, 1]), 2)


def test_no_records() -> None:
    with pytest.raises(DataError, match="no records"):
        require_trainable(dataset([]), 1)


def test_fewer_records_than_teachers() -> None:
    with pytest.raises(DataError, match="3 records for 4 teachers; ask for at most 3"):
        require_trainable(dataset([0, 1, 0]), 4)


def test_groups_count_instead_of_records() -> None:
    with pytest.raises(DataError, match="2 groups for 3 teachers"):
        require_trainable(dataset([0, 1, 0], ["x", "x", "y"]), 3)


def test_no_teachers() -> None:
    with pytest.raises(UsageError, match="1 or more"):
        require_trainable(dataset([0, 1]), 0)
