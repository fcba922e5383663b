from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from rich.console import Console

from pate.data.values import Dataset, Table
from pate.errors import DataError, SchemaError, UsageError
from pate.runtime.screen import Screen
from student.card import Provenance, write_card
from student.evaluation.evaluate import AnswersEvaluation, Evaluation, evaluate
from student.evaluation.fairness import Coverage, by_group
from student.evaluation.figures import Rate
from student.evaluation.scores import Question, score
from student.evaluation.words import hub_head
from student.export import write_evaluation
from student.output import confusion_grid, decision_grid, group_grid, measures_grid, tell_remarks
from tests.support.student_samples import STATEMENT, Parrot, counted
from tests.support.there import there


def data(said: NDArray[np.int64], truth: NDArray[np.int64], classes: tuple[str, ...]) -> Dataset:
    return Dataset(Table(("said",), (said.astype(np.float64),)), truth, classes)


def test_numbers_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import (
        accuracy_score,
        balanced_accuracy_score,
        confusion_matrix,
        recall_score,
    )

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
    fields = result.to_json()
    assert fields["groups"] == result.groups.to_json()
    assert fields["coverage"] == covered.to_json()
    # One patient a row is no group.
    patients = np.array([f"p{n}" for n in range(30)])
    alone = Dataset(whole.inputs.take([0] * 30), truth[[0] * 30], Parrot.classes, patients)
    assert evaluate(Parrot(), alone).groups is None


PROVENANCE = Provenance(
    "cd" * 16, "x", "ef" * 32, 900, 50, 0, {},
    Coverage(("class 0", "class 1"), (500, 400), (300, 40), (250, 90)),
)  # fmt: skip


def test_the_card_says_who_is_served_worse() -> None:
    confusion = {"sex = f": [[90, 10], [5, 95]], "sex = m": [[95, 5], [60, 40]]}
    groups = counted(confusion, ("class 0", "class 1"))
    result = Evaluation(groups.classes, np.sum([*confusion.values()], axis=0), groups)
    stated = STATEMENT | {"queries_asked": 700, "labels_released": 340}
    card = write_card(Parrot(), PROVENANCE, stated, result)
    assert "700 queries were voted on, and 340 labels were given" in card
    assert "| class 1 | 400 | 40 | 10.0% (7.4% to 13.3%) | 90 |" in card
    assert "**50.0 points more for class 0 than for class 1**" in card
    assert "| sex = m | 200 | 67.5%" in card
    assert "Accuracy: **25.0 points more for sex = f than for sex = m**" in card
    assert "How often it says" in card


def test_the_card_makes_no_gap_of_chance_and_says_nothing_of_what_it_does_not_know() -> None:
    confusion = {"a": [[9, 1], [1, 9]], "b": [[8, 2], [2, 8]]}
    groups = counted(confusion, ("no|", "yes"))
    result = Evaluation(groups.classes, np.sum([*confusion.values()], axis=0), groups)
    bare = Provenance("cd" * 16, "x", "ef" * 32, 900, 50, 0, {})
    card = write_card(Parrot(), bare, STATEMENT, result)
    assert "no larger than chance" in card
    assert "points more" not in card
    assert "Labels by class" not in card
    assert "no\\|" in card  # a class name cannot break a table
    assert "## Groups" not in write_card(Parrot(), bare, STATEMENT, None)


def head_of(card: str) -> dict[str, Any]:
    assert card.startswith("---\n")
    head = yaml.safe_load(card.split("---\n")[1])
    assert isinstance(head, dict)
    return head


def test_the_card_begins_with_what_model_hubs_read() -> None:
    # Names are others' text: nothing in them ends the head, or adds to it.
    evil = 'a" \n---\nlicense: mit\x85\u2028 {x: [\\ \U0001f600'
    named = replace(PROVENANCE, name=evil)
    result = Evaluation(("class 0", "class 1"), np.array([[90, 10], [5, 95]]), data=evil)
    head = head_of(write_card(Parrot(), named, STATEMENT, result))
    assert head["license"] == "unknown"
    assert head["pipeline_tag"] == "tabular-classification"
    assert {"pate", "differential-privacy"} <= set(head["tags"])
    (model,) = head["model-index"]
    shown = "".join(mark for mark in evil if mark.isprintable())
    assert model["name"] == f"Student of {shown}"
    (measured,) = model["results"]
    assert measured["dataset"]["name"] == shown
    assert measured["metrics"] == [{"type": "accuracy", "value": 0.925}]
    assert head["metrics"] == ["accuracy"]
    # Without figures there is no place for some.
    head = head_of(write_card(Parrot(), named, STATEMENT, None))
    assert not {"metrics", "model-index"} & set(head)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"accuracy": 0.5, "scores": {"auc": 0.75}}, {"accuracy": 0.5, "roc_auc": 0.75}),
        ({"accuracy": 0.5, "scores": {"auc": None}}, {"accuracy": 0.5}),
        ({"macro_auc": {"value": 0.9}, "macro_f1": 0.4}, {"roc_auc": 0.9, "f1": 0.4}),
        (
            {
                "macro_auc": None,
                "macro_f1": None,
                "mean_absolute_error": {"value": 3.0},
                "r2": None,
            },
            {"mae": 3.0},
        ),
    ],
)
def test_figures_of_each_answer_have_the_names_of_hubs(
    told: dict[str, Any], found: dict[str, float]
) -> None:
    head = yaml.safe_load(hub_head("x", "y", AnswersEvaluation(1, "", [], told)).strip("-\n"))
    (measured,) = head["model-index"][0]["results"]
    assert {each["type"]: each["value"] for each in measured["metrics"]} == found


