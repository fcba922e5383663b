"""The published rows as rows.toml has them: data, methods, settings, goals, and the words about them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

from pate.answers import CLASS
from pate.campaign.choices import Aggregator
from pate.campaign.options import MechanismOptions
from pate.codes import NEAREST
from pate.errors import UsageError

#: Bases of an epsilon: the campaign's cap, or a data-dependent bound.
Basis = Literal["cap", "paper-2017", "paper-2018", "sharp"]
_FILE: Final = Path(__file__).with_name("rows.toml")
_ALWAYS: Final = ("aggregator", "epsilon", "delta", "unit")


@dataclass(frozen=True, kw_only=True)
class Options(MechanismOptions):
    """Start options of a campaign, named as in ``pate-server`` and ``pate-party start``.

    ``teachers`` are those of a party, one number for all or one each; ``model`` is their kind.
    """

    aggregator: Aggregator = field()
    epsilon: float = field()
    delta: float = field()
    teachers: int | tuple[int, ...] = 50
    model: str = "auto"

    def told(self) -> dict[str, object]:
        """Return, by name, the options that differ from the defaults of ``pate-server``."""
        usual = MechanismOptions()
        left_out = ("teachers", "model") if self.aggregator == "neighbour" else ()
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if name not in left_out and (name in _ALWAYS or value != getattr(usual, name, None))
        }

    def teachers_of(self, parties: int) -> tuple[int, ...]:
        """Return the number of teachers of each party."""
        if isinstance(self.teachers, int):
            return (self.teachers,) * parties
        if len(self.teachers) != parties:
            raise UsageError(f"{len(self.teachers)} numbers of teachers for {parties} parties")
        return self.teachers

    def with_code(self, text: str) -> Options:
        """Return the options with a code: ``nearest-N``, or one that has Gaussian noise, as ``dense-N``.

        Records vote in one release: a row that says no other answer is not one of rounds.

        >>> records = Options(aggregator="neighbour", epsilon=1.0, delta=0.0, noise_law="geometric")
        >>> dense = records.with_code("dense-64").told()
        >>> dense["delta"], dense["answer"]
        (1e-05, 'class')
        """
        name, number = text.rsplit("-", 1)
        if name == NEAREST:
            made = replace(self, code=None, delta=0.0, noise_law="geometric")
        else:  # arrays are long in L1, so their noise is Gaussian anyway
            delta, answer = self.delta or 1e-5, self.answer or CLASS
            made = replace(self, code=text, delta=delta, noise_law=None, answer=answer)
        return replace(made, representatives=int(number))


@dataclass(frozen=True, kw_only=True)
class Paper:
    """What a paper reports: accuracies in percent, epsilon by a basis, and where, with differences."""

    accuracy: float
    epsilon: float
    delta: float
    basis: Basis
    where: str
    nonprivate: float | None = None


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The goal, set before the row was run.

    Attributes:
        figure: that is to be reached.
        least: of it, as a share; None if it is relative to the model without privacy.
        within: how far behind that model it may be, as a share, of an error as a share of that error.
        epsilon: largest allowed one, by basis.
        delta: largest allowed one of the guarantee; None: that of the options.
    """

    epsilon: dict[Basis, float]
    figure: str = "accuracy"
    least: float | None = None
    within: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        if (self.least is None) == (self.within is None):
            raise UsageError("a goal is either absolute or relative to the non-private model")


@dataclass(frozen=True, kw_only=True)
class Data:
    """A data set: its files below PATE_TEST_DATA, its encoder below PATE_TEST_ENCODERS, and its parties."""

    files: tuple[str, ...]
    encoder: str = ""
    parties: int = 5


@dataclass(frozen=True, kw_only=True)
class Words:
    """A method: its name in pictures, whether it is this project's, whether one curator has all records, and
    whether it protects all records of a party, and not one unit."""

    short: str
    ours: bool = False
    curator: bool = False
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row.

    Attributes:
        name: on the command line, and of its result.
        title: in tables.
        data: its data set, one of :data:`DATA`.
        methods: that are run.
        epsilons: at which they are run; none for a row of a campaign's own options.
        chooser: the figure that chooses settings, and the model without privacy.
        options: of the campaign; where there are ``tries``, what they have in common.
        tries: codes, of which trials on the public part choose one.
        student: trainer, as ``pate-student train --model`` names it.
        steps: of the student's training, None for its default.
        dealings: number of runs.
        parties: their number; 0: that of the data.
        unit: ``party``, or empty: a record, or a patient where the data have them.
        every_column: whether the model without privacy has more columns than the parties.
        picked: how the settings were chosen, in words.
        lacks: what cannot be run, in words.
        paper: what a paper reports, None if no paper has this row.
        goals: set before the row was run.
    """

    name: str
    title: str
    data: str
    methods: tuple[str, ...]
    epsilons: tuple[float, ...] = ()
    chooser: str = "accuracy"
    options: Options | None = None
    tries: tuple[str, ...] = ()
    student: str = "auto"
    steps: int | None = None
    dealings: int = 5
    parties: int = 0
    unit: Literal["", "party"] = ""
    every_column: bool = False
    picked: str = ""
    lacks: str = ""
    paper: Paper | None = None
    goals: tuple[Goal, ...] = ()


def _row(table: dict[str, Any]) -> Row:
    made = _frozen(table)
    if "options" in made:
        made["options"] = Options(**_frozen(made["options"]))
    if "paper" in made:
        made["paper"] = Paper(**made["paper"])
    made["goals"] = tuple(Goal(**goal) for goal in made.get("goals", ()))
    return Row(**made)


def _frozen(table: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


_READ: Final = tomllib.loads(_FILE.read_text(encoding="utf-8"))
#: Data sets by name.
DATA: Final = {name: Data(**_frozen(table)) for name, table in _READ["data"].items()}
#: Methods by name.
METHODS: Final = {name: Words(**table) for name, table in _READ["methods"].items()}
#: All rows by name, in the order of tables.
ROWS: Final = {table["name"]: _row(table) for table in _READ["row"]}
