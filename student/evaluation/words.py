"""How good a student is: sections of its model card with figures of data, and the head for model hubs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from student.evaluation.evaluate import Evaluation
from student.evaluation.fairness import widest_gap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from student.evaluation.evaluate import AnyEvaluation
    from student.evaluation.fairness import Coverage, Gap, Groups


def hub_head(title: str, task: str, evaluation: AnyEvaluation | None) -> str:
    """Return the YAML head that model hubs read: licence, tags, ``task`` as hubs call it, and figures."""
    lines = [
        "---",
        "# Replace it by the licence of the model, as your hub writes it.",
        "license: unknown",
        "tags:",
        *(f"- {tag}" for tag in ("pate", "differential-privacy", "federated-learning")),
        f"pipeline_tag: {task}",
    ]
    if evaluation is not None:
        found = _hub_figures(evaluation.to_json())
        lines += ["metrics:", *(f"- {name}" for name in found), "model-index:"]
        lines += [f"- name: {_quoted(title)}", "  results:", "  - task:", f"      type: {task}"]
        lines += [
            "    dataset:",
            f"      name: {_quoted(evaluation.data or 'labelled public data')}",
        ]
        lines += ["      type: labelled-public-data", "    metrics:"]
        for name, value in found.items():
            lines += [f"    - type: {name}", f"      value: {value:.6g}"]
    return "\n".join([*lines, "---"])


def _hub_figures(told: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of an ``evaluation.json`` by the names that model hubs have for them."""
    scores = told.get("scores") or {}
    found = {
        "accuracy": told.get("accuracy"),
        "roc_auc": scores.get("auc", (told.get("macro_auc") or {}).get("value")),
        "f1": told.get("macro_f1"),
        "mae": (told.get("mean_absolute_error") or {}).get("value"),
        "r_squared": (told.get("r2") or {}).get("value"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _quoted(text: str) -> str:
    """Return a text of any characters as a string of YAML, in one line."""
    return json.dumps(
        "".join(mark for mark in text[:500] if mark.isprintable()), ensure_ascii=False
    )


def measured(evaluation: AnyEvaluation | None) -> str:
    """Return the sections about labelled public data; None: that the student was not measured."""
    if evaluation is None:
        return """
## Accuracy

It was not measured. Measure it on labelled public data before use: `pate-student evaluate`.
"""
    about = [plain(evaluation.data)] if evaluation.data else []
    if evaluation.patients is not None:
        about.append(f"{evaluation.patients} patients, whom the intervals count")
    of = f" ({'; '.join(about)})" if about else ""
    said = evaluation.in_words
    text = f"""
## Accuracy

{said[0].upper()}{said[1:]}{of}.
The intervals contain the true figure with 95 % confidence, for inputs like these.

{_table(evaluation.rows)}
"""
    text += "".join(f"\n{plain(note)}.\n" for note in evaluation.notes)
    return text + _of_classes(evaluation) if isinstance(evaluation, Evaluation) else text


def _of_classes(evaluation: Evaluation) -> str:
    found = zip(evaluation.classes, evaluation.rates, strict=True)
    recalls = [
        (name, str(rate.count), str(rate) if rate.count else "absent") for name, rate in found
    ]
    drawn = "\n`calibration.png` shows how often each probability comes true.\n"
    remarks = [f"- {plain(line[0].upper() + line[1:])}." for line in evaluation.remarks]
    if evaluation.missed and evaluation.ranks:
        remarks.append(
            "- A threshold finds more of that class: choose it with `pate-student evaluate "
            "--at-sensitivity`, on labelled data needed for nothing else."
        )
    lines = "\n" + "\n".join(remarks) + "\n" if remarks else ""
    return f"""{drawn if evaluation.scores is not None else ""}
{_table([("class", "inputs", "recall"), *recalls])}
{lines}{_groups(evaluation.groups)}"""


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, its head first."""
    head, *lines = (f"| {' | '.join(map(plain, row))} |" for row in rows)
    return "\n".join([head, f"|{' --- |' * len(rows[0])}", *lines])


def labels_by_class(covered: Coverage | None, statement: Mapping[str, object]) -> str:
    """Return the section on labels per class; ``statement`` has the fields of ``privacy.json``."""
    if covered is None or not any(covered.released):
        return ""
    asked, given = statement.get("queries_asked"), statement.get("labels_released")
    total = ""
    if type(asked) is int and type(given) is int:
        total = f"{asked} queries were voted on, and {given} labels were given.\n"
    rows = [
        (name, str(rate.count), str(rate.hits), str(rate), str(released))
        for (name, rate), released in zip(covered.rates.items(), covered.released, strict=True)
    ]
    head = (
        "class", "public inputs taken for it", "of these with a label", "share (95 %)",
        "labels that say it",
    )  # fmt: skip
    return f"""
## Labels by class

{total}What class a public input truly is, nobody knows here: the first columns go by the class that
this student takes an input for, its mistakes included. Where inputs were asked alike, a class with
fewer labels than the others is one that the votes were less clear about.

{_table([head, *rows])}

{_gap_in_words(widest_gap(covered.rates), "the share with a label")}
"""


def _groups(groups: Groups | None) -> str:
    """Return the rates of the groups of the labelled data."""
    if groups is None:
        return ""
    at, gaps = groups.positive, groups.gaps()
    columns = {"accuracy": groups.accuracy}
    said = [_gap_in_words(gaps["accuracy"], "accuracy")]
    if at is not None:
        name = groups.classes[at]
        columns |= {
            f"taken for {name}": groups.predictions[at],
            f"truly {name}": groups.shares[at],
            f"recall of {name}": groups.recalls[at],
        }
        said += [
            _gap_in_words(gaps["predicted"], f"how often it says {plain(name)}"),
            _gap_in_words(gaps["recall"], f"the recall of {plain(name)}"),
        ]
    rows = [
        (name, str(rate.count), *(str(rates[name]) for rates in columns.values()))
        for name, rate in groups.accuracy.items()
    ]
    lines = "\n".join(f"- {line}" for line in said)
    return f"""
## Groups

{_table([("group", "inputs", *columns), *rows])}

{lines}

Privacy can widen gaps that a model has without it too. These figures are about the labelled public
data that it was measured on, and about no other people.
"""


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
