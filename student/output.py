"""Output of ``pate-student``: tables on the screen, and predictions as a file."""

from __future__ import annotations

import csv
import io
from collections import Counter
from shlex import quote
from typing import TYPE_CHECKING

from pate.runtime.command import print_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table as Grid

    from pate.data.values import Inputs
    from pate.formats.labels import LabelSet
    from pate.runtime.screen import Screen
    from student.evaluation.evaluate import AnyEvaluation, Evaluation
    from student.evaluation.fairness import Groups
    from student.evaluation.scores import Decision
    from student.fit.rows import TableStudent
    from student.session import Published

#: Most columns of a confusion matrix on the screen; the files have all.
_SHOWN_CLASSES = 20


def confusion_grid(result: Evaluation, when: str = "") -> Grid:
    """Return a table of true by predicted classes, with recall; ``when`` ends its title."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=f"true class down, predicted across{when}", title_justify="left")
    grid.add_column("class", style="bold")
    for name in result.classes[:_SHOWN_CLASSES]:
        # Names are others' and never markup, here and below.
        grid.add_column(Text(name), justify="right")
    grid.add_column("inputs", justify="right")
    grid.add_column("recall", justify="right")
    for name, row, recall in zip(result.classes, result.confusion, result.recalls, strict=True):
        cells = [str(count) if count else "·" for count in row.tolist()[:_SHOWN_CLASSES]]
        share = "absent" if recall is None else f"{recall:.1%}"
        grid.add_row(Text(name), *cells, str(row.sum()), share)
    return grid


def measures_grid(result: AnyEvaluation) -> Grid:
    """Return the table of an evaluation, with its intervals and what they compare to."""
    from rich.table import Table
    from rich.text import Text

    title = f"{result.count} inputs" + (f" of {result.data}" if result.data else "")
    title += "" if result.patients is None else f", {result.patients} patients"
    grid = Table(title=Text(title), title_justify="left", caption_justify="left")
    head, *rows = result.rows
    for name in head:
        number = name not in ("measure", "label", "95 % interval", "for comparison")
        grid.add_column(name, justify="right" if number else "left")
    for row in rows:
        grid.add_row(*map(Text, row))
    grid.caption = Text("\n".join(result.notes))
    return grid


def decision_grid(decision: Decision) -> Grid:
    """Return a table: sensitivity, specificity and precision at a threshold."""
    from rich.table import Table
    from rich.text import Text

    name, least = decision.classes[decision.threshold.positive], decision.threshold.least
    title = Text(f"predicting {name} from a probability of {least} on ({decision.source})")
    grid = Table(title=title, title_justify="left")
    for column in ("measure", "value", "95 % interval", "inputs"):
        grid.add_column(column, justify="left" if column == "measure" else "right")
    for measure, rate in decision.rates.items():
        ends = "none" if decision.wanted is not None else rate.ends
        share = ("none", "") if rate.share is None else (f"{rate.share:.1%}", ends)
        grid.add_row(measure, *share, f"{rate.hits} of {rate.count}")
    return grid


def chosen_here(decision: Decision) -> str:
    """Return the warning about a threshold that was chosen on the labels that judge it."""
    name, least = decision.classes[decision.threshold.positive], decision.threshold.least
    return (
        f"the threshold {least} was chosen on this data, so its figures here are no test of the "
        f"student: measure it on other labelled data with --threshold {least} --positive {quote(name)}"
    )


def tell_remarks(result: Evaluation, command: Mapping[str, object], screen: Screen) -> None:
    """Warn of what the accuracy conceals; ``command`` has the options of `evaluate` for this student."""
    from pate.planning.forecast import plan_command

    for line in result.remarks:
        screen.say(line, "warning")
    if result.remarks and result.ranks:
        rarest = min(zip(result.classes, result.rates, strict=True), key=lambda each: each[1].count)
        name = next(iter(result.missed), rarest[0])
        asked = {**command, "data": "PATH", "positive": name, "at-sensitivity": 0.8}
        screen.say(
            f"what helps to find more of {name!r}: choose a threshold, with PATH labelled data that you "
            f"need for nothing else: {plan_command(asked, 'pate-student evaluate')}"
        )
    elif result.missed and len(result.classes) == 2:
        screen.say(
            "no threshold helps: the probabilities rank no better than chance. What helps: another "
            "campaign, with more labels of each class"
        )
    elif result.missed:
        screen.say("what helps: another campaign, with more labels of these classes")


def group_grid(groups: Groups) -> Grid:
    """Return a table: one row per group, with the 95 % interval of its accuracy."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(title="groups", title_justify="left")
    for name in ("group", "inputs", "accuracy", "95 %"):
        grid.add_column(name, justify="left" if name == "group" else "right")
    for name, rate in groups.accuracy.items():
        grid.add_row(Text(name), str(rate.count), f"{rate.share:.1%}", rate.ends)
    gap = groups.gaps()["accuracy"]
    if gap is not None and gap.told:
        grid.caption = Text(f"{gap.higher} above {gap.lower} by {100 * gap.low:.1f} points or more")
    else:
        grid.caption = "differences are no larger than chance makes them"
    return grid