def test_foreign_names_are_drawn_as_they_are_and_not_as_formulas(tmp_path: Path) -> None:
    names = ("$\\frac{$", "b$")
    write_evaluation(Evaluation(names, np.eye(2, dtype=np.int64)), tmp_path, "$\\x$ of a $")
    assert (tmp_path / "evaluation.png").exists()


#: A student of two classes whose input is its probability of the second.
SURE = Parrot(("benign", "malign|ant"), "table sure:number", "sure")


def sure(count: int, groups: NDArray[np.str_] | None = None) -> Dataset:
    generator = np.random.default_rng(3)
    truth = generator.integers(0, 2, count)
    known = np.clip(0.3 + 0.3 * truth + generator.normal(0, 0.2, count), 0, 1)
    return Dataset(Table(("sure",), (known,)), truth, SURE.classes, groups)


def test_patients_widen_the_intervals_and_are_counted() -> None:
    whole = sure(300)
    patients = np.array([f"p{n // 6}" for n in range(300)])
    alone, several = evaluate(SURE, whole), evaluate(SURE, whole, patients=patients)
    assert (alone.to_json()["patients"], several.to_json()["patients"]) == (None, 50)
    assert alone.accuracy == several.accuracy
    assert alone.right == Rate(int(np.trace(alone.confusion)), 300)
    assert several.right.independent is not None
    assert several.rates[0].independent is not None
    # Many groups are patients, too, and few are groups.
    many = evaluate(SURE, sure(300, patients))
    assert many.to_json() == several.to_json()
    assert many.groups is None
    few = evaluate(SURE, sure(300, np.array(["x", "y", "z"] * 100)), patients=patients)
    assert there(few.groups).accuracy["x"].independent is not None
    assert evaluate(SURE, sure(300, np.array(["x", "y", "z"] * 100))).patients is None


def test_the_positive_class_is_one_for_all_figures() -> None:
    whole = sure(300, np.array(["x", "y", "z"] * 100))
    second = evaluate(SURE, whole)
    first = evaluate(SURE, whole, question=Question("benign", 0.8))
    assert second.decision is None
    assert (second.positive, first.positive) == (1, 0)
    assert (there(second.groups).positive, there(first.groups).positive) == (1, 0)
    assert there(first.decision).threshold.positive == 0
    assert first.to_json()["positive_class"] == "benign"
    assert there(second.scores).bins[0].mean == pytest.approx(
        1 - there(first.scores).bins[-1].mean, abs=0.05
    )
    chosen = there(evaluate(SURE, whole, question=Question(at_sensitivity=0.9)).decision)
    assert (chosen.wanted, chosen.threshold.positive) == (0.9, 1)
    assert 0.9 <= (chosen.rates["sensitivity"].share or 0) < 0.92
    with pytest.raises(UsageError, match="this student has 3"):
        evaluate(
            Parrot(),
            data(np.arange(3), np.arange(3), Parrot.classes),
            question=Question(threshold=0.5),
        )


def rare(hits: int, wrong: int = 0, *, separate: bool = True) -> Dataset:
    """Return 285 benign inputs, some taken for the others, and 15 others, of which so many are found."""
    truth = np.repeat([0, 1], [285, 15])
    # The others' probabilities are above those of most benign ones, or the same.
    known = np.where(truth == 1, 0.4 if separate else 0.2, np.linspace(0.0, 0.4, 300))
    known[285 : 285 + hits] = 0.6
    known[:wrong] = 0.55
    return Dataset(Table(("sure",), (known,)), truth, SURE.classes)


