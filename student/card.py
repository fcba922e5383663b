"""The model card: ``README.md`` beside a published student, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.statement import mechanism_in_words, rounded_up

if TYPE_CHECKING:
    from student.evaluate import Evaluation
    from student.trainers.base import Student

_KINDS: Final = {
    "fixmatch": "a small residual convolutional network, trained by FixMatch",
    "selftraining": "a random forest and a logistic model, averaged, trained by self-training",
}


@dataclass(frozen=True)
class Provenance:
    """Where a student comes from.

    Attributes:
        campaign: identity of the campaign, hexadecimal.
        name: what the coordinator calls it, or "".
        public_set: content hash of the public set, hexadecimal.
        queries: size of the public set.
        from_teachers: labels that are noisy votes of the teachers.
        reinforced: labels that are the student's own predictions, not contradicted.
        training: facts about the training (trainer, seed, steps, seconds), plain JSON values.
    """

    campaign: str
    name: str
    public_set: str
    queries: int
    from_teachers: int
    reinforced: int
    training: Mapping[str, object]

    @property
    def labels(self) -> int:
        """Number of labels learnt from."""
        return self.from_teachers + self.reinforced


def write_card(
    student: Student,
    provenance: Provenance,
    statement: Mapping[str, object],
    evaluation: Evaluation | None,
) -> str:
    """Return the text of the model card, in Markdown.

    Args:
        student: the model.
        provenance: what it learnt from.
        statement: checked fields of ``privacy.json``.
        evaluation: on labelled public data, or None.
    """
    parts = [
        _what(student, provenance),
        _privacy(statement),
        _training(provenance),
        _accuracy(evaluation),
        _use(student),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _what(student: Student, provenance: Provenance) -> str:
    classes = ", ".join(_plain(name) for name in student.classes)
    title = _plain(provenance.name) or f"campaign {provenance.campaign[:12]}"
    return f"""
# Student of {title}

{_KINDS[student.kind].capitalize()}. It tells {len(student.classes)} classes apart: {classes}.

It was taught by PATE (private aggregation of teacher ensembles): several data holders trained
teachers on their own records, the teachers voted on unlabelled public inputs, noise was added to
the sum of the votes, and the winners became labels. This student saw the public inputs and those
labels, and nothing else: no record, no teacher and no vote of any single data holder.

| | |
| --- | --- |
| inputs | {_plain(student.schema)} |
| labels learnt from | {_labels(provenance)} |
| public set | {provenance.queries} inputs, SHA-256 `{provenance.public_set}` |
| campaign | `{provenance.campaign}` |
"""


def _labels(provenance: Provenance) -> str:
    text = f"{provenance.labels}: {provenance.from_teachers} from the teachers' noisy votes"
    if provenance.reinforced:
        text += f", {provenance.reinforced} own predictions that the teachers did not contradict"
    return text


def _privacy(statement: Mapping[str, object]) -> str:
    said = {key: _plain(str(statement[key])) for key in ("unit", "adjacency", "observer")}
    epsilon, delta = float(str(statement["epsilon"])), float(str(statement["delta"]))
    withdrawn = _withdrawn(statement)
    if withdrawn is not None:
        return f"""
## Privacy

**There is no privacy guarantee.** The statement of the campaign says of this observer,
{said["observer"]}: {_plain(withdrawn)}. `privacy.json` holds all of it.
"""
    return f"""
## Privacy

The labels that this student learnt from are differentially private, and so is whatever is made
of them, the student included: **epsilon = {rounded_up(epsilon)} at delta = {delta:.3g}**.

- **Unit: {said["unit"]}.** The promise is about one such unit: whoever sees the student learns nearly
  the same whether or not that unit's data was what it was. It is not about groups of them, for
  which it weakens in proportion, and not about what the public set itself shows.
- **Adjacency: {said["adjacency"]}.** This is what it means for two collections to differ in one unit.
- **Observer: {said["observer"]}.** Against this observer the figure holds. Whoever sees more than
  that, such as a party to the campaign or its server, is not covered by it.
- **Mechanism: {_plain(mechanism_in_words(statement["mechanism"]))}**. The ledger that the figure was computed
  from ends in `{_plain(str(statement["ledger_head"]))}`.

An epsilon of {rounded_up(epsilon)} bounds the odds by which anybody's belief about one unit can shift at a
factor of {_factor(epsilon)}, except with a probability of about {delta:.3g}. The figure covers this
campaign alone: other campaigns over the same records add to it. It does not promise that the
student is right, nor that it treats groups of people alike. `privacy.json` holds the statement as
the server gave it.
"""


def _withdrawn(statement: Mapping[str, object]) -> str | None:
    """Return why nothing is promised to the statement's own observer, None if something is."""
    observers = statement.get("statements")
    for each in observers if isinstance(observers, list) else []:
        if isinstance(each, Mapping) and each.get("observer") == statement["observer"]:
            return str(each.get("meaning", "")) if each.get("epsilon", 0) is None else None
    return None


def _factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):.3g}" if epsilon < 50 else "no useful size"


def _training(provenance: Provenance) -> str:
    facts = "\n".join(
        f"| {_plain(str(name))} | {_plain(str(value))} |"
        for name, value in provenance.training.items()
    )
    return f"""
## Training

Labels of a noisy vote can be wrong; the training expects a few that are.

| | |
| --- | --- |
{facts}
"""


def _accuracy(evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return """
## Accuracy

It was not measured. Measure it on labelled public data before use: `pate-student evaluate`.
"""
    rows = "\n".join(
        f"| {_plain(name)} | {'absent' if recall is None else f'{recall:.1%}'} |"
        for name, recall in zip(evaluation.classes, evaluation.recalls, strict=True)
    )
    return f"""
## Accuracy

{evaluation.accuracy:.2%} of {evaluation.count} labelled inputs right; mean recall of the classes
{evaluation.balanced_accuracy:.2%}.

| class | recall |
| --- | --- |
{rows}
"""


def _use(student: Student) -> str:
    text = """
## Use

    pate-student predict --model THIS_FOLDER --data DATA --out predictions.csv

`model.json` describes the model and its preprocessing in full. No file here is a pickle.
"""
    if student.kind == "fixmatch":
        text += """
`model.onnx` takes raw pixels, `(n, height, width, channels)` uint8, and gives probabilities; the
class names are in its metadata. `model.safetensors` holds the same weights for torch.
"""
    return text


def _plain(text: str) -> str:
    """Return text that cannot break out of its line, cell or emphasis in Markdown."""
    return "".join(_ESCAPES.get(mark, mark if mark.isprintable() else " ") for mark in text[:500])


_ESCAPES: Final = {mark: f"\\{mark}" for mark in "\\*_[]|"} | {"`": "'", "<": "&lt;"}
