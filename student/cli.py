"""``pate-student``: train, evaluate, predict, export."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import click

from pate.errors import DataError, ProtocolError, UsageError
from pate.runtime.command import print_json, run
from pate.runtime.help import Commands
from pate.runtime.options import (
    DicomLabelsOption,
    EncoderOption,
    JsonOption,
    LabelOption,
    TextOption,
    WindowOption,
    of_output,
    takes,
)
from pate.runtime.screen import Screen
from student.options import (
    DataPath,
    GroupColumnOption,
    ModelFolder,
    PatientColumnOption,
    PositiveOption,
    SensitivityOption,
    ThresholdOption,
    TrainOptions,
)
from student.output import (
    answers_csv,
    chosen_here,
    confusion_grid,
    decision_grid,
    group_grid,
    measures_grid,
    never_silent,
    predictions_csv,
    tell_few_labels,
    tell_published,
    tell_remarks,
)
from student.reading import (
    columns_of,
    is_table,
    label_file,
    labelled_data,
    public_inputs,
    public_set,
    teaches_own_network,
    test_data,
    token_for,
)

if TYPE_CHECKING:
    from pate.data.values import Images, Inputs
    from pate.formats.labels import LabelSet
    from student.arrivals import Campaign
    from student.evaluation.evaluate import AnyEvaluation, LabelledData
    from student.lesson import Lesson, Student
    from student.session import Trainer

NAME = "pate-student"

app = Commands(
    name=NAME,
    no_args_is_help=True,
    help="""Learn from the labels that a PATE campaign releases.

    The student sees unlabelled public inputs and a few hundred noisy labels, never a private
    record. What it publishes carries the privacy statement of the campaign.

    For example: pate-student train --public ./public
    """,
)


@app.command()
@takes(TrainOptions)
def train(options: TrainOptions) -> None:
    """Train a student on the labels of a campaign and publish it.

    The student follows the campaign of --server to its end; where the mechanism asks for the
    student's predictions between rounds, it trains and gives them. With --labels it needs no
    server; several are campaigns of one series over one public set, the oldest first.

    The folder gets model.json, the weights (safetensors for images, skops for others; ONNX for images
    and embeddings), privacy.json, and README.md, a model card. It appears whole or not at all.
    """
    from student.export import scratch
    from student.series import together
    from student.session import check_labels, graduate
    from student.training import IMAGE_MODELS, choose

    click.get_current_context().with_resource(scratch(options.out, replace=options.force))
    released = None
    if options.labels:
        released = together([label_file(each) for each in options.labels], options.half_life)
    screen = Screen(NAME)
    inputs, pixels = public_set(options, screen)
    kind = choose(options.model, inputs)
    if kind in IMAGE_MODELS:
        from student.fit.network import choose_device

        choose_device(options.device)
    if released is not None:
        check_labels(released, inputs)
    measured = None
    # Of a server only the end says that a campaign is of several labels, whose columns have their names.
    early = released is not None or options.label is not None or not is_table(inputs)
    if options.test is not None and early:
        measured = test_data(options, released, screen)
    screen.say(f"public set: {len(inputs)} inputs, {_shortened(inputs.schema())}")
    trainer = _trainer(kind, options, screen, pixels)
    name = ""
    if released is None:
        released, name = _follow(options, inputs, trainer, measured, screen, pixels)
    if options.test is not None and not (early and columns_of(released)[0] == "class"):
        measured = test_data(options, released, screen)
    facts = {
        "seed": options.seed,
        "steps": options.steps or "default",
        "time limit, s": options.seconds or "none",
    }
    if len(options.labels or ()) > 1:
        facts |= {
            "campaigns": len(options.labels or ()),
            "half-life, campaigns": options.half_life or "none",
        }
    tell_few_labels(released, screen)
    with never_silent(screen, "final student"):
        published = graduate(
            released,
            inputs,
            trainer,
            options.out,
            facts=facts,
            name=name,
            test=measured,
            encoder=options.encoder,
            say=screen.say,
            seen=pixels,
        )
    tell_published(
        published,
        released,
        options.out,
        screen,
        as_json=options.as_json,
        command={
            "label": options.label,
            "text": options.text,
            "dicom-labels": options.dicom_labels,
            "encoder": None if teaches_own_network(options) else options.encoder,
        },
    )


@app.command()
def evaluate(
    model: ModelFolder,
    data: DataPath,
    label: LabelOption = None,
    group_column: GroupColumnOption = None,
    patient_column: PatientColumnOption = None,
    positive: PositiveOption = None,
    threshold: ThresholdOption = None,
    at_sensitivity: SensitivityOption = None,
    out: Annotated[
        Path | None,
        of_output(
            metavar="DIR", help="For the figures. Default: MODEL-evaluation/DATA beside the model"
        ),
    ] = None,
    text: TextOption = None,
    dicom_labels: DicomLabelsOption = None,
    window: WindowOption = None,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a student on labelled data.

    Accuracy, area under the ROC curve, Brier score, calibration, recall per class, confusion matrix.

    Of several labels the area and F1 of each; of a number the mean absolute error and R2.

    With --group-column also accuracy, recall and predictions of each group, and which differences
    are more than chance.

    Of two classes also sensitivity, specificity and precision at a threshold. --at-sensitivity chooses
    one by these very labels: measure the student at it (--threshold) on other data.

    The data should be public: numbers measured on private records are a release of their own.
    """
    from student.evaluation.evaluate import Evaluation, evaluated
    from student.evaluation.scores import Question
    from student.lesson import has_classes
    from student.weights import load

    screen = Screen(NAME)
    student, question = load(model), Question(positive, threshold, at_sensitivity)
    kind = "class"
    if has_classes(student):
        question.positive_of(student.classes)  # before reading much
    elif question != Question() or group_column is not None:
        raise UsageError(
            "--positive, --threshold, --at-sensitivity and --group-column are for students of classes"
        )
    else:
        kind = "labels" if getattr(student, "thresholds", ()) else "number"
    test = labelled_data(
        data,
        label,
        group_column,
        patient_column,
        window,
        (kind, student.classes),
        encoder,
        text=text,
        dicom_labels=dicom_labels,
        screen=screen,
    )
    result = evaluated(student, test, question=question)
    out = _write_figures(result, model, out, test.name)
    if as_json:
        print_json(result.to_json())
        return
    if not isinstance(result, Evaluation):
        screen.show(measures_grid(result))
        screen.say(result.in_words)
        return
    screen.show(confusion_grid(result))
    screen.show(measures_grid(result))
    if result.groups is not None:
        screen.show(group_grid(result.groups))
    if result.decision is not None:
        at = Evaluation(result.classes, result.decision.confusion)
        screen.show(confusion_grid(at, ", at the threshold"))
        screen.show(decision_grid(result.decision))
        if result.decision.wanted is not None:
            screen.say(chosen_here(result.decision), "warning")
    else:
        command = {
            "model": model, "label": label, "text": text, "dicom-labels": dicom_labels,
            "encoder": encoder,
        }  # fmt: skip
        tell_remarks(result, command, screen)
    screen.say(f"{result.in_words}; pictures in {out}: evaluation.png, calibration.png")


