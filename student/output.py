"""Output of ``pate-student``: tables on the screen, and predictions as a file."""

from __future__ import annotations

import csv
import io
import threading
import time
from collections import Counter
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Final

from pate.runtime.command import print_json

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
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
#: Seconds without a line after which work says that it continues; then this share of the time so far.
_SILENT_S: Final = 10.0
_SILENT_SHARE: Final = 0.1


@contextmanager
def never_silent(screen: Screen, title: str) -> Iterator[None]:
    """Print a line wherever none was printed for long, until the work is done; a terminal's bar moves."""
    began = heard = time.monotonic()
    over = threading.Event()

    def hear(_: object) -> None:
        nonlocal heard
        heard = time.monotonic()

    def watch() -> None:
        while not over.wait(0.5):
            now = time.monotonic()
            if now - heard >= max(_SILENT_S, _SILENT_SHARE * (now - began)):
                screen.say(f"{title}: still at work, {now - began:.0f} s so far")

    deaf = screen.listen(hear)
    if not screen.live:
        threading.Thread(target=watch, name="never silent", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        deaf()


def _grid(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Container[str],  # columns of words; the others are of numbers
    caption: str = "",
) -> Grid:
    """Return a table. Names in it are others' and never markup."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=Text(title), title_justify="left", caption_justify="left")
    for name in head:
        grid.add_column(Text(name), justify="left" if name in left else "right")
    for row in rows:
        grid.add_row(*map(Text, row))
    grid.caption = Text(caption)
    return grid


def confusion_grid(result: Evaluation, when: str = "") -> Grid:
    """Return a table of true by predicted classes, with recall; ``when`` ends its title."""
    names = result.classes[:_SHOWN_CLASSES]
    rows = []
    for name, row, recall in zip(result.classes, result.confusion, result.recalls, strict=True):
        cells = [str(count) if count else "·" for count in row.tolist()[:_SHOWN_CLASSES]]
        share = "absent" if recall is None else f"{recall:.1%}"
        rows.append((name, *cells, str(row.sum()), share))
    title = f"true class down, predicted across{when}"
    return _grid(title, ("class", *names, "inputs", "recall"), rows, left=("class",))


def measures_grid(result: AnyEvaluation) -> Grid:
    """Return the table of an evaluation, with its intervals and what they compare to."""
    title = f"{result.count} inputs" + (f" of {result.data}" if result.data else "")
    title += "" if result.patients is None else f", {result.patients} patients"
    head, *rows = result.rows
    words = ("measure", "label", "95 % interval", "for comparison")
    return _grid(title, head, rows, left=words, caption="\n".join(result.notes))


def decision_grid(decision: Decision) -> Grid:
    """Return a table: sensitivity, specificity and precision at a threshold."""
    name, least = decision.classes[decision.threshold.positive], decision.threshold.least
    title = f"predicting {name} from a probability of {least} on ({decision.source})"
    rows = []
    for measure, rate in decision.rates.items():
        ends = "none" if decision.wanted is not None else rate.ends
        share = ("none", "") if rate.share is None else (f"{rate.share:.1%}", ends)
        rows.append((measure, *share, f"{rate.hits} of {rate.count}"))
    return _grid(title, ("measure", "value", "95 % interval", "inputs"), rows, left=("measure",))


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
    gap = groups.gaps()["accuracy"]
    caption = "differences are no larger than chance makes them"
    if gap is not None and gap.told:
        caption = f"{gap.higher} above {gap.lower} by {100 * gap.low:.1f} points or more"
    rows = [
        (name, str(rate.count), f"{rate.share:.1%}", rate.ends)
        for name, rate in groups.accuracy.items()
    ]
    head = ("group", "inputs", "accuracy", "95 %")
    return _grid("groups", head, rows, left=("group",), caption=caption)


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
    from student.card import promise_of
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
    promise = promise_of(statement)
    screen.say(f"published in {out}: learnt from {labels.content_in_words}, {promise}")


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


def answers_csv(student: TableStudent, inputs: Inputs) -> bytes:
    """Return predictions of several labels, or of a number, as a CSV file."""
    if not student.thresholds:
        numbers = student.predict_numbers(inputs)[0]
        return _csv(["predicted"], ([f"{each:.6g}"] for each in numbers))
    names = student.classes
    rows = (
        [
            *(int(each >= least) for each, least in zip(row, student.thresholds, strict=True)),
            *(f"{cell:.6f}" for cell in row),
        ]
        for row in student.predict_probabilities(inputs).tolist()
    )
    return _csv([*names, *(f"probability of {name}" for name in names)], rows)


def predictions_csv(
    classes: tuple[str, ...], probabilities: NDArray[np.float32], predicted: NDArray[np.int64]
) -> bytes:
    """Return (n,) predicted classes and (n, m) probabilities as a CSV file."""
    rows = (
        [classes[best], *(f"{cell:.6f}" for cell in row)]
        for row, best in zip(probabilities.tolist(), predicted, strict=True)
    )
    return _csv(["predicted", *(f"probability of {name}" for name in classes)], rows)


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return a CSV file whose first column is the number of the row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *head])
    writer.writerows([at, *row] for at, row in enumerate(rows))
    return text.getvalue().encode()
