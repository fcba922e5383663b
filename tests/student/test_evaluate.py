from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, recall_score

from pate.data.values import Dataset, Inputs, Table
from pate.errors import DataError, SchemaError
from student.card import Provenance, write_card
from student.evaluate import Evaluation, draw, evaluate
from student.export import write_evaluation
from student.fairness import Coverage, Groups, Rate
from tests.support.student_samples import STATEMENT

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
    fields = result.to_json()
    assert fields["count"] == 500
    assert fields["groups"] is fields["coverage"] is None
    interval = Rate(int(result.confusion[0, 0]), int(result.confusion[0].sum())).interval()
    assert fields["recall_interval"]["a"] == list(interval)  # type: ignore[index]


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


def test_groups_of_the_data_are_told_apart() -> None:
    said, truth = np.array([0, 1, 2, 2, 0, 0]), np.array([0, 1, 2, 1, 0, 1])
    names = np.array(["x", "x", "x", "y", "y", "y"])
    whole = data(said, truth, Parrot.classes)
    covered = Coverage(Parrot.classes, (3, 2, 1), (1, 2, 0), (3, 0, 0))
    result = evaluate(
        Parrot(), Dataset(whole.inputs, truth, Parrot.classes, names), coverage=covered
    )
    assert result.groups is not None
    assert result.groups.accuracy == {"x": Rate(3, 3), "y": Rate(1, 3)}
    assert np.array_equal(result.groups.confusion.sum(axis=0), result.confusion)
    fields = result.to_json()
    assert fields["groups"] == result.groups.to_json()
    assert fields["coverage"] == covered.to_json()
    # One patient a row is no group.
    patients = np.array([f"p{n}" for n in range(30)])
    alone = Dataset(whole.inputs.take([0] * 30), truth[[0] * 30], Parrot.classes, patients)
    assert evaluate(Parrot(), alone).groups is None


def groups_of(size: int, names: tuple[str, ...]) -> Groups:
    generator = np.random.default_rng(2)
    confusion = generator.integers(1, 60, (len(names), size, size)) + 60 * np.eye(size, dtype=int)
    return Groups(names, tuple(f"class {n}" for n in range(size)), confusion.astype(np.int64))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "more"), [(2, True), (10, False), (27, True)])
def test_the_drawing_has_ink(size: int, more: bool, tmp_path: Path) -> None:
    confusion = np.eye(size, dtype=np.int64) * 9
    confusion[0] = 0
    names = tuple(f"class {n}" for n in range(size))
    plain = Evaluation(names, confusion)
    draw(plain, tmp_path / "it.png")
    with Image.open(tmp_path / "it.png") as image:
        assert min(image.size) > 400
        assert np.asarray(image.convert("L")).std() > 10
        width, height = image.size
    if not more:
        return
    counts = tuple(range(size))
    covered = Coverage(names, counts, tuple(n // 2 for n in counts), counts)
    groups = groups_of(size, ("a group of a long name that is cut off somewhere", "b"))
    draw(Evaluation(names, confusion, groups, covered), tmp_path / "all.png")
    with Image.open(tmp_path / "all.png") as image:
        assert image.size[1] > height  # the groups are below
        assert image.size[0] > width  # the labels are at the side
        below = np.asarray(image.convert("L"))[height:]
        assert below.std() > 5


PROVENANCE = Provenance(
    "cd" * 16, "x", "ef" * 32, 900, 50, 0, {},
    Coverage(("class 0", "class 1"), (500, 400), (300, 40), (250, 90)),
)  # fmt: skip


def test_the_card_says_who_is_served_worse() -> None:
    confusion = np.array([[[90, 10], [5, 95]], [[95, 5], [60, 40]]])
    groups = Groups(("sex = f", "sex = m"), ("class 0", "class 1"), confusion)
    result = Evaluation(groups.classes, confusion.sum(axis=0), groups)
    stated = STATEMENT | {"queries_asked": 700, "labels_released": 340}
    card = write_card(Parrot(), PROVENANCE, stated, result)
    assert "700 queries were voted on, and 340 labels were given" in card
    assert "| class 1 | 400 | 40 | 10.0% (7.4% to 13.3%) | 90 |" in card
    assert "**50.0 points more for class 0 than for class 1**" in card
    assert "| sex = m | 200 | 67.5%" in card
    assert "Accuracy: **25.0 points more for sex = f than for sex = m**" in card
    assert "How often it says" in card


def test_the_card_says_who_voted() -> None:
    bare = Provenance("cd" * 16, "x", "ef" * 32, 900, 50, 0, {})
    of_records = STATEMENT | {"mechanism": [{"mechanism": "distributed-neighbour"}]}
    card = write_card(Parrot(), bare, of_records, None)
    assert "neighbour votes" in card
    assert "50 from the records' noisy votes" in card
    assert "teachers" not in card
    card = write_card(Parrot(), bare, STATEMENT, None)
    assert "A classifier of kind parrot" in card
    assert "50 from the teachers' noisy votes" in card


def test_the_card_makes_no_gap_of_chance_and_says_nothing_of_what_it_does_not_know() -> None:
    confusion = np.array([[[9, 1], [1, 9]], [[8, 2], [2, 8]]])
    groups = Groups(("a", "b"), ("no|", "yes"), confusion)
    result = Evaluation(groups.classes, confusion.sum(axis=0), groups)
    bare = Provenance("cd" * 16, "x", "ef" * 32, 900, 50, 0, {})
    card = write_card(Parrot(), bare, STATEMENT, result)
    assert "no larger than chance" in card
    assert "points more" not in card
    assert "Labels by class" not in card
    assert "no\\|" in card  # a class name cannot break a table
    assert "## Groups" not in write_card(Parrot(), bare, STATEMENT, None)


def test_foreign_names_are_drawn_as_they_are_and_not_as_formulas(tmp_path: Path) -> None:
    names = ("$\\frac{$", "b$")
    write_evaluation(Evaluation(names, np.eye(2, dtype=np.int64)), tmp_path, "$\\x$ of a $")
    assert (tmp_path / "evaluation.png").exists()