@app.command()
def predict(
    model: ModelFolder,
    data: DataPath,
    out: Annotated[Path, of_output(metavar="FILE.csv", help="Where to write.")],
    positive: PositiveOption = None,
    threshold: ThresholdOption = None,
    text: TextOption = None,
    window: WindowOption = None,
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write predictions and probabilities of each input as CSV.

    The class is the most probable one, of ordered classes the median; with --threshold it is the
    positive one of two classes where its probability is large enough.
    """
    from pate.runtime.home import write_file
    from student.evaluation.scores import Question
    from student.fit.rows import TableStudent
    from student.lesson import answer_in, decided
    from student.weights import load

    student = load(model)
    screen = Screen(NAME)
    inputs = public_inputs(data, (), window, screen, encoder, text=text)
    if isinstance(student, TableStudent) and not student.has_classes:
        if positive is not None or threshold is not None:
            raise UsageError("--positive and --threshold are for students of classes")
        content, used = answers_csv(student, inputs), dict[str, object]()
    else:
        rule = Question(positive, threshold).rule(student.classes)
        if rule is None and positive is not None:
            raise UsageError("--positive changes no prediction without --threshold")
        probabilities = student.predict_probabilities(inputs)
        if rule is None:
            predicted = decided(answer_in(student), probabilities)
        else:
            predicted = rule.predict(probabilities)
        content = predictions_csv(student.classes, probabilities, predicted)
        named = None if rule is None else student.classes[rule.positive]
        used = {"threshold": threshold, "positive_class": named}
    write_file(out, content, mode=0o644)
    if as_json:
        print_json({"rows": len(inputs), "file": str(out), **used})
    else:
        screen.say(f"{len(inputs)} predictions in {out}")


@app.command()
def export(
    model: ModelFolder,
    out: Annotated[Path, of_output(metavar="FILE", help="Where to write.")],
    form: Annotated[
        Literal["onnx"], of_output("--format", help="onnx: of images or embeddings.")
    ] = "onnx",
    encoder: EncoderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a student in another form.

    A published student of images or embeddings has model.onnx beside its weights already; this makes it
    again from the weights, so that the two can be compared.

    With --encoder the file of a student of embeddings has the encoder, too, and takes what that takes;
    without, it takes embeddings.
    """
    del form  # there is only one
    from student.onnx_graph import write
    from student.weights import load

    made = write(load(model), out, encoder)
    screen = Screen(NAME)
    if made.alone:
        screen.say(f"{out} has the head only: {made.alone}")
    if as_json:
        inside = None if made.inside is None else made.inside.digest
        print_json({"file": str(out), "sha256": made.sha256, "encoder": inside})
    else:
        screen.say(f"{out} written, SHA-256 {made.sha256}")


def _write_figures(result: AnyEvaluation, model: Path, out: Path | None, data: str) -> Path:
    """Write an evaluation into its folder, by default one for each data, and return that."""
    from student.export import write_evaluation

    if out is None:
        # Not in the student's folder: it is published, and figures of these data may be private.
        place = model.resolve()
        out = place.with_name(f"{place.name}-evaluation") / (data or "data")
    out.mkdir(parents=True, exist_ok=True)
    write_evaluation(result, out, _promise(model))
    return out


def _promise(model: Path) -> str:
    """Return the guarantee of the statement next to a model, in one line; empty without one."""
    from pate.formats.labels import checked_statement
    from student.card import promise_of
    from student.export import PRIVACY

    try:
        return promise_of(checked_statement((model / PRIVACY).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError, DataError):
        return "no privacy guarantee is known: privacy.json cannot be read"


def _trainer(kind: str, options: TrainOptions, screen: Screen, pixels: Images | None) -> Trainer:
    from pate.features.progress import telling
    from student.lesson import Effort

    def train_for(lesson: Lesson, number: int) -> Student:
        from student.training import train as teach

        title = f"student for round {number}" if number else "final student"
        given = f"{len(lesson.queries)} labels"
        if lesson.noisy is not None and not len(lesson.queries):
            given = lesson.noisy.in_words
        screen.say(f"training the {title} on {given}")
        describing = screen.bar("describing the public inputs", percent=True, late=True)
        with (
            never_silent(screen, title),
            screen.bar(title) as move,
            describing as described,
            telling(described),
        ):
            return teach(
                replace(lesson, pixels=pixels),
                model=kind,
                seed=options.seed + number,
                device=options.device,
                effort=Effort(options.steps, options.seconds),
                progress=lambda step, total, _loss: move(step, total),
            )

    return train_for


def _follow(
    options: TrainOptions,
    inputs: Inputs,
    trainer: Trainer,
    test: LabelledData | None,
    screen: Screen,
    pixels: Images | None,
) -> tuple[LabelSet, str]:
    from pate.formats.enrolment import split_address
    from pate.runtime.child import LOCAL_STUDENT_SERVICE
    from student.client import StudentClient
    from student.evaluation.evaluate import evaluate
    from student.session import follow, identify

    server = options.server or LOCAL_STUDENT_SERVICE
    try:
        host, _ = split_address(server)
    except ProtocolError as error:
        raise UsageError(f"--server: {error}") from error
    try:
        certificates = None if options.ca is None else options.ca.read_bytes()
    except OSError as error:
        raise UsageError(f"--ca {options.ca}: {error.strerror}") from error
    client = StudentClient(
        server,
        identify(inputs),
        max_wait=options.max_wait,
        say=screen.say,
        root_certificates=certificates,
    )
    with client:
        campaign = client.campaign()
        named = repr(campaign.name) if campaign.name else campaign.id.hex()[:12]
        screen.say(f"campaign {named}: {campaign.announced.aggregator}")
        if campaign.expected:
            screen.say(f"before the labels: {campaign.expected}", "warning")
        # Only now: a server started at the same time has created the file once it answers.
        client.token = token_for(options.token_file, host)
        if client.token is None:
            _do_without_token(campaign, screen)
        measure = None if test is None else lambda student: evaluate(student, test.records).accuracy
        labels = follow(client, inputs, trainer, say=screen.say, measure=measure, seen=pixels)
        return labels, campaign.name


def _do_without_token(campaign: Campaign, screen: Screen) -> None:
    """Report what a student without a token cannot do."""
    if campaign.announced.aggregator == "interactive-gnmax" and campaign.phase != "finished":
        raise UsageError(
            "this campaign waits for the student's predictions, and takes them with the server's "
            "token only: give --token-file with student.token of the server's home, or a copy of it"
        )
    screen.say(
        "no token (--token-file): the labels are read, and the server goes on waiting for its student"
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def main() -> NoReturn:
    """Run the command."""
    run(app, NAME)
