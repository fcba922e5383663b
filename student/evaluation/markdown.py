"""How good a student is, in Markdown: the sections of its model card that have figures of data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from student.evaluation.evaluate import Evaluation
from student.evaluation.fairness import widest_gap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from student.evaluation.answers import AnyEvaluation, LabelsEvaluation, NumberEvaluation
    from student.evaluation.fairness import Coverage, Gap, Groups
    from student.evaluation.rates import Rate


def measured(evaluation: AnyEvaluation | None) -> str:
    """Return the sections about labelled public data; None: that the student was not measured."""
    if evaluation is not None and not isinstance(evaluation, Evaluation):
        return _of_answers(evaluation)
    groups = "" if evaluation is None else _groups(evaluation.groups)
    return "\n\n".join(part.strip() for part in (_accuracy(evaluation), groups) if part)


def labels_by_class(covered: Coverage | None, statement: Mapping[str, object]) -> str:
    """Return the section on labels per class: a class with few labels is learnt badly.

    Args:
        covered: distribution of the labels over the classes; None: no section.
        statement: fields of ``privacy.json``.
    """
    if covered is None:
        return ""
    asked, given = statement.get("queries_asked"), statement.get("labels_released")
    total = ""
    if type(asked) is int and type(given) is int:
        total = f"{asked} queries were voted on, and {given} labels were given.\n"
    rows = "\n".join(
        f"| {plain(name)} | {rate.count} | {rate.hits} | {_share(rate)} | {released} |"
        for (name, rate), released in zip(covered.rates.items(), covered.released, strict=True)
    )
    return f"""
## Labels by class

{total}What class a public input truly is, nobody knows here: the first columns go by the class that
this student takes an input for, its mistakes included. Where inputs were asked alike, a class with
fewer labels than the others is one that the votes were less clear about.

| class | public inputs taken for it | of these with a label | share (95 %) | labels that say it |
| --- | --- | --- | --- | --- |
{rows}

{_gap_in_words(widest_gap(covered.rates), "the share with a label")}
"""


def _accuracy(evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return """
## Accuracy

It was not measured. Measure it on labelled public data before use: `pate-student evaluate`.
"""
    rows = "\n".join(
        f"| {plain(name)} | {rate.count} | {_share(rate) if rate.count else 'absent'} |"
        for name, rate in zip(evaluation.classes, evaluation.rates, strict=True)
    )
    apart = ""
    if evaluation.apart is not None:
        apart = f" A predicted class is {evaluation.apart} places from the true one, on average."
    counted = evaluation.by_patient
    about = [plain(evaluation.data)] if evaluation.data else []
    about += [] if counted is None else [f"{counted.patients} patients, whom the intervals count"]
    of = f" ({'; '.join(about)})" if about else ""
    return f"""
## Accuracy

{evaluation.accuracy:.2%} of {evaluation.count} labelled public inputs{of} right; mean recall of the
classes {evaluation.balanced_accuracy:.2%}.{apart} In brackets: where the true share lies with 95 %
confidence, for inputs like these.
{_scores(evaluation)}
| class | inputs | recall |
| --- | --- | --- |
{rows}
{_remarks(evaluation)}
"""


def _remarks(evaluation: Evaluation) -> str:
    """Return what the accuracy conceals, and what helps; empty if there is nothing."""
    lines = [f"- {plain(line[0].upper() + line[1:])}." for line in evaluation.remarks]
    if evaluation.missed and evaluation.ranks:
        lines.append(
            "- A threshold finds more of that class: choose it with `pate-student evaluate "
            "--at-sensitivity`, on labelled data needed for nothing else."
        )
    return "\n" + "\n".join(lines) if lines else ""


def _of_answers(evaluation: LabelsEvaluation | NumberEvaluation) -> str:
    """Return how well several labels, or a number, are predicted."""
    about = [plain(evaluation.data)] if evaluation.data else []
    if evaluation.patients is not None:
        about.append(f"{evaluation.patients} patients, whom the intervals count")
    of = f" ({'; '.join(about)})" if about else ""
    head, *rows = (" | ".join(plain(cell) for cell in row) for row in evaluation.rows)
    lines = "\n".join(f"| {row} |" for row in rows)
    return f"""
