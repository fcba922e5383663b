"""The model card: ``README.md`` of a published student."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.formats.mechanism_words import mechanism_in_words
from pate.formats.privacy_statement import (
    do_records_vote,
    in_words,
    neighbours_of,
    rounded_up,
    series_of,
)
from student.evaluation.evaluate import Evaluation
from student.evaluation.fairness import widest_gap
from student.trainers.choose import IMAGE_MODELS
from student.trainers.selftraining import TableStudent

if TYPE_CHECKING:
    from student.evaluation.answers import AnyEvaluation
    from student.evaluation.fairness import Coverage, Gap, Groups
    from student.evaluation.rates import Rate
    from student.trainers.base import Student

_KINDS: Final = {
    "propagation": "a small residual convolutional network, taught with labels that were "
    "propagated to the whole public set",
    "fixmatch": "a small residual convolutional network, trained by FixMatch",
    "vat": "a small residual convolutional network, trained by virtual adversarial training",
    "pate-g": "a small residual convolutional network, trained against a generator (PATE-G)",
    "selftraining": "a random forest and a logistic model, averaged, trained by self-training",
}


@dataclass(frozen=True)
class Provenance:
    """The provenance of a student.

    Attributes:
        campaign: identity of the campaign, hexadecimal.
        name: chosen by the coordinator, or "".
        public_set: content hash of the public set, hexadecimal.
        queries: size of the public set.
        from_teachers: labels that are noisy votes, of teachers or of records.
        reinforced: labels that are the student's own uncontradicted predictions.
        training: facts about the training (trainer, seed, steps, seconds), plain JSON values.
        coverage: distribution of the labels over the classes, if computed.
    """

    campaign: str
    name: str
    public_set: str
    queries: int
    from_teachers: int
    reinforced: int
    training: Mapping[str, object]
    coverage: Coverage | None = None

    @property
    def labels(self) -> int:
        """Number of labels learnt from."""
        return self.from_teachers + self.reinforced


def write_card(
    student: Student,
    provenance: Provenance,
    statement: Mapping[str, object],
    evaluation: AnyEvaluation | None,
) -> str:
    """Return the text of the model card, in Markdown.

    Args:
        student: the model.
        provenance: of its labels.
        statement: checked fields of ``privacy.json``.
        evaluation: on labelled public data, or None.
    """
    whole = evaluation if isinstance(evaluation, Evaluation) else None
    parts = [
        _what(student, provenance, statement),
        _privacy(statement),
        _training(provenance),
        _answered(provenance.coverage, statement),
        _of_answers(evaluation) if evaluation is not None and whole is None else _accuracy(whole),
        _groups(None if whole is None else whole.groups),
        _use(student),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


_BY_TEACHERS: Final = """
It was taught by PATE (private aggregation of teacher ensembles): several data holders trained
teachers on their own records, the teachers voted on unlabelled public inputs, noise was added to
the sum of the votes, and the winners became labels. This student saw the public inputs and those
labels, and nothing else: no record, no teacher and no vote of any single data holder.
"""
_OF_SEVERAL: Final = """
It was taught by PATE (private aggregation of teacher ensembles), for several labels: several data
holders trained teachers on their own records, each teacher cast for each of some public inputs the
labels that it saw there, and noise was added to the sum of the votes for each label. This student saw
the public inputs and those noisy sums, and nothing else: no record, no teacher and no vote of any
single data holder.
"""
_BY_RECORDS: Final = """
It was taught by neighbour votes: several data holders let each of their records vote once, for its
label, at the public input that is most like it; noise was added to the sum of all votes, and inputs
with a clear winner got it as their label. This student saw the public inputs, those labels and the
noisy sums, and nothing else: no record and no vote of any single data holder.
"""


def _what(student: Student, provenance: Provenance, statement: Mapping[str, object]) -> str:
    classes = ", ".join(_plain(name) for name in student.classes)
    # "campaign" is the default name of a campaign.
    named = provenance.name not in ("", "campaign")
    title = _plain(provenance.name) if named else f"campaign {provenance.campaign[:12]}"
    kind = _KINDS.get(student.kind, f"a classifier of kind {_plain(student.kind)}")
    records_vote = do_records_vote(statement["mechanism"])
    said = f"It tells {len(student.classes)} classes apart: {classes}."
    if isinstance(student, TableStudent) and not student.has_classes:
        kind = "boosted trees, fitted to noisy counts"
        said = f"It predicts each of {len(student.classes)} labels: {classes}."
        if not student.thresholds:
            said = "It predicts a number from {} to {}.".format(*map(_plain, student.classes))
    learnt = "learnt from | the noisy counts of all columns, and no label"
    if not isinstance(student, TableStudent) or student.has_classes:
        voters = "records" if records_vote else "teachers"
        learnt = f"labels learnt from | {_labels(provenance, voters)}"
    return f"""
# Student of {title}

{kind[0].upper()}{kind[1:]}. {said}
{_taught_by(student, records_vote)}
| | |
| --- | --- |
| inputs | {_plain(student.schema)} |
| {learnt} |
| public set | {provenance.queries} inputs, SHA-256 `{provenance.public_set}` |
| campaign | `{provenance.campaign}` |
"""


def _taught_by(student: Student, records_vote: bool) -> str:
    if records_vote:
        return _BY_RECORDS
    several = isinstance(student, TableStudent) and not student.has_classes
    return _OF_SEVERAL if several else _BY_TEACHERS


def _labels(provenance: Provenance, voters: str) -> str:
    text = f"{provenance.labels}: {provenance.from_teachers} from the {voters}' noisy votes"
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
    exception = (
        f", except with a probability of about {delta:.3g}" if delta else ", without exception"
    )
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
factor of {_factor(epsilon)}{exception}. {_covers(statement)}
It does not promise that the student is right, nor that it treats groups of people alike. `privacy.json`
holds the statement as the server gave it.
"""


