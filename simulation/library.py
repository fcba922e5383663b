"""``pate.simulate``: the campaign of ``pate simulate``, over records in memory."""

from __future__ import annotations

import html
import io
import tempfile
import time
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pate.answers import LABELS, NONE, NUMBER, RESIDUAL_LABELS
from pate.campaign.choices import check_budget
from pate.data.cells import clean_name, float_text, parse_number
from pate.data.labels import sorted_classes
from pate.data.memory import inputs_in, is_frame, is_torch_data, label_names, records_in
from pate.data.records import Several
from pate.data.schema import Schema
from pate.encoders.reading import Reader
from pate.errors import DataError, ProtocolError, UsageError
from pate.formats.labels import checked_statement
from pate.runtime.screen import Screen
from protos.bounds import check_name
from simulation.options import SimulationOptions
from simulation.published import PublishedStudent, load_student
from simulation.report import Report, draw
from simulation.simulate import Setup, evaluated_on, simulated
from student.card import promise_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pate.accounting import Unit
    from pate.campaign.choices import Aggregation, Aggregator, NoiseSource
    from pate.data.memory import Source
    from pate.data.values import Dataset, Inputs
    from pate.formats.labels import LabelSet
    from pate.formats.privacy_statement import PrivacyStatement

#: Teachers of each party, where teachers vote.
TEACHERS: Final = 10
_DELTA: Final = 1e-5


@dataclass(frozen=True, eq=False)
class SimulatedCampaign:
    """A campaign that :func:`simulate` has run. In a notebook it shows itself as a picture.

    Attributes:
        labels: name of the class by query, a row number of the public set; none if records vote in rounds,
            which release a model, or for several labels or a number.
        statement: of privacy: epsilon, delta, unit, adjacency and observer.
        student: with ``predict`` and ``predict_proba``; None if none was trained.
        figures: the campaign in numbers; accuracies only of what had true labels. Of several labels or a
            number ``student_figures``: ``macro_auc`` and those of each label, or ``mean_absolute_error`` and
            ``r2``.
        notes: lines that the campaign would have printed as warnings.
    """

    labels: Mapping[int, str]
    statement: PrivacyStatement
    student: PublishedStudent | None
    figures: Report
    notes: tuple[str, ...]
    _released: LabelSet = field(repr=False)
    _public: Inputs = field(repr=False)
    _truth: Dataset | None = field(repr=False)

    @cached_property
    def picture(self) -> bytes:
        """The picture of the campaign, as a PNG."""
        drawn = io.BytesIO()
        draw(drawn, self.figures, self._released, self._public, self._truth)
        return drawn.getvalue()

    def __repr__(self) -> str:
        given = self._released.content_in_words
        if self.labels:
            given = f"{len(self.labels)} labels of {self.statement.queries_asked} queries asked"
        return f"{given}; {promise_of(checked_statement(self._released.privacy))}"

    def _repr_html_(self) -> str:
        """Return the same for a notebook that shows no pictures."""
        return f"<p>{html.escape(repr(self))}</p>"

    def _repr_png_(self) -> bytes:
        """Return the picture for a notebook."""
        return self.picture


class QuietScreen(Screen):
    """A screen of a program that prints nothing; it keeps the warnings."""

    def __init__(self) -> None:
        super().__init__("pate")
        self.warnings: list[str] = []

    @property
    def live(self) -> bool:
        """Whether bars move here."""
        return False

    def say(self, text: str, level: str = "info") -> None:
        """Keep a warning."""
        if level != "info":
            self.warnings.append(text)

    def show(self, renderable: object) -> None:
        """Leave a table out."""


