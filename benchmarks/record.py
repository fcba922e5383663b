"""The stored result of a row: one JSON file of figures, with settings, versions and commit."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from pate.errors import DataError

FORMAT: Final = "pate-benchmark/1"
#: Of the repository.
ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results"
#: What benchmarks write, below the repository: it influences no figure.
_WRITTEN: Final = ("benchmarks/results", "docs")
_PACKAGES: Final = ("numpy", "scipy", "torch", "scikit-learn", "flwr", "opacus")


@dataclass(frozen=True)
class Estimate:
    """A mean over runs with its 95 % interval; low and high are None where it was never computed."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Cost:
    """What one training asks of a party, the largest of all parties.

    Attributes:
        exchanges: requests that a party answers, one after the other.
        up: bytes that it sends.
        down: bytes that it receives.
        seconds: of a processor that it computes, which other work on the machine does not change.
        waiting: such seconds of the server, or the curator.
        numbers: of one sum over records; 0 for a method that is no such sum.
        steps: at which one would be summed by parties that give no records away.
    """

    exchanges: int
    up: int
    down: int
    seconds: float
    waiting: float = 0.0
    numbers: int = 0
    steps: int = 0

    @classmethod
    def of_parties(cls, parties: list[Cost], seconds: float) -> Cost:
        """Return the largest cost of any party, by kind; the server has the rest of ``seconds`` in all."""
        most = {
            name: max(getattr(cost, name) for cost in parties)
            for name in ("exchanges", "up", "down", "seconds")
        }
        return cls(**most, waiting=max(seconds - sum(cost.seconds for cost in parties), 0.0))

    @classmethod
    def mean(cls, costs: list[Cost]) -> Cost:
        """Return the mean over trainings; numbers and steps are the same in all."""
        found: dict[str, Any] = {}
        for one in fields(cls):
            mean = float(np.mean([getattr(cost, one.name) for cost in costs]))
            found[one.name] = mean if one.name in ("seconds", "waiting") else round(mean)
        return cls(**found)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One dealing of the records, with a student's seed; noise is always fresh.

    Attributes:
        seed: of the dealing and the student.
        figures: on the test records by name.
        counts: queries ``asked``, labels ``kept`` and ``right``.
        epsilons: ``charged`` in this run, which guarantees nothing.
        bounds: epsilon of the exact votes by bound: improved or exact, and with the papers' conversion.
        seconds: wall clock by stage.
        reused: whether teachers and votes of an earlier run over the same records were used.
    """

    seed: int
    figures: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    epsilons: dict[str, float] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    reused: bool = False

    def __post_init__(self) -> None:
        asked, kept, right = (self.counts.get(name, 0) for name in ("asked", "kept", "right"))
        if not 0 <= right <= kept <= asked:
            raise DataError(f"{right} right of {kept} kept of {asked} asked")

    def value(self, name: str) -> float | None:
        """Return a number of the run by name, as ``kept``, ``label_accuracy`` or ``bounds.sharp``."""
        if name == "label_accuracy":
            kept, right = self.counts.get("kept"), self.counts.get("right")
            return None if kept is None or right is None else right / max(kept, 1)
        group, _, inner = name.rpartition(".")
        if group in ("bounds", "classical"):
            pair = self.bounds.get(inner)
            return None if pair is None else pair[group == "classical"]
        if group == "seconds":
            return self.seconds.get(inner)
        return {**self.figures, **self.epsilons, **self.counts}.get(name)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method at one epsilon.

    Attributes:
        method: its name.
        epsilon: of the guarantee; None without one.
        delta: of the guarantee; None without one.
        guarantee: of a campaign: unit, observer, adjacency, and epsilon towards the server.
        setting: that was chosen, or that the row has.
        tried: number of settings.
        validation: figure of the setting on validation records; None where there was no choice.
        choice: what the choice rests on, in words.
        figures: on the test records by name.
        beside: best test figures of the models that were not chosen.
        runs: one per dealing.
        cost: of a party, mean over dealings.
        commit: of this repository, with a + if files had changed since; None if unknown.
        date: on which it began, where that is not the result's.
        versions: that the result does not have.
    """

    method: str
    epsilon: float | None = None
    delta: float | None = None
    guarantee: dict[str, Any] = field(default_factory=dict)
    setting: dict[str, Any] = field(default_factory=dict)
    tried: int = 1
    validation: float | None = None
    choice: str = ""
    figures: dict[str, Estimate] = field(default_factory=dict)
    beside: dict[str, float] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    cost: Cost | None = None
    commit: str | None = None
    date: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len({run.seed for run in self.runs}) != len(self.runs):
            raise DataError(f"{self.method} with a seed twice")

    @property
    def key(self) -> tuple[object, ...]:
        """What no other cell of a result has."""
        return self.method, self.epsilon, self.setting.get("month")

    def mean(self, name: str) -> float | None:
        """Return the mean of a number over the runs; None if one lacks it."""
        values = self._values(name)
        return None if values is None else float(np.mean(values))

    def spread(self, name: str) -> float | None:
        """Return the largest less the least of a number over the runs; None if one lacks it."""
        values = self._values(name)
        return None if values is None else float(np.ptp(values))

    def _values(self, name: str) -> list[float] | None:
        values = [value for run in self.runs if (value := run.value(name)) is not None]
        return values if self.runs and len(values) == len(self.runs) else None


