"""What a row of the table is: its data, settings, goals and published figures."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final, Literal

from pate.campaign.options import MechanismOptions
from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.campaign.choices import Aggregator

#: Bases of an epsilon: the campaign's cap, or a data-dependent bound.
Basis = Literal["cap", "paper-2017", "paper-2018", "sharp"]
_ALWAYS: Final = ("aggregator", "epsilon", "delta", "unit")


@dataclass(frozen=True, kw_only=True)
class Options(MechanismOptions):
    """Start options of a campaign, named as in ``pate-server`` and ``pate-party start``.

    Attributes:
        teachers: per party, one number for all or one each; ignored by neighbour votes.
        model: kind of the teachers.
    """

    aggregator: Aggregator = field()
    epsilon: float = field()
    delta: float = field()
    teachers: int | tuple[int, ...] = 50
    model: str = "auto"

    def told(self) -> dict[str, object]:
        """Return, by name, the options that differ from the defaults of ``pate-server``."""
        usual = MechanismOptions()
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if name in _ALWAYS or value != getattr(usual, name, None)
        }

    def teachers_of(self, parties: int) -> tuple[int, ...]:
        """Return the number of teachers of each party.

        Raises:
            UsageError: if there is not one number for each.
        """
        if isinstance(self.teachers, int):
            return (self.teachers,) * parties
        if len(self.teachers) != parties:
            raise UsageError(f"{len(self.teachers)} numbers of teachers for {parties} parties")
        return self.teachers


@dataclass(frozen=True, kw_only=True)
class Paper:
    """What a paper reports.

    Attributes:
        accuracy: of the student, percent.
        epsilon: at ``delta``.
        delta: failure probability.
        nonprivate: accuracy without privacy, percent, or None.
        basis: the bound of its epsilon, one of those that we compute.
        where: the paper, and differences from our setting.
    """

    accuracy: float
    epsilon: float
    delta: float
    nonprivate: float | None
    basis: Basis
    where: str


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The goal, set before the row was run.

    Attributes:
        figure: the measure, a name in :meth:`benchmarks.papers.record.Run.figures`.
        least: of it, as a share; None if it is relative to the non-private model.
        within: how far behind the non-private model it may be, as a share, of an error as a share of
            that error; None if it is absolute.
        epsilon: largest allowed one, by basis.
        delta: largest allowed one of the guarantee; None: that of the options.
    """

    figure: str = "student.accuracy"
    least: float | None = None
    within: float | None = None
    epsilon: Mapping[Basis, float]
    delta: float | None = None

    def __post_init__(self) -> None:
        if (self.least is None) == (self.within is None):
            raise UsageError("a goal is either absolute or relative to the non-private model")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the table.

    Attributes:
        name: on the command line, and of its results.
        title: in the table.
        data: module of :mod:`benchmarks.papers.data` whose ``load()`` returns the split.
        files: that it needs, below the folder of the data sets.
        options: of the campaign; where there are ``tries``, what they have in common.
        tries: options of which :mod:`benchmarks.papers.choose` takes one before the row's campaign.
        parties: their number; with ``sites`` that of the data's sites.
        sites: whether the parties are those of the data's ``sites()``.
        student: trainer, as ``pate-student train --model`` names it.
        steps: of the student's training, None for its default.
        paper: or None if no paper has this row.
        wanted: goals.
        hurdle: why it was not run, in a sentence; empty otherwise.
        picked: how the settings were chosen, in one sentence.
        encoder: folder of PATE_TEST_ENCODERS with the public encoder of the inputs; "" for none.
        votes: published votes of :mod:`benchmarks.papers.published`, for a campaign if the files are missing.
    """

    name: str
    title: str
    data: str
    files: tuple[str, ...]
    options: Options
    tries: tuple[Options, ...] = ()
    parties: int = 5
    sites: bool = False
    student: str = "auto"
    steps: int | None = None
    paper: Paper | None = None
    wanted: tuple[Wanted, ...] = ()
    hurdle: str = ""
    picked: str = "the paper's"
    encoder: str = ""
    votes: str | None = None

    @property
    def chooser(self) -> str:
        """Return the figure that chooses the model without privacy: the goals' first AUC or error, if any."""
        names = [wanted.figure.removeprefix("student.") for wanted in self.wanted]
        return next((name for name in names if name != "accuracy"), "accuracy")

    def settings(self) -> dict[str, object]:
        """Return its settings as a result stores them, but for the encoder's."""
        tries = {"tries": [each.told() for each in self.tries]} if self.tries else {}
        return (
            self.options.told()
            | tries
            | {
                "parties": self.parties,
                "student": self.student,
                "steps": self.steps,
                "picked": self.picked,
            }
        )