def simulate(
    parties: Mapping[str, Source],
    public: Source,
    *,
    epsilon: float = 1.0,
    delta: float = _DELTA,
    aggregator: Aggregator = "neighbour",
    teachers: int = TEACHERS,
    rounds: int | None = None,
    release: str | None = None,
    unit: Unit = "record",
    classes: Sequence[str] | None = None,
    most_labels: int | None = None,
    range: Sequence[float] | None = None,  # noqa: A002 - as the option's name
    expected_records: int | None = None,
    aggregation: Aggregation | None = None,
    noise: NoiseSource | None = None,
    label: str | Sequence[str] | None = None,
    encoder: str | Path | None = None,
    public_labels: Source = None,
    test: Source = None,
    student: bool = True,
    seed: int = 0,
    out: str | Path | None = None,
    verbose: bool = False,
) -> SimulatedCampaign:
    """Run a campaign of several parties in this process, with the code and the noise of a deployment.

    Noise is from the operating system: no argument seeds it. Each call is a release of its own, and what
    calls over the same records cost adds up. The class list, the columns, the number of parties and
    ``expected_records`` are public.

    Args:
        parties: by name, ``(X, y)`` or ``(X, y, groups)``; a torch data set of pairs; a frame or a path with
            its labels. X is an array of (n, columns), images of (n, height, width) or with channels, or a
            data frame; groups name the patient of each record. y is a class for each record; or several
            labels, a frame or an (n, labels) array of 0 and 1; or with ``range`` a number.
        public: inputs of the same kind without labels, which may be published.
        epsilon: hard budget.
        delta: failure probability; 0 only if records vote, which is then one release with geometric noise.
        aggregator: ``neighbour``: records vote themselves, at a small epsilon; else one of the mechanisms of
            teachers, such as ``confident-gnmax``.
        teachers: of each party, if teachers vote.
        rounds: of records' votes, each of which releases a model; None: 4 where they are the default, 1: one
            release of sums. Of the interactive mechanism: rounds of labels.
        release: with ``gnmax``, what is released at once: ``counts``, ``balanced``, ``arrays`` or ``axes-K``;
            None: labels.
        unit: ``record``, ``patient`` (with groups) or ``party``.
        classes: the class list; None: the classes that occur, which the result publishes. Of several labels
            their names; None: the frame's columns, or y0, y1 and so on.
        most_labels: of several labels in one release, how many of a record count at most; the noise grows
            with its root. None: 2, or with ``rounds`` all.
        range: of a number, the lowest and the highest that count, or up to 64 ascending points with these as
            ends: with points between, the student predicts the median. It is public: no minimum of the data.
        expected_records: of all parties, if records vote: it decides where. It is public: a round number, not
            the exact one.
        aggregation: ``plain`` or ``masked``; None: masked from three parties on.
        noise: ``central`` or ``distributed``; None: as the server chooses.
        label: the column of the class or number, of frames and at paths; columns if of several labels.
        encoder: folder of a public encoder, for images or texts at paths.
        public_labels: true labels of the public set, if known: only figures use them.
        test: labelled records ``(X, y)`` on which the student is judged.
        student: whether to train one.
        seed: of the student's training only.
        out: folder for the student, the ledger and ``campaign.png``; None: nothing is stored.
        verbose: whether the campaign's lines are printed on the standard error.

    Raises:
        UsageError: for arguments that make no sense together.
        DataError, SchemaError: for records that cannot be used.
        BudgetError: if the budget pays for nothing.
    """
    began = time.monotonic()
    check_budget(epsilon, delta, records_vote=aggregator == "neighbour")
    screen = Screen("pate") if verbose else QuietScreen()
    reader = Reader.open(None if encoder is None else Path(encoder), bar=screen.bar)
    own = (label,) if isinstance(label, str) else tuple(label or ())
    inputs = inputs_in(public, drop=own, encoder=reader, say=screen.say)
    schema = Schema.of(inputs)
    if not parties:
        raise UsageError("name at least one party")
    if classes is not None:
        classes = tuple(clean_name(str(each)) for each in classes)
    given = {name: parts_of(name, each) for name, each in parties.items()}
    several = _several(next(iter(given.values())), label, classes, range)
    read = partial(
        records_in, schema=schema, label=label if isinstance(label, str) else None, several=several,
        encoder=reader,
    )  # fmt: skip
    held = {
        name: read(*each, classes=classes, say=screen.say) for name, each in sorted(given.items())
    }
    if unit == "patient" and any(each.groups is None for each in held.values()):
        raise UsageError("unit patient needs the group of each record: give (X, y, groups)")
    listed = several.labels
    if not several:
        listed = tuple(classes or sorted_classes(n for each in held.values() for n in each.classes))
        _require_no_fractions(listed if classes is None else ())
    wrong = [name for name in listed if "," in name]
    if wrong:
        raise UsageError(f"the name of a class has no comma: rename {wrong[0]!r}")
    held = {name: each.with_classes(listed) for name, each in held.items()}
    with tempfile.TemporaryDirectory(prefix="pate-simulate-") as scratch:
        place = Path(scratch) if out is None else Path(out)
        answer = NUMBER if several else None
        if several.labels:
            in_rounds = rounds is not None and most_labels is None and aggregator == "neighbour"
            answer = RESIDUAL_LABELS if in_rounds else f"{LABELS}-{most_labels or 2}"
        setting = SimulationOptions(
            parties=len(held),
            teachers=teachers,
            aggregator=aggregator,
            rounds=rounds,
            release=release,
            epsilon=epsilon,
            delta=delta,
            aggregation=aggregation,
            noise=noise,
            student=student,
            processes=0,
            out=place,
        )
        setup = Setup(
            held, inputs, listed, unit, expected_records, reader, seed,
            answer=answer,
            range=None if range is None else ",".join(float_text(each) for each in range),
        )  # fmt: skip
        done = simulated(setting, setup, screen)
        truth = (
            None
            if public_labels is None
            else records_in(inputs, public_labels, classes=listed, several=several)
        )
        judged = None if test is None else read(*parts_of("test", test), classes=listed)
        trained = evaluation = None
        if done.student is not None:
            trained = load_student(done.student, encoder=encoder)
            evaluation = None if judged is None else evaluated_on(done.student, judged)
        report = Report.of(
            done.statement,
            done.labels,
            parties=len(held),
            truth=truth,
            test=judged,
            mechanism=aggregator,
            teachers=done.teachers,
            evaluation=evaluation,
            seconds=time.monotonic() - began,
            files={} if out is None else {"folder": str(place)},
        )
    made = SimulatedCampaign(
        MappingProxyType({row.query: listed[row.label] for row in done.labels.rows}),
        done.statement,
        trained,
        report,
        tuple(screen.warnings) if isinstance(screen, QuietScreen) else (),
        done.labels,
        inputs,
        truth,
    )
    if out is not None:
        (place / "campaign.png").write_bytes(made.picture)
    return made