def _covers(statement: Mapping[str, object]) -> str:
    series = series_of(statement)
    if series is None:
        return "The figure covers\nthis campaign alone: other campaigns over the same records add to it."
    return (
        f"The figure covers\nall campaigns of the series {_plain(repr(series))} that cost no more: each unit "
        "has its votes once in\nall of them. Other campaigns over the same records add to it."
    )


def _withdrawn(statement: Mapping[str, object]) -> str | None:
    """Return why the statement has no guarantee towards its own observer, None if it has one."""
    observers = statement.get("statements")
    for each in observers if isinstance(observers, list) else []:
        if isinstance(each, Mapping) and each.get("observer") == statement["observer"]:
            return str(each.get("meaning", "")) if each.get("epsilon", 0) is None else None
    return None


def promise_of(statement: Mapping[str, object]) -> str:
    """Return the guarantee of a checked statement, as one line with its terms."""
    if _withdrawn(statement) is not None:
        return "no privacy guarantee: see privacy.json"
    unit = str(statement["unit"])
    among = neighbours_of(
        unit,
        records_vote=do_records_vote(statement["mechanism"]),
        series=series_of(statement),
    )
    return in_words(
        float(str(statement["epsilon"])),
        float(str(statement["delta"])),
        unit,
        str(statement["observer"]),
        neighbours=among,
    )


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


def _answered(covered: Coverage | None, statement: Mapping[str, object]) -> str:
    """Return labels per class: a class with few labels is learnt badly."""
    if covered is None:
        return ""
    asked, given = statement.get("queries_asked"), statement.get("labels_released")
    total = ""
    if type(asked) is int and type(given) is int:
        total = f"{asked} queries were voted on, and {given} labels were given.\n"
    rows = "\n".join(
        f"| {_plain(name)} | {rate.count} | {rate.hits} | {_share(rate)} | {released} |"
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
        f"| {_plain(name)} | {rate.count} | {_share(rate) if rate.count else 'absent'} |"
        for name, rate in zip(evaluation.classes, evaluation.rates, strict=True)
    )
    apart = ""
    if evaluation.apart is not None:
        apart = f" A predicted class is {evaluation.apart} places from the true one, on average."
    counted = evaluation.by_patient
    about = [_plain(evaluation.data)] if evaluation.data else []
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
"""


def _of_answers(evaluation: AnyEvaluation) -> str:
    """Return how well several labels, or a number, are predicted."""
    assert not isinstance(evaluation, Evaluation)  # noqa: S101 - that is of classes
    about = [_plain(evaluation.data)] if evaluation.data else []
    if evaluation.patients is not None:
        about.append(f"{evaluation.patients} patients, whom the intervals count")
    of = f" ({'; '.join(about)})" if about else ""
    head, *rows = (" | ".join(_plain(cell) for cell in row) for row in evaluation.rows)
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
            rank += f", without {', '.join(_plain(each) for each in area.left_out)}"
    over = "" if len(evaluation.classes) == 2 else ", one class against the rest, mean over classes"
    chance = scores.error_by_chance
    perfect = "" if chance is None else f"about {chance:.3f} for perfect probabilities"
    shares = f"{scores.brier_of_shares:.3f} by always saying these shares"
    return f"""
| measure | here | for comparison |
| --- | --- | --- |
| accuracy | {_share(evaluation.right)} | {share:.1%} by always saying {_plain(name)} |
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
        name = _plain(groups.classes[at])
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
        f"| {_plain(name)} | {groups.accuracy[name].count} | "
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
        f"{what}: **{100 * gap.difference:.1f} points more for {_plain(gap.higher)} than for "
        f"{_plain(gap.lower)}** ({100 * gap.low:.1f} to {100 * gap.high:.1f} with 95 % confidence "
        "over all pairs)."
    )


def _use(student: Student) -> str:
    text = """
## Use

    pate-student predict --model THIS_FOLDER --data DATA --out predictions.csv

`model.json` describes the model and its preprocessing in full. No file here is a pickle.
"""
    if isinstance(student, TableStudent) and not student.has_classes:
        return text
    if len(student.classes) == 2:
        text += """
It predicts the more probable class. To find more of one class, add `--positive CLASS --threshold
PROBABILITY`, chosen on labelled data that no figure of this card is about.
"""
    if student.kind in IMAGE_MODELS:
        text += """
`model.onnx` takes raw pixels, `(n, height, width, channels)` uint8, and gives probabilities; the
class names are in its metadata. `model.safetensors` holds the same weights for torch.
"""
    return text


def _plain(text: str) -> str:
    """Return text that cannot break out of its line, cell or emphasis in Markdown."""
    return "".join(_ESCAPES.get(mark, mark if mark.isprintable() else " ") for mark in text[:500])


_ESCAPES: Final = {mark: f"\\{mark}" for mark in "\\*_[]|"} | {"`": "'", "<": "&lt;"}