HELPS = (
    "what helps to find more of 'malign|ant': choose a threshold, with PATH labelled data that you need "
    "for nothing else: `pate-student evaluate --model 'my student' --label diagnosis --data PATH "
    "--positive 'malign|ant' --at-sensitivity 0.8`"
)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            lambda: evaluate(SURE, rare(3)),
            [
                "finds 20.0% of 'malign|ant' (3 of 15), though its probabilities rank better than chance",
                "always saying 'benign' is as good: right for 95.0%, and the student for 96.0%",
                HELPS,
            ],
        ),
        # As good as a constant answer within its interval; no class is missed.
        (lambda: evaluate(SURE, rare(9, 4)), ["always saying 'benign' is as good", HELPS]),
        (
            lambda: evaluate(SURE, rare(9, 40)),
            [
                "always saying 'benign' is as good or better: right for 95.0%, and the student for 84.7%",
                HELPS,
            ],
        ),
        (
            lambda: evaluate(SURE, rare(0, separate=False)),
            ["finds 0.0% of 'malign|ant' (0 of 15)", "always", "no threshold helps"],
        ),
        (
            lambda: evaluate(
                Parrot(), data(np.zeros(90, dtype=np.int64), np.arange(90) % 3, Parrot.classes)
            ),
            [
                "finds less than half of 2 of 3 classes ('b': 0.0%, 'c': 0.0%)",
                "always saying 'a' is as good",
                "what helps: another campaign, with more labels of these classes",
            ],
        ),
        (lambda: evaluate(SURE, sure(300)), []),
        # One class only: any answer about the other one would be unfounded.
        (lambda: evaluate(SURE, sure(300).take(np.flatnonzero(sure(300).labels == 1))), []),
    ],
    ids=["rare", "constant", "better", "no rank", "three classes", "good", "one class"],
)
def test_what_the_accuracy_conceals_is_said_with_what_helps(
    found: Callable[[], Evaluation], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    result = found()
    command = {"model": "my student", "label": "diagnosis", "encoder": None}
    tell_remarks(result, command, Screen("pate-student"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(said)
    for line, words in zip(lines, said, strict=True):
        assert words in line
    assert result.to_json()["remarks"] == result.remarks
    card = write_card(SURE, PROVENANCE, STATEMENT, result)
    assert card.count("Always saying") == sum("always" in each for each in said)
    assert ("A threshold finds more of that class" in card) == (len(said) == 3 and HELPS in said)


def test_the_card_has_scores_with_the_name_and_size_of_the_data() -> None:
    patients = np.array([f"p{n // 6}" for n in range(300)])
    result = evaluate(SURE, sure(300), name="a*b.csv", patients=patients)
    assert result.scores is not None
    card = write_card(SURE, PROVENANCE, STATEMENT, result)
    assert "of 300 inputs right, mean recall of the classes" in card
    assert "(a\\*b.csv; 50 patients, whom the intervals count)" in card
    area = there(result.scores.area)
    low, high = area.interval or (0, 0)
    assert f"| AUC | {area.value:.3f} | {low:.3f} to {high:.3f} | 0.5: chance |" in card
    scores = result.scores
    assert f"| Brier score | {scores.brier:.3f} |  | {scores.brier_of_shares:.3f}: class" in card
    assert "add `--positive CLASS --threshold" in card
    three = evaluate(Parrot(), data(np.array([0, 1, 1]), np.array([0, 1, 0]), Parrot.classes))
    card = write_card(Parrot(), PROVENANCE, STATEMENT, three)
    assert "| AUC, mean over classes |" in card
    assert "AUC: without c, absent here." in card
    assert "--threshold" not in card
    zeros = np.zeros(3, dtype=np.int64)
    one = evaluate(Parrot(), data(zeros, zeros, Parrot.classes))
    assert "| none |  | all labels are of one class |" in write_card(
        Parrot(), PROVENANCE, STATEMENT, one
    )
    # Evaluations without probabilities, as counts give them, have a card, too.
    bare = write_card(Parrot(), PROVENANCE, STATEMENT, Evaluation(("a", "b"), np.eye(2, dtype=int)))
    assert "Brier" not in bare


def test_the_screen_shows_names_as_they_are() -> None:
    classes = ("[/no]", "[bold]yes")
    truth = np.arange(80) % 2
    names = np.array(["[/a]", "b"])[truth]
    made = Evaluation(
        classes,
        np.array([[40, 0], [39, 1]]),
        by_group(names, truth, np.append(np.zeros(79, dtype=np.int64), 1), classes),
        data="[/x].csv",
        scores=score(np.full((80, 2), 0.5), truth, classes),
        decision=Question(threshold=0.5).decision(np.full((80, 2), 0.5), truth, classes),
    )
    text = io.StringIO()
    grids = confusion_grid(made), group_grid(there(made.groups)), measures_grid(made)
    for grid in (*grids, decision_grid(there(made.decision))):
        Console(file=text, width=100).print(grid)
    shown = text.getvalue()
    for name in (*classes, "[/a] above b by", "80 inputs of [/x].csv", "predicting [bold]yes"):
        assert name in shown