def tell_published(
    published: Published,
    labels: LabelSet,
    out: Path,
    screen: Screen,
    *,
    as_json: bool,
    command: Mapping[str, object] | None = None,
) -> None:
    """Report the published files and their guarantee; ``command``: see :func:`tell_remarks`."""
    from pate.formats.labels import checked_statement
    from pate.formats.privacy_statement import (
        code_of_statement,
        do_records_vote,
        in_words,
        neighbours_of,
        series_of,
    )
    from student.evaluation.evaluate import Evaluation

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
    if result is not None and not isinstance(result, Evaluation):
        screen.say(result.in_words)
    elif result is not None:
        area = None if result.scores is None else result.scores.area
        ranks = "" if area is None else f", AUC {area.value:.3f}"
        screen.say(f"{result.accuracy:.2%} of {result.count} test inputs right{ranks}")
        tell_remarks(result, {"model": out, **(command or {})}, screen)
    epsilon, delta = float(str(statement["epsilon"])), float(str(statement["delta"]))
    unit, observer = str(statement["unit"]), str(statement["observer"])
    among = neighbours_of(
        unit,
        records_vote=do_records_vote(statement["mechanism"]),
        series=series_of(statement),
        code=code_of_statement(statement["mechanism"]),
    )
    words = in_words(epsilon, delta, unit, observer, neighbours=among)
    screen.say(f"published in {out}: learnt from {labels.content_in_words}, {words}")


def tell_few_labels(labels: LabelSet, screen: Screen) -> None:
    """Warn, before training, about classes with few labels or none, with a remedy."""
    from pate.campaign.choices import UNITS
    from pate.formats.labels import checked_statement
    from pate.formats.privacy_statement import do_records_vote
    from pate.planning.forecast import classes_in_words, plan_command

    if not labels.answer.labelled:
        return  # a student learns from the counts
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
        helps = "more records, fewer --representatives, or more epsilon"
        numbers = {"aggregator": "neighbour"} | numbers
    else:
        helps = "more teachers, more epsilon, or neighbour votes"
        numbers = {"aggregator": _planned(statement["mechanism"])} | numbers
        numbers |= {"teachers": _count(statement.get("teachers")), "queries": labels.queries}
    numbers |= {key: float(str(statement[key])) for key in ("epsilon", "delta")}
    numbers["unit"] = unit if (unit := statement["unit"]) in UNITS else None
    if unit == "party":
        numbers["votes-per-unit"] = _count(_first(statement["mechanism"]).get("votes_per_unit"))
    screen.say(
        f"what helps, in another campaign: {helps}; other numbers can be tried with "
        f"{plan_command(numbers)}"
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


def answers_csv(student: TableStudent, inputs: Inputs) -> tuple[bytes, int]:
    """Return predictions of several labels, or of a number, as a CSV file; and how many."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not student.thresholds:
        writer.writerow(["row", "predicted"])
        writer.writerows(
            [at, f"{each:.6g}"] for at, each in enumerate(student.predict_numbers(inputs)[0])
        )
        return text.getvalue().encode(), len(inputs)
    names = student.classes
    writer.writerow(["row", *names, *(f"probability of {name}" for name in names)])
    for at, row in enumerate(student.predict_probabilities(inputs).tolist()):
        said = [int(each >= least) for each, least in zip(row, student.thresholds, strict=True)]
        writer.writerow([at, *said, *(f"{cell:.6f}" for cell in row)])
    return text.getvalue().encode(), len(inputs)


def predictions_csv(
    classes: tuple[str, ...], probabilities: NDArray[np.float32], predicted: NDArray[np.int64]
) -> bytes:
    """Return (n,) predicted classes and (n, m) probabilities as a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "predicted", *(f"probability of {name}" for name in classes)])
    for number, (row, best) in enumerate(
        zip(probabilities.tolist(), predicted.tolist(), strict=True)
    ):
        writer.writerow([number, classes[best], *(f"{cell:.6f}" for cell in row)])
    return text.getvalue().encode()
