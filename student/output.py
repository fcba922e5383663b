"""Output of ``pate-student``: tables on the screen, and predictions as a file."""

from __future__ import annotations

import csv
import io
from collections import Counter
from typing import TYPE_CHECKING

from pate.runtime.command import print_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table as Grid

    from pate.formats.labels import LabelSet
    from pate.runtime.screen import Screen
    from student.evaluate import Evaluation
    from student.fairness import Groups
    from student.session import Published
    from student.trainers.base import Student

#: Most columns of a confusion matrix on the screen; the files have all.
_SHOWN_CLASSES = 20


def confusion_grid(result: Evaluation) -> Grid:
    """Return a table: one row per true class, one column per predicted class, and the recall."""
    from rich.table import Table

    grid = Table(title="true class down, predicted across", title_justify="left")
    grid.add_column("class", style="bold")
    for name in result.classes[:_SHOWN_CLASSES]:
        grid.add_column(name, justify="right")
    grid.add_column("inputs", justify="right")
    grid.add_column("recall", justify="right")
    for name, row, recall in zip(result.classes, result.confusion, result.recalls, strict=True):
        cells = [str(count) if count else "·" for count in row.tolist()[:_SHOWN_CLASSES]]
        share = "absent" if recall is None else f"{recall:.1%}"
        grid.add_row(name, *cells, str(row.sum()), share)
    return grid


def group_grid(groups: Groups) -> Grid:
    """Return a table: one row per group, with the 95 % interval of its accuracy."""
    from rich.table import Table

    grid = Table(title="groups", title_justify="left")
    for name in ("group", "inputs", "accuracy", "95 %"):
        grid.add_column(name, justify="left" if name == "group" else "right")
    for name, rate in groups.accuracy.items():
        low, high = rate.interval()
        grid.add_row(name, str(rate.count), f"{rate.share:.1%}", f"{low:.1%} to {high:.1%}")
    gap = groups.gaps()["accuracy"]
    if gap is not None and gap.told:
        grid.caption = f"{gap.higher} above {gap.lower} by {100 * gap.low:.1f} points or more"
    else:
        grid.caption = "differences are no larger than chance makes them"
    return grid


def tell_published(
    published: Published, labels: LabelSet, out: Path, screen: Screen, *, as_json: bool
) -> None:
    """Report the published files and their guarantee."""
    from pate.formats.labels import checked_statement
    from pate.formats.privacy_statement import (
        do_records_vote,
        in_words,
        neighbours_of,
        series_of,
    )

    statement = checked_statement(labels.privacy)
    terms = ("epsilon", "delta", "unit", "adjacency", "observer")
    result = published.evaluation
    if as_json:
        print_json(
            {
                "out": str(out),
                "files": list(published.files),
                "labels": len(labels.rows),
                "seconds": round(published.seconds, 2),
                **{key: statement[key] for key in terms},
                "evaluation": None if result is None else result.to_json(),
            }
        )
        return
    if result is not None:
        screen.say(f"{result.accuracy:.2%} of {result.count} test inputs right")
    epsilon, delta = float(str(statement["epsilon"])), float(str(statement["delta"]))
    unit, observer = str(statement["unit"]), str(statement["observer"])
    among = neighbours_of(
        unit,
        records_vote=do_records_vote(statement["mechanism"]),
        series=series_of(statement),
    )
    words = in_words(epsilon, delta, unit, observer, neighbours=among)
    screen.say(f"published in {out}: {len(labels.rows)} labels, {words}")


def tell_few_labels(labels: LabelSet, screen: Screen) -> None:
    """Warn, before training, about classes with few labels or none, with a remedy."""
    from pate.campaign.choices import UNITS
    from pate.campaign.outlook import classes_in_words, plan_command
    from pate.formats.labels import checked_statement
    from pate.formats.privacy_statement import do_records_vote

    counts = Counter(row.label for row in labels.rows)
    each = [counts[label] for label in range(len(labels.classes))]
    voting = labels.noisy is not None
    words = classes_in_words(each, labels.classes, noisy_counts=voting)
    if not words:
        return
    screen.say(f"{len(labels.rows)} labels: {words}", "warning")
    statement = checked_statement(labels.privacy)
    numbers: dict[str, object] = {"classes": len(labels.classes)}
    if do_records_vote(statement["mechanism"]):
        helps, command = "more records, fewer --representatives, or more epsilon", "plan-neighbour"
    else:
        helps, command = "more teachers, more epsilon, or neighbour votes", "plan"
        numbers = {"mechanism": _planned(statement["mechanism"])} | numbers
        numbers |= {"teachers": _count(statement.get("teachers")), "queries": labels.queries}
    numbers |= {key: float(str(statement[key])) for key in ("epsilon", "delta")}
    numbers["unit"] = unit if (unit := statement["unit"]) in UNITS else None
    if unit == "party":
        numbers["votes-per-unit"] = _count(_first(statement["mechanism"]).get("votes_per_unit"))
    screen.say(
        f"what helps, in another campaign: {helps}; other numbers can be tried with "
        f"{plan_command(numbers, f'pate {command}')}"
    )


def _count(number: object) -> int | None:
    """Return a whole number; None for anything else, which a command to be copied must not contain."""
    return number if type(number) is int else None


def _first(mechanism: object) -> Mapping[str, object]:
    """Return a statement's first mechanism, or an empty one."""
    first = mechanism[0] if isinstance(mechanism, list) and mechanism else None
    return first if isinstance(first, dict) else {}


def _planned(mechanism: object) -> str | None:
    """Return the name of a statement's mechanism in `pate plan`, None if unknown there."""
    from pate.campaign.choices import AGGREGATORS

    name = str(_first(mechanism).get("mechanism")).removeprefix("distributed-")
    return name if name in AGGREGATORS else None


def predictions_csv(student: Student, probabilities: NDArray[np.float32]) -> bytes:
    """Return predictions as a CSV file.

    Args:
        student: that made them.
        probabilities: (n, m).
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "predicted", *(f"probability of {name}" for name in student.classes)])
    for number, (row, best) in enumerate(
        zip(probabilities.tolist(), probabilities.argmax(axis=1).tolist(), strict=True)
    ):
        writer.writerow([number, student.classes[best], *(f"{cell:.6f}" for cell in row)])
    return text.getvalue().encode()
