"""The stored results: one dated JSON file per data set, whose figures each name their commit."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import commit as commits
from benchmarks import dated
from benchmarks.measure import Estimate
from benchmarks.versus.method import Cost
from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = "pate-versus/1"
#: What this benchmark writes, below the repository.
_WRITTEN: Final = (
    "benchmarks/versus/results", "docs/versus.md", "docs/versus-tables.md", "docs/images",
)  # fmt: skip
FOLDER: Final = Path(__file__).parent / "results"
#: The data sets, in the order of the page.
TITLES: Final = {
    "heart": "Heart Disease",
    "adult": "Adult",
    "diabetes": "Diabetes, readmitted within 30 days",
    "ag-news": "AG News, MiniLM",
    "cifar10": "CIFAR-10, EfficientNet-Lite0",
    "mnist": "MNIST",
}
#: Of these the parties are sites, and no dealing divides the records.
SITES: Final = ("heart",)
_NAME: Final = re.compile(r"(?P<name>[a-z0-9-]+?)-(?P<date>\d{4}-\d\d-\d\d)\.json")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method at one epsilon.

    Attributes:
        method: its name.
        epsilon: of a unit added or removed; None without a guarantee.
        delta: of the guarantee; None without one.
        setting: that the chooser took.
        tried: number of settings.
        validation: figure of the setting on validation records; None where there was no choice.
        accuracy: on the test records.
        auc: the same.
        cost: of a party, mean over dealings.
        commit: of this repository.
    """

    method: str
    epsilon: float | None
    delta: float | None
    setting: Mapping[str, float | int | str]
    tried: int
    validation: float | None
    accuracy: Estimate
    auc: Estimate
    cost: Cost
    commit: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """All figures of one data set.

    Attributes:
        name: of the data set.
        date: ISO date on which the run began.
        sizes: of its parts, in records; ``units`` of the private part, ``parties``, ``classes``.
        unit: record or patient.
        goal: the figure by which settings were chosen, accuracy or auc.
        note: one line on the parts.
        majority: share of the commonest class among the test records.
        versions: of the packages.
        cells: no method and epsilon twice.
    """

    name: str
    date: str
    sizes: Mapping[str, int]
    unit: str
    goal: str
    note: str
    majority: float
    versions: Mapping[str, str]
    cells: tuple[Cell, ...]
    format: str = FORMAT

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise DataError(f"a result of format {self.format!r}, known is {FORMAT}")
        keys = [(cell.method, cell.epsilon) for cell in self.cells]
        if len(set(keys)) != len(keys):
            raise DataError(f"a result of {self.name} with a method and epsilon twice")

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.name}-{self.date}.json"

    def cell(self, method: str, epsilon: float | None) -> Cell | None:
        """Return a method's figures at one epsilon, None if it did not run."""
        found = [each for each in self.cells if (each.method, each.epsilon) == (method, epsilon)]
        return found[0] if found else None

    def with_cell(self, cell: Cell) -> Result:
        """Return the same with one cell added or replaced."""
        others = [
            each
            for each in self.cells
            if (each.method, each.epsilon) != (cell.method, cell.epsilon)
        ]
        return replace(self, cells=(*others, cell))

    def to_json(self) -> str:
        """Return the text of the file."""
        return json.dumps(_rounded(asdict(self)), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Read back what :meth:`to_json` wrote.

        Raises:
            DataError: for another format.
        """
        try:
            body: dict[str, Any] = json.loads(text)
            cells = []
            for each in body.pop("cells"):
                for figure in ("accuracy", "auc"):
                    dealings = tuple(each[figure].pop("dealings"))
                    each[figure] = Estimate(**each[figure], dealings=dealings)
                each["cost"] = Cost(**each["cost"])
                cells.append(Cell(**each))
            return cls(**body, cells=tuple(cells))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"not a result of format {FORMAT}: {error}") from error


def commit() -> str:
    """Return the commit of this repository, with a + if files had changed since.

    Raises:
        UsageError: where there is no repository.
    """
    found = commits.commit(*_WRITTEN)
    if found is None:
        raise UsageError("results need the repository: no commit was found")
    return found


def latest(folder: Path) -> dict[str, Result]:
    """Return the newest result of each data set in a folder.

    Raises:
        DataError: naming the invalid file.
    """
    return dated.latest(folder, Result.from_json, named=_NAME, form="DATA-DATE.json")


def _rounded(value: object) -> object:
    """Return the same with floats of seven digits, for readable differences."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value
