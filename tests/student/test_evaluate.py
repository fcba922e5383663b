from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, recall_score

from pate.data.values import Dataset, Inputs, Table
from pate.errors import DataError, SchemaError
from student.evaluate import Evaluation, draw, evaluate

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class Parrot:
    """A student whose predictions are a column of its input."""

    kind = "parrot"
    classes = ("a", "b", "c")
    schema = "table said:number"

    def predict(self, inputs: Inputs) -> NDArray[np.int64]:
        assert isinstance(inputs, Table)
        return np.asarray(inputs.columns[0]).astype(np.int64)

    def predict_probabilities(self, inputs: Inputs) -> NDArray[np.float32]:
        return np.eye(3, dtype=np.float32)[self.predict(inputs)]


def data(said: NDArray[np.int64], truth: NDArray[np.int64], classes: tuple[str, ...]) -> Dataset:
    return Dataset(Table(("said",), (said.astype(np.float64),)), truth, classes)


def test_numbers_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    said, truth = generator.integers(0, 3, (2, 500))
    result = evaluate(Parrot(), data(said, truth, Parrot.classes))
    assert result.accuracy == pytest.approx(accuracy_score(truth, said))
    assert result.balanced_accuracy == pytest.approx(balanced_accuracy_score(truth, said))
    assert np.array_equal(result.confusion, confusion_matrix(truth, said))
    assert result.recalls == pytest.approx(recall_score(truth, said, average=None))
    assert result.to_json()["count"] == 500


def test_fewer_classes_in_another_order() -> None:
    said, truth = np.array([0, 2, 2]), np.array([1, 0, 0])
    result = evaluate(Parrot(), data(said, truth, ("c", "a")))
    assert result.accuracy == 1.0
    assert result.recalls == [1.0, None, 1.0]


def test_refuses_other_classes_and_no_rows() -> None:
    one = np.zeros(1, dtype=np.int64)
    with pytest.raises(SchemaError, match="z"):
        evaluate(Parrot(), data(one, one, ("z", "a")))
    with pytest.raises(DataError, match="no rows"):
        evaluate(Parrot(), data(one[:0], one[:0], ("a",)))


@pytest.mark.parametrize("size", [2, 10, 40])
def test_the_drawing_has_ink(size: int, tmp_path: Path) -> None:
    confusion = np.eye(size, dtype=np.int64) * 9
    confusion[0] = 0
    draw(Evaluation(tuple(f"class {n}" for n in range(size)), confusion), tmp_path / "it.png")
    with Image.open(tmp_path / "it.png") as image:
        assert min(image.size) > 400
        assert np.asarray(image.convert("L")).std() > 10
