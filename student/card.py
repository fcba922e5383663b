"""The model card: ``README.md`` of a published student."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.answers import CLASS, ORDERED
from pate.codes import AXES, EACH, code_of
from pate.data.schema import Schema
from pate.formats.mechanism_words import mechanism_in_words
from pate.formats.privacy_statement import (
    code_of_statement,
    delta_rounded_up,
    do_records_vote,
    in_words,
    neighbours_of,
    rounded_up,
    series_of,
)
from student.evaluation.words import hub_head, labels_by_class, measured, plain
from student.fit.rows import HEAD, TableStudent
from student.lesson import has_classes
from student.training import IMAGE_MODELS

if TYPE_CHECKING:
    from pate.codes import Code
    from student.evaluation.evaluate import AnyEvaluation
    from student.evaluation.fairness import Coverage
    from student.lesson import Student
    from student.onnx_graph import Written

_KINDS: Final = {
    "propagation": "a small residual convolutional network, taught with labels that were "
    "propagated to the whole public set",
    "vat": "a small residual convolutional network, trained by virtual adversarial training",
    "pate-g": "a small residual convolutional network, trained against a generator (PATE-G)",
    "head": "softmax regression on the embeddings of a public encoder",
    "selftraining": "a random forest and a logistic model, averaged, trained by self-training",
}


@dataclass(frozen=True)
class Provenance:
    """The provenance of a student."""

    campaign: str  # identity of the campaign, hexadecimal
    name: str
    public_set: str  # content hash of the public set, hexadecimal
    queries: int
    from_teachers: int  # labels that are noisy votes, of teachers or of records
    reinforced: int  # labels that are the student's own uncontradicted predictions
    # facts about the training (trainer, seed, steps, seconds), plain JSON values
    training: Mapping[str, object]
    coverage: Coverage | None = None  # distribution of the labels over the classes, if computed
    learnt_from: str = ""  # released noisy counts in place of labels, in words; "" for labels

    @property
    def labels(self) -> int:
        """Number of labels learnt from."""
        return self.from_teachers + self.reinforced


def write_card(
    student: Student,
    provenance: Provenance,
    statement: Mapping[str, object],
    evaluation: AnyEvaluation | None,
    onnx: Written | None = None,
) -> str:
    """Return the text of the model card, in Markdown; ``statement`` has the fields of ``privacy.json``."""
    parts = [
        hub_head(f"Student of {_name(provenance)}", _task(student), evaluation),
        _what(student, provenance, statement),
        _privacy(statement),
        _training(student, provenance),
        labels_by_class(provenance.coverage, statement),
        measured(evaluation),
        _encoder(student, statement, onnx),
        _use(student, onnx),
        _INTENDED,
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
_OF_ARRAYS: Final = """
It was taught by PATE (private aggregation of teacher ensembles): several data holders trained
teachers on their own records, each teacher cast its answer to all public inputs as one array of
bounded length, and noise was added to the sum of the arrays. This student saw the public inputs and
that noisy sum, and nothing else: no record, no teacher and no answer of any single data holder.
"""
_OF_COUNTS: Final = """
It was taught by PATE (private aggregation of teacher ensembles): several data holders trained
teachers on their own records, the teachers voted on unlabelled public inputs, noise was added to
the sum of the votes, and the noisy sums were released; clear winners became labels. This student saw
the public inputs, those noisy sums and labels, and nothing else: no record, no teacher and no vote of
any single data holder.
"""
_BY_RECORDS: Final = """
It was taught by neighbour votes: several data holders let each of their records vote {once}, for {what},
{where}; noise was added to the sum of all votes, {released}. This student saw the public inputs, {seen},
and nothing else: no record and no vote of any single data holder.
"""
_INTENDED: Final = """
## Intended use