@dataclass(frozen=True, kw_only=True)
class Result:
    """All figures of a row.

    Attributes:
        row: its name.
        date: ISO date on which the run began.
        data: sizes of the parts, the unit, the share of the commonest class, and one line on them.
        versions: of Python and the packages that figures may depend on.
        machine: cores, ram_gib and gpu; empty where it was not recorded.
        note: what could not be run, empty if nothing.
        cells: by method and epsilon, none twice.
    """

    row: str
    date: str
    data: dict[str, Any]
    versions: dict[str, str]
    machine: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    cells: tuple[Cell, ...] = ()

    def __post_init__(self) -> None:
        date.fromisoformat(self.date)
        if len({cell.key for cell in self.cells}) != len(self.cells):
            raise DataError(f"{self.row} with a method and epsilon twice")

    @classmethod
    def begun(cls, row: str, data: dict[str, Any], **others: Any) -> Result:
        """Return the result of a run that begins now, on this machine."""
        today = datetime.now(UTC).date().isoformat()
        versions, machine = surroundings()
        return cls(row=row, date=today, data=data, versions=versions, machine=machine, **others)

    @property
    def campaign(self) -> Cell | None:
        """The first cell of this project, None if it has none."""
        return next((cell for cell in self.cells if cell.method in ("records", "teachers")), None)

    def cell(self, method: str, epsilon: float | None = None) -> Cell | None:
        """Return a method's figures at one epsilon, None if it did not run."""
        found = [one for one in self.cells if (one.method, one.epsilon) == (method, epsilon)]
        return found[0] if found else None

    def with_cell(self, cell: Cell, *, at_any: bool = False) -> Result:
        """Return the same with one cell added or replaced.

        ``at_any``: it replaces those of its method at any epsilon, as where the ledger says which it came to.
        """
        others = [
            each
            for each in self.cells
            if each.key != cell.key and not (at_any and each.method == cell.method)
        ]
        return replace(self, cells=(*others, cell))

    def to_json(self) -> str:
        """Return the text of the file: what is empty is left out, floats have seven digits."""
        return _lines(_told({"format": FORMAT, **asdict(self)})) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Read back what :meth:`to_json` wrote."""
        try:
            body = cast("dict[str, Any]", json.loads(text))
            if body.pop("format") != FORMAT:
                raise DataError(f"not of format {FORMAT}")
            return cls(**body | {"cells": tuple(_cell(each) for each in body["cells"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"not a result of format {FORMAT}: {error}") from error

    def write(self, folder: Path = RESULTS) -> Path:
        """Write it to its file in a folder, in the place of an earlier one."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.row}.json"
        path.write_text(self.to_json(), encoding="utf-8")
        return path


def read(row: str, folder: Path = RESULTS) -> Result | None:
    """Return the result of a row in a folder; None without one."""
    path = folder / f"{row}.json"
    if not path.is_file():
        return None
    try:
        found = Result.from_json(path.read_text(encoding="utf-8"))
    except DataError as error:
        raise DataError(f"{path.name}: {error}") from error
    if found.row != row:
        raise DataError(f"{path.name} is of the row {found.row}")
    return found


def read_all(folder: Path = RESULTS) -> dict[str, Result]:
    """Return the results in a folder in the order of rows.toml."""
    from benchmarks.rows import ROWS

    if odd := sorted({path.stem for path in folder.glob("*.json")} - set(ROWS)):
        raise DataError(f"there is no row {odd[0]}: remove its result")
    return {name: found for name in ROWS if (found := read(name, folder)) is not None}


def commit() -> str | None:
    """Return the commit of this repository, with a + if files have changed since; None without one."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", ".", *(f":(exclude){one}" for one in _WRITTEN))
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def surroundings() -> tuple[dict[str, str], dict[str, Any]]:
    """Return versions and machine: no names and no paths."""
    import torch

    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # only some methods need it
            continue
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return versions, {"cores": float(os.cpu_count() or 0), "ram_gib": round(ram, 1), "gpu": gpu}


def rounded(epsilon: float) -> str:
    """Return epsilon with at most three decimals, rounded up: a smaller value would overstate the guarantee.

    >>> rounded(0.99911)
    '1'
    >>> rounded(0.1)
    '0.1'
    """
    # Binary rounding errors do not count: 0.1 is 0.1000...0056.
    return f"{math.ceil(epsilon * 1e3 - 1e-6) / 1e3:g}"


def _cell(body: dict[str, Any]) -> Cell:
    made = dict(body)
    made["figures"] = {name: Estimate(**each) for name, each in body.get("figures", {}).items()}
    made["runs"] = tuple(_run(each) for each in body.get("runs", ()))
    made["cost"] = Cost(**body["cost"]) if "cost" in body else None
    return Cell(**made)


def _run(body: dict[str, Any]) -> Run:
    bounds = {name: (one, other) for name, (one, other) in body.get("bounds", {}).items()}
    return Run(**body | {"bounds": bounds})


def _told(value: Any) -> Any:
    """Return what is stored: floats of seven digits, and nothing empty but where that says something."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        told = {key: _told(each) for key, each in value.items()}
        kept = ("server_epsilon", "machine", "note", "cells")
        return {
            key: each
            for key, each in told.items()
            if key in kept or not (each is None or each is False or each in ("", {}, []))
        }
    if isinstance(value, list | tuple):
        return [_told(each) for each in value]
    return value


def _lines(value: Any, depth: int = 0) -> str:
    """Return JSON with what fits on one line on one line."""
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, dict | list) or (depth and len(flat) <= 110 - depth):
        return flat
    pad = " " * depth
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_lines(each, depth + 1)}" for key, each in value.items()]
    else:
        parts = [_lines(each, depth + 1) for each in value]
    left, right = "{}" if isinstance(value, dict) else "[]"
    return left + "\n" + ",\n".join(f"{pad} {part}" for part in parts) + f"\n{pad}" + right