def _several(
    first: tuple[Source, ...],  # a party's, of which it is taken what all parties have
    label: str | Sequence[str] | None,
    classes: tuple[str, ...] | None,
    range_: Sequence[float] | None,
) -> Several:
    """Return which labels records have, or that they have a number; false for one class."""
    if range_ is not None:
        if classes is not None or not isinstance(label, str | None):
            raise UsageError(
                "range is of one number a record: leave out classes, and other columns"
            )
        return Several((), label or "y")
    names = None if label is None or isinstance(label, str) else tuple(label)
    if names is None and (len(first) > 1 or is_torch_data(first[0])):
        names = label_names(first[1] if len(first) > 1 else first[0])
    if names is None:
        return Several((), None)
    names = tuple(map(clean_name, names)) if classes is None else classes
    if len({*names}) != len(names) or NONE in names:
        raise UsageError(f"a label is named twice, or {NONE!r}: {', '.join(names):.200}")
    return Several(names, None)


def _require_no_fractions(classes: Sequence[str]) -> None:
    """Refuse numbers as classes where nobody has named them."""
    numbers = [parse_number(name) for name in classes]
    known = [number for number in numbers if number is not None]
    if len(known) == len(numbers) and not all(number.is_integer() for number in known):
        raise UsageError(
            "y has numbers with fractions: state range=(lowest, highest), which is public, or classes="
        )


def parts_of(name: str, given: Source) -> tuple[Source, ...]:
    """Return a party's records, its labels and its groups, as far as they are given apart.

    Raises:
        UsageError: if the name cannot be a party's, or it is no (X, y).
    """
    try:
        check_name(name)
    except ProtocolError as error:
        raise UsageError(
            f"{name!r:.80} cannot name a party: letters, digits, -, _ and ."
        ) from error
    if isinstance(given, tuple):
        if len(given) not in (2, 3):
            raise UsageError(f"{name}: give (X, y) or (X, y, groups), not {len(given)} parts")
        return given
    if is_frame(given) or is_torch_data(given) or isinstance(given, str | Path):
        return (given,)
    raise DataError(f"{name}: records come with their labels: give (X, y)")