*For whoever publishes this model to fill in: the task, the people whom it is about, who decides by it,
what it must not be used for, and whom to ask.* It is made for inputs like those of its public set. On any
others it was not measured.
"""
#: Characters of the words of all mechanisms: in rounds there are two.
_LONGEST_MECHANISM: Final = 1500
#: What a record voted for.
_ASKED: Final = {
    "class": "its class",
    "residual": "its class, by its disagreement with the public model that the round shows",
    "residual-labels": "all its labels, by its disagreement with the public model that the round shows",
    "ordered": "its class",
    "labels": "its labels, at most {most} of them",
    "number": "its number, divided between two points of a range",
}


def _by_records(code: Code) -> str:
    where = "at the public input that is most like it"
    if code.name == "dense":
        where = f"by how far it lies in each of {code.places} directions of the public inputs"
    classes = code.answer.labelled
    text = _BY_RECORDS.format(
        once="once in each round" if code.answer.in_rounds else "once",
        what=_ASKED[code.answer.name].format(most=code.answer.most),
        where=where,
        released="and inputs with a clear winner got it as their label"
        if classes
        else "and the noisy sums were released",
        seen="those labels and the noisy sums" if classes else "those noisy sums",
    )
    return f"\n{textwrap.fill(' '.join(text.split()), 100)}\n"


def _name(provenance: Provenance) -> str:
    # "campaign" is the default name of a campaign.
    named = provenance.name not in ("", "campaign")
    return provenance.name if named else f"campaign {provenance.campaign[:12]}"


def _task(student: Student) -> str:
    """Return the task as model hubs call it."""
    schema = Schema.parse(student.schema)
    answer = getattr(student, "answer", CLASS)
    if answer not in (CLASS, ORDERED) and not getattr(student, "thresholds", ()):
        return "tabular-regression"
    kind = "image" if schema.size is not None or schema.source == "images" else "tabular"
    return f"{'text' if schema.source == 'texts' else kind}-classification"


def _what(student: Student, provenance: Provenance, statement: Mapping[str, object]) -> str:
    records_vote = do_records_vote(statement["mechanism"])
    kind = _KINDS.get(student.kind, f"a classifier of kind {plain(student.kind)}")
    if isinstance(student, TableStudent) and not student.models:
        kind = "a constant"
    elif (
        isinstance(student, TableStudent)
        and student.kind != HEAD
        and "forest" not in student.models
    ):
        in_rounds = code_of(code_of_statement(statement["mechanism"])).answer.in_rounds
        last = "the model of the last round" if in_rounds else "noisy counts"
        kind = f"boosted trees, fitted to {last}"
        if "logistic" in student.models:
            kind = "boosted trees and a linear model, fitted to " + (
                "the model of the last round" if records_vote else "the teachers' noisy sums"
            )
    learnt = (
        f"labels learnt from | {_labels(provenance, 'records' if records_vote else 'teachers')}"
    )
    if not has_classes(student) or (provenance.learnt_from and not provenance.labels):
        learnt = f"learnt from | {plain(provenance.learnt_from)}, and no label"
    return f"""
# Student of {plain(_name(provenance))}

{kind[0].upper()}{kind[1:]}. {_predicts(student)}
{_taught_by(student, statement, records_vote)}
| | |
| --- | --- |
| inputs | {plain(student.schema)} |
| {learnt} |
| public set | {provenance.queries} inputs, SHA-256 `{provenance.public_set}` |
| campaign | `{provenance.campaign}` |
"""


def _predicts(student: Student) -> str:
    classes = ", ".join(plain(name) for name in student.classes)
    count = len(student.classes)
    if not isinstance(student, TableStudent) or student.answer == CLASS:
        return f"It tells {count} classes apart: {classes}."
    if student.has_classes:
        return f"It tells {count} classes apart, which have an order: {classes}."
    if student.thresholds:
        return (
            f"It predicts each of {count} labels, of which an input may have any number: {classes}."
        )
    low, high = plain(student.classes[0]), plain(student.classes[-1])
    what = "the mean" if len(student.classes) == 2 else "the median; of R2, the mean"
    return f"It predicts a number from {low} to {high}: {what}."


def _taught_by(student: Student, statement: Mapping[str, object], records_vote: bool) -> str:
    code = code_of(code_of_statement(statement["mechanism"]))
    if records_vote:
        return _by_records(code)
    if not has_classes(student):
        return _OF_SEVERAL
    return {AXES: _OF_ARRAYS, EACH: _OF_COUNTS}.get(code.name, _BY_TEACHERS)


def _labels(provenance: Provenance, voters: str) -> str:
    text = f"{provenance.labels}: {provenance.from_teachers} from the {voters}' noisy votes"
    if provenance.reinforced:
        text += f", {provenance.reinforced} own predictions that the teachers did not contradict"
    return text


def _privacy(statement: Mapping[str, object]) -> str:
    said = {key: plain(str(statement[key])) for key in ("unit", "adjacency", "observer")}
    mechanism = plain(mechanism_in_words(statement["mechanism"]), _LONGEST_MECHANISM)
    epsilon, delta = float(str(statement["epsilon"])), float(str(statement["delta"]))
    lost = withdrawn(statement)
    if lost is not None:
        return f"""
## Privacy

**There is no privacy guarantee.** The statement of the campaign says of this observer,
{said["observer"]}: {plain(lost)}. `privacy.json` holds all of it.
"""
    exception = (
        f", except with a probability of about {delta:.3g}" if delta else ", without exception"
    )
    return f"""
## Privacy

What this student learnt from is differentially private, and so is whatever is made of it, the
student included: **epsilon = {rounded_up(epsilon)} at delta = {delta_rounded_up(delta)}**.

- **Unit: {said["unit"]}.** The promise is about one such unit: whoever sees the student learns nearly
  the same whether or not that unit's data was what it was. It is not about groups of them, for
  which it weakens in proportion, and not about what the public set itself shows.
- **Adjacency: {said["adjacency"]}.** This is what it means for two collections to differ in one unit.
- **Observer: {said["observer"]}.** Against this observer the figure holds. Whoever sees more than
  that, such as a party to the campaign or its server, is not covered by it.