## Accuracy

{evaluation.in_words[0].upper()}{evaluation.in_words[1:]}{of}.
In brackets: where the true figure lies with 95 % confidence, for inputs like these.

| {head} |
|{" --- |" * len(evaluation.rows[0])}
{lines}
"""


def _scores(evaluation: Evaluation) -> str:
    """Return the table of scores; empty if the probabilities were not measured."""
    scores = evaluation.scores
    if scores is None:
        return ""
    name, share = evaluation.commonest
    area = scores.area
    if area is None:
        rank = "none: all labels are of one class"
    else:
        rank = f"{area.value:.3f}"
        if area.interval is not None:
            rank += " ({:.3f} to {:.3f})".format(*area.interval)
        if area.left_out:
            rank += f", without {', '.join(plain(each) for each in area.left_out)}"
    over = "" if len(evaluation.classes) == 2 else ", one class against the rest, mean over classes"
    chance = scores.error_by_chance
    perfect = "" if chance is None else f"about {chance:.3f} for perfect probabilities"
    shares = f"{scores.brier_of_shares:.3f} by always saying these shares"
    return f"""
| measure | here | for comparison |
| --- | --- | --- |
| accuracy | {_share(evaluation.right)} | {share:.1%} by always saying {plain(name)} |
| area under the ROC curve{over} | {rank} | 0.5 by chance |
| Brier score, summed over classes, 0 to 2 | {scores.brier:.3f} | {shares} |
| calibration error | {scores.calibration_error:.3f} | {perfect} |

`calibration.png` shows how often each probability comes true.
"""


def _groups(groups: Groups | None) -> str:
    """Return the rates of the groups of the labelled data."""
    if groups is None:
        return ""
    at, gaps = groups.positive, groups.gaps()
    columns: list[tuple[str, dict[str, Rate]]] = [("accuracy", groups.accuracy)]
    said = [_gap_in_words(gaps["accuracy"], "accuracy")]
    if at is not None:
        name = plain(groups.classes[at])
        columns += [
            (f"taken for {name}", groups.predicted(at)),
            (f"truly {name}", groups.present(at)),
            (f"recall of {name}", groups.recall(at)),
        ]
        said += [
            _gap_in_words(gaps["predicted"], f"how often it says {name}"),
            _gap_in_words(gaps["recall"], f"the recall of {name}"),
        ]
    head = " | ".join(["group", "inputs", *(title for title, _ in columns)])
    rows = "\n".join(
        f"| {plain(name)} | {groups.accuracy[name].count} | "
        + " | ".join(_share(rates[name]) for _, rates in columns)
        + " |"
        for name in groups.names
    )
    lines = "\n".join(f"- {line}" for line in said)
    return f"""
## Groups

| {head} |
|{" --- |" * (len(columns) + 2)}
{rows}

{lines}

Privacy can widen gaps that a model has without it too. These figures are about the labelled public
data that it was measured on, and about no other people.
"""


def _share(rate: Rate) -> str:
    if rate.share is None:
        return "none"
    low, high = rate.interval()
    return f"{rate.share:.1%} ({low:.1%} to {high:.1%})"


def _gap_in_words(gap: Gap | None, what: str) -> str:
    """Return a gap as a sentence that claims no more than the data support."""
    what = what[0].upper() + what[1:]
    if gap is None:
        return f"{what}: there are no two groups to compare."
    if not gap.told:
        return f"{what}: the differences are no larger than chance makes them with so few inputs."
    return (
        f"{what}: **{100 * gap.difference:.1f} points more for {plain(gap.higher)} than for "
        f"{plain(gap.lower)}** ({100 * gap.low:.1f} to {100 * gap.high:.1f} with 95 % confidence "
        "over all pairs)."
    )


def plain(text: str, most: int = 500) -> str:
    """Return text that cannot break out of its line, cell or emphasis in Markdown, cut to a length."""
    return "".join(_ESCAPES.get(mark, mark if mark.isprintable() else " ") for mark in text[:most])


_ESCAPES: Final = {mark: f"\\{mark}" for mark in "\\*_[]|"} | {"`": "'", "<": "&lt;"}
