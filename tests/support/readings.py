"""What tests look at of records that were read: pixels, columns, rows of an encoder, groups and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pate.data.embeddings import Embeddings
from pate.data.values import Dataset, Images, Table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pate.data.encoded import Raw
    from pate.data.values import Column, Inputs


def pixels_of(found: Dataset | Inputs) -> NDArray[np.uint8]:
    inputs = found.inputs if isinstance(found, Dataset) else found
    assert isinstance(inputs, Images)
    return inputs.pixels


def columns_of(found: Dataset | Inputs) -> tuple[Column, ...]:
    inputs = found.inputs if isinstance(found, Dataset) else found
    assert isinstance(inputs, Table)
    return inputs.columns


def rows_of(found: Dataset | Inputs) -> NDArray[np.int16]:
    inputs = found.inputs if isinstance(found, Dataset) else found
    assert isinstance(inputs, Embeddings)
    return inputs.values


def groups_of(found: Dataset | Raw) -> list[str]:
    assert found.groups is not None
    made: list[str] = found.groups.tolist()
    return made


def answers_of(found: Dataset) -> Any:
    assert found.answers is not None
    return found.answers.tolist()