- **Mechanism: {mechanism}**. The ledger that the figure was computed
  from ends in `{plain(str(statement["ledger_head"]))}`.

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
        f"The figure covers\nall campaigns of the series {plain(repr(series))} with its composition and no "
        "larger cap: each\nunit has its votes once in all of them. Other campaigns over the same records add "
        "to it."
    )


def withdrawn(statement: Mapping[str, object]) -> str | None:
    """Return why the statement has no guarantee towards its own observer, None if it has one."""
    observers = statement.get("statements")
    for each in observers if isinstance(observers, list) else []:
        if isinstance(each, Mapping) and each.get("observer") == statement["observer"]:
            return str(each.get("meaning", "")) if each.get("epsilon") is None else None
    return None


def promise_of(statement: Mapping[str, object]) -> str:
    """Return the guarantee of a checked statement, as one line with its terms."""
    if withdrawn(statement) is not None:
        return "no privacy guarantee: see privacy.json"
    unit = str(statement["unit"])
    among = neighbours_of(
        unit,
        records_vote=do_records_vote(statement["mechanism"]),
        series=series_of(statement),
        code=code_of_statement(statement["mechanism"]),
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


def _training(student: Student, provenance: Provenance) -> str:
    facts = "\n".join(
        f"| {plain(str(name))} | {plain(str(value))} |"
        for name, value in provenance.training.items()
    )
    said = "Labels of a noisy vote can be wrong; the training expects a few that are."
    if not has_classes(student) or not provenance.labels:
        said = "The size of the noise is known, and the training allows for it."
    return f"""
## Training

{said}

| | |
| --- | --- |
{facts}
"""


def _encoder(student: Student, statement: Mapping[str, object], onnx: Written | None) -> str:
    """Return the section on the public encoder of the campaign's inputs; "" if there is none."""
    said = statement.get("encoder")
    if student.kind != HEAD and said is None:
        return ""
    if onnx is not None and onnx.inside is not None:
        by = onnx.inside
        return f"""
## Encoder

`model.onnx` begins with a public encoder that others trained:

| | |
| --- | --- |
| name | {plain(by.name)} |
| trained by | {plain(by.trained)} |
| licence | {plain(by.licence)}; `model.onnx` has its weights, so it is under this licence, too |
| SHA-256 | `{by.digest}` |

The privacy guarantee is not about the records that the encoder was trained on.
"""
    told = (
        f"The privacy statement says of it: {plain(said, 2000)}." if isinstance(said, str) else ""
    )
    if student.kind == HEAD:
        why = "no weight of it is in this folder" + (f": {plain(onnx.alone)}." if onnx else ".")
        digest = Schema.parse(student.schema).encoder
        uses = f"The inputs are rows by the public encoder with SHA-256 `{digest}`; {why}"
    else:
        uses = (
            "The labels are of votes over rows by a public encoder. This student takes the inputs "
            "themselves: no weight of the encoder is in this folder, and none is needed."
        )
    return f"\n## Encoder\n\n{textwrap.fill(uses, 100)}\n\n{told}\n"


def _use_of_onnx(student: TableStudent, onnx: Written | None) -> str:
    if onnx is None:
        return "\nThere is no ONNX file of them.\n"
    if onnx.inside is None:
        takes = "`embeddings`, (n, d) float32: the encoder's rows after its pooling, of any length but zero"
    elif onnx.inside.texts is None:
        takes = "an image as the encoder takes it, prepared as `encoder.json` in its metadata says"
    else:
        words = onnx.inside.texts
        takes = (
            f"the tokens of a text and their mask, at most {words.longest}; texts are cut by the "
            f"encoder's {plain(words.tokenizer.file)}, which is no part of it (SHA-256 "
            f"`{words.tokenizer.sha256.hex()}`)"
        )
    gives = "probabilities of the labels" if student.thresholds else "probabilities"
    text = (
        f"`model.onnx` takes {takes}, and gives {gives}, whose names are in its metadata. Give it one input "
        "at a time: then they are within 0.001 of those of `pate-student predict`, which sums exactly."
    )
    return f"\n{textwrap.fill(text, 100)}\n"


def _use(student: Student, onnx: Written | None) -> str:
    encoder = " --encoder ENCODER_FOLDER" if student.kind == HEAD else ""
    text = f"""
## Use

    pate-student predict --model THIS_FOLDER --data DATA{encoder} --out predictions.csv

`model.json` describes the model and its preprocessing in full. No file here is a pickle.
"""
    if isinstance(student, TableStudent):
        text += """
The models are in the `.skops` files, for scikit-learn.
"""
        text += _use_of_onnx(student, onnx)
    if isinstance(student, TableStudent) and student.thresholds:
        text += """
Each label has a column of 1 and 0 and one of its probability. It is predicted from the probability
on that `model.json` has in `thresholds`: the one that makes the expected F1 on the public set largest.
"""
    if not has_classes(student):
        return text
    if isinstance(student, TableStudent) and student.answer == ORDERED:
        text += """
Of classes with an order it predicts the median: the first one with which the probabilities reach a half.
"""
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
