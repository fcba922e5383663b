"""The stored result of a row: one dated JSON file with settings, versions and figures."""

from __future__ import annotations

import json
import math
import os
import platform
import re
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from benchmarks import dated
from benchmarks.commit import commit
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FORMAT: Final = "pate-paper-row/1"
#: The folder of this repository's results.
FOLDER: Final = Path(__file__).parent / "results"
#: What this benchmark writes, below the repository.
_WRITTEN: Final = ("benchmarks/papers/results", "docs/results.md")
_PACKAGES: Final = ("numpy", "scipy", "torch", "scikit-learn", "flwr")
_NAME: Final = re.compile(r"(?P<row>[a-z0-9.-]+)-(?P<date>\d{4}-\d\d-\d\d)\.json")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One seed of a row.

    Attributes:
        seed: of the student; noise is always fresh, and so is the order of the queries.
        asked: queries put to the mechanism; one asked in two rounds counts twice.
        kept: labels released.
        right: number of correct labels; None where queries have other answers than one class.
        guarantee: of the campaign's cap, data-independent: epsilon, delta, unit, adjacency,
            observer; and epsilon towards the server, None where it sees exact sums.
        charged: epsilon of the charges of this run; no guarantee.
        bounds: epsilon by bound of the exact votes, with the improved or exact conversion.
        classical: the same with the conversion that the papers used.
        student: measures on the test set by name: accuracy, balanced_accuracy, auc (two classes);
            macro_auc of several labels; mae (mean absolute error) and r2 of a number.
        seconds: wall clock by stage.
        reused: whether teachers and votes of an earlier run over the same records were reused.
    """

    seed: int
    asked: int
    kept: int
    right: int | None
    guarantee: Mapping[str, float | str | None]
    charged: float
    bounds: Mapping[str, float]
    classical: Mapping[str, float]
    student: Mapping[str, float]
    seconds: Mapping[str, float]
    reused: bool

    def figures(self) -> dict[str, float]:
        """Return every figure of a run under a flat name, for means over seeds."""
        found: dict[str, float] = {
            "asked": self.asked,
            "kept": self.kept,
            "epsilon": cast("float", self.guarantee["epsilon"]),
            "charged": self.charged,
        }
        if self.right is not None:
            found["label_accuracy"] = self.right / self.kept if self.kept else 0.0
        for prefix in ("bounds", "classical", "student", "seconds"):
            for name, value in getattr(self, prefix).items():
                found[f"{prefix}.{name}"] = value
        return found


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a row.

    Attributes:
        row: its name.
        date: ISO date of the run.
        commit: of this repository, with a + if files had changed since; None if unknown.
        versions: of Python and the packages that figures may depend on.
        machine: cores, ram_gib and gpu (its name, or None).
        settings: of the row at the time.
        split: sizes and one line on the data.
        majority: accuracy of always answering the most frequent class of the test set; 0 without classes.
        reference: figures of the model without privacy that validation records chose, as
            :func:`benchmarks.papers.reference.choice` returns them.
        runs: one per seed.
        dealings: how often the records were dealt to the parties; 0 where earlier results don't say it.
        intervals: of 95 %, low and high, by figure of the student; they have both the sampling of the test
            records (or patients) and the spread over runs. Empty in earlier results.
        note: parts that could not be run, empty if none.
    """

    row: str
    date: str
    commit: str | None
    versions: Mapping[str, str]
    machine: Mapping[str, float | str | None]
    settings: Mapping[str, object]
    split: Mapping[str, int | str]
    majority: float
    reference: Mapping[str, float | str]
    runs: tuple[Run, ...]
    dealings: int = 0
    intervals: Mapping[str, Sequence[float]] = field(default_factory=dict)
    note: str = ""
    format: str = field(default=FORMAT)

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise DataError(f"a result of format {self.format!r}, known is {FORMAT}")
        date.fromisoformat(self.date)
        if not self.runs:
            raise DataError(f"a result of row {self.row} without a run")
        if len({run.seed for run in self.runs}) != len(self.runs):
            raise DataError(f"a result of row {self.row} with a seed twice")
        for run in self.runs:
            if not 0 <= (run.right or 0) <= run.kept <= run.asked:
                raise DataError(
                    f"row {self.row}: {run.right} right of {run.kept} kept of {run.asked} asked"
                )

    @property
    def name(self) -> str:
        """Name of its row."""
        return self.row

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.row}-{self.date}.json"

    def mean(self, figure: str) -> float | None:
        """Return the mean of a figure over the seeds, None if a run lacks it."""
        values = [run.figures().get(figure) for run in self.runs]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if len(known) == len(values) else None

    def spread(self, figure: str) -> float | None:
        """Return the range of a figure over the seeds."""
        values = [value for run in self.runs if (value := run.figures().get(figure)) is not None]
        return float(np.ptp(values)) if len(values) == len(self.runs) else None

    def to_json(self) -> str:
        """Return the text of the file; it includes means and spreads for other readers."""
        body = asdict(self)
        body["summary"] = {
            name: {"mean": self.mean(name), "spread": self.spread(name)}
            for name in self.runs[0].figures()
        }
        return json.dumps(_rounded(body), indent=1, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Read back what :meth:`to_json` wrote.

        Raises:
            DataError: for another format, or fields that are unknown or missing.
        """
        try:
            body = cast("dict[str, Any]", json.loads(text))
            body.pop("summary")
            # Earlier results have a campaign's numbers in a group of their own.
            body["settings"] |= body["settings"].pop("numbers", None) or {}
            _same_fields(cls, body)
            for run in body["runs"]:
                _same_fields(Run, run)
            body["runs"] = tuple(Run(**run) for run in body["runs"])
            return cls(**body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"not a result of format {FORMAT}: {error}") from error


def latest(folder: Path) -> dict[str, Result]:
    """Return the newest result of each row in a folder.

    Raises:
        DataError: naming the invalid file.
    """
    return dated.latest(folder, Result.from_json, named=_NAME, form="ROW-DATE.json")


def rounded(epsilon: float) -> str:
    """Return epsilon with at most three decimals, rounded up: a smaller value would overstate the guarantee.

    >>> rounded(0.99911)
    '1'
    >>> rounded(0.1)
    '0.1'
    """
    # Binary rounding errors do not count: 0.1 is 0.1000...0056.
    return f"{math.ceil(epsilon * 1e3 - 1e-6) / 1e3:g}"


def surroundings() -> tuple[str | None, dict[str, str], dict[str, float | str | None]]:
    """Return commit, versions and machine: no names and no paths."""
    versions = {"python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in _PACKAGES}
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine: dict[str, float | str | None] = {
        "cores": float(os.cpu_count() or 0),
        "ram_gib": round(ram, 1),
        "gpu": _gpu(),
    }
    return commit(*_WRITTEN), versions, machine


def is_clean() -> bool:
    """Return whether the files are those of a commit, but for what this benchmark writes."""
    found = commit(*_WRITTEN)
    return found is not None and not found.endswith("+")


def _gpu() -> str | None:
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def _same_fields(kind: type[Run | Result], body: Mapping[str, object]) -> None:
    wanted = {each.name for each in fields(kind)}
    later = {"dealings", "intervals"}
    if odd := sorted((wanted ^ set(body)) - (later & wanted)):
        raise DataError(f"fields unknown or missing: {', '.join(odd)}")


def _rounded(value: object) -> object:
    """Return the same with floats rounded to seven digits, for readable diffs."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in cast("Iterable[object]", value)]
    return value
