"""``python -m benchmarks.papers.monthly``: a federation that asks every month, at one epsilon.

The stays of Diabetes 130 in the order of ``encounter_id`` are cut into twelve equal parts, the months (the
file has no dates). Five hospitals' tables grow month by month, and each month they are asked twice, by the
real protocol:

* as the next campaign of a *series*: a patient votes once in all of its campaigns, in the month of the
  first stay. The student learns from all campaigns so far;
* *again*: all patients who are there vote in a campaign of their own. Its noise is Gaussian, which adds up
  to less over many campaigns.

What both cost is what a party's own accountant says of its ledger. The student is measured on the stays of
patients who are in no round, and on the stays of the month that follows.

    PATE_TEST_DATA=DATA python -m benchmarks.papers.monthly --work WORK

A dealing decides which hospital a patient goes to; noise is always fresh. The result is a dated JSON file in
benchmarks/papers/results/monthly, from which ``python -m benchmarks.papers table`` makes its part of
docs/results.md.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.papers import record
from benchmarks.papers.data import data_folder, diabetes
from benchmarks.papers.rows import ROWS
from benchmarks.papers.split import deal
from pate.accounting.filters import Delta
from pate.data.values import Dataset, Table
from pate.errors import DataError, PateError
from pate.runtime.environment import QUIET_FLOWER
from pate.runtime.home import private_directory
from pate.runtime.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from benchmarks.papers.row import Options
    from benchmarks.papers.split import Split
    from party.ledger.accountant import Totals
    from pate.data.values import Column, Inputs
    from pate.formats.labels import LabelSet

    Months = NDArray[np.int64]

FORMAT: Final = "pate-monthly/1"
FOLDER: Final = record.FOLDER / "monthly"
MONTHS: Final = 12
PARTIES: Final = 5
#: The row whose patients, columns, representatives, epsilon and student these are.
_ROW: Final = ROWS["diabetes130"]
_OPTIONS: Final = replace(_ROW.options, representatives=400)
_SERIES: Final = "admissions"
_MONTH_NAMES: Final = tuple(f"month {number + 1}" for number in range(MONTHS))
#: Every how many months the other students are trained: of the campaign that asked all again, and of a
#: series with a half-life.
_COMPARED: Final = 4
#: Of the parties' accountants; no part of it is for campaigns that fail.
_DELTA: Final = Delta(1e-5, Fraction(0))
#: Months after which a vote counts half, for the student that forgets.
HALF_LIFE: Final = 6.0


def main(words: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    asked = _parser().parse_args(words)
    screen = Screen("monthly")
    os.environ.update(QUIET_FLOWER)
    try:
        with tempfile.TemporaryDirectory(prefix="pate-monthly-") as spare:
            found = run(asked.dealings, Path(asked.work or spare), screen)
        asked.out.mkdir(parents=True, exist_ok=True)
        file = asked.out / f"{found['date']}.json"
        file.write_text(json.dumps(found, indent=1, sort_keys=True, allow_nan=False) + "\n")
        screen.say(f"{file} written")
    except PateError as error:
        screen.say(str(error))
        return error.exit_code
    return 0


def run(dealings: int, work: Path, screen: Screen) -> dict[str, Any]:
    """Return the result: every month of every dealing.

    Args:
        dealings: number of them, each with hospitals of its own.
        work: folder for their homes.
        screen: for lines.
    """
    split = diabetes.load()
    whole = diabetes.read(every_column=False)
    months = months_of(_encounters(), MONTHS)
    if len(months) != len(whole):
        raise DataError(f"{len(months)} numbers of stays for {len(whole)} stays")
    months_of_part = {name: _of(split, name, whole, months) for name in ("private", "test")}
    made = []
    for dealing in range(dealings):
        place = work / f"dealing-{dealing}"
        shutil.rmtree(place, ignore_errors=True)  # patients would have voted
        made.append(_dealing(split, months_of_part, dealing, place, screen))
    commit, versions, machine = record.surroundings()
    return {
        "format": FORMAT,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit,
        "versions": versions,
        "machine": machine,
        "settings": {
            "epsilon": _OPTIONS.epsilon,
            "delta": _DELTA.whole,
            "representatives": _OPTIONS.representatives,
            "parties": PARTIES,
            "student": _ROW.student,
            "half_life": HALF_LIFE,
        },
        "patients": len(np.unique(_groups(split.private))),
        "unseen_stays": len(split.test),
        "dealings": made,
    }


def months_of(encounters: NDArray[np.int64], months: int) -> Months:
    """Return (n,) the month of each stay from 0: equal parts in the order of their numbers.

    >>> months_of(np.array([50, 10, 30, 20]), 2).tolist()
    [1, 0, 1, 0]
    """
    place = np.empty(len(encounters), dtype=np.int64)
    place[np.argsort(encounters, kind="stable")] = np.arange(len(encounters))
    found: Months = place * months // len(encounters)
    return found


def _encounters() -> NDArray[np.int64]:
    """Return the number of each stay, in the order of :func:`diabetes.read`."""
    path = data_folder() / "diabetes130" / "diabetic_data.csv.gz"
    with gzip.open(path, "rt", encoding="ascii", newline="") as file:
        lines = csv.DictReader(file)
        kept = (one for one in lines if one["discharge_disposition_id"] not in diabetes.NO_RETURN)
        return np.array([int(one["encounter_id"]) for one in kept], dtype=np.int64)


def _of(split: Split, name: str, whole: Dataset, months: Months) -> Months:
    """Return the month of each stay of a part: a part has whole patients, in the order of the file."""
    part: Dataset = getattr(split, name)
    assert part.groups is not None
    assert whole.groups is not None
    return months[np.isin(whole.groups, np.unique(part.groups))]


def _dealing(
    split: Split, months: dict[str, Months], dealing: int, place: Path, screen: Screen
) -> list[dict[str, Any]]:
    """Return the months of one dealing."""
    parts = deal(split.private, PARTIES, dealing)
    # The same patients go to the same hospitals, whatever their rows are.
    numbered = replace(split.private, labels=months["private"], classes=_MONTH_NAMES)
    when = [each.labels for each in deal(numbered, PARTIES, dealing)]
    series = _Arm(_OPTIONS, place / "series", screen, name=_SERIES)
    again = _Arm(_again(), place / "again", screen, name=None)
    seen: set[str] = set()
    made: list[dict[str, Any]] = []
    for month in range(MONTHS):
        tables = [
            part.take(np.flatnonzero(at <= month)) for part, at in zip(parts, when, strict=True)
        ]
        here = {str(name) for each in tables for name in np.unique(_groups(each))}
        tests = {"others": split.test}
        if month + 1 < MONTHS:
            tests["next"] = _both(
                split.private.take(np.flatnonzero(months["private"] == month + 1)),
                split.test.take(np.flatnonzero(months["test"] == month + 1)),
            )
        found: dict[str, Any] = {"month": month + 1, "new": len(here - seen), "there": len(here)}
        seen |= here
        found["series"] = series.ask(tables, split.queries)
        found["series"] |= series.learn(split, tests, dealing)
        found["again"] = again.ask(tables, split.queries)
        if (month + 1) % _COMPARED == 0:
            found["again"] |= again.learn(split, tests, dealing)
            found["forgetful"] = series.learn(split, tests, dealing, HALF_LIFE)
        made.append(found)
        screen.say(f"dealing {dealing}, {json.dumps(found)}")
    return made


class _Arm:
    """One way of asking, month after month."""

    def __init__(self, options: Options, place: Path, screen: Screen, *, name: str | None) -> None:
        self._options = replace(options, series=name)
        self._place, self._screen = place, screen
        # A series is known by its name and the key that signs its campaigns.
        self._key = Ed25519PrivateKey.generate()
        self._labels: list[LabelSet] = []
        self._asked = 0
        self._totals: tuple[Totals, ...] = ()

    def ask(self, tables: Sequence[Dataset], public: Inputs) -> dict[str, float]:
        """Run the month's campaign; return what it and all so far cost."""
        from benchmarks.papers.campaign import hold
        from party.identity.keys import shard_key
        from party.ledger.accountant import cumulative_epsilon
        from party.ledger.ledger import LEDGER_FILE, PartyLedger
        from party.voting.neighbour import NeighbourVotes

        single, self._asked = self._options.series is None, self._asked + 1
        # Parties answer the same representatives with other votes only if their policy says so; here
        # each campaign has a ledger of its own, and the totals of all are added up.
        place = self._place / f"month_{self._asked}" if single else self._place
        homes = [place / f"party_{number}" for number in range(len(tables))]
        sources = [
            NeighbourVotes(table, shard_key(private_directory(home)))
            for table, home in zip(tables, homes, strict=True)
        ]
        found = hold(
            sources, public, self._options, place=place, screen=self._screen, signing_key=self._key
        )
        self._labels = [*([] if single else self._labels), found.labels]
        ledger = PartyLedger(homes[0] / LEDGER_FILE, read_only=True).totals()
        self._totals = (*(self._totals if single else ()), *ledger)
        own = cumulative_epsilon(self._totals, _DELTA)
        return {
            "campaign_epsilon": found.statement.epsilon,
            "campaign_delta": found.statement.delta,
            "epsilon": own.epsilon,
            "delta": own.delta,
        }

    def learn(
        self, split: Split, tests: Mapping[str, Dataset], seed: int, half_life: float | None = None
    ) -> dict[str, float]:
        """Return the AUC of a student of all votes that count, by name of the test."""
        from benchmarks.papers import reference
        from benchmarks.papers.campaign import lesson
        from student.series import together
        from student.trainers.choose import train

        labels = together(self._labels, half_life if len(self._labels) > 1 else None)
        student = train(lesson(labels, split.queries), model=_ROW.student, seed=seed)
        return {
            f"auc_{name}": reference.judge(student, each)["auc"] for name, each in tests.items()
        }


def _again() -> Options:
    return replace(_OPTIONS, noise_law="gaussian", delta=_DELTA.whole)


def section(folder: Path) -> list[str]:
    """Return the lines of docs/results.md, from the newest result of a folder; none without one.

    Raises:
        DataError: if it is of another format.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        return []
    found = json.loads(files[-1].read_text())
    if found.get("format") != FORMAT:
        raise DataError(f"{files[-1].name} is not of format {FORMAT}")
    told, dealings = found["settings"], found["dealings"]

    def mean(at: int, arm: str, name: str, digits: int = 3) -> str:
        values = [months[at][arm].get(name) for months in dealings if arm in months[at]]
        if not values or None in values:
            return ""
        if name.endswith("epsilon"):
            return record.rounded(max(values))
        return f"{np.mean(values):.{digits}f} ({np.ptp(values):.{digits}f})"

    first = dealings[0]
    lines = [
        "", '<a id="monthly"></a>', "", "## Diabetes 130 month by month, at one epsilon", "",
        (f"{told['parties']} hospitals are asked at the end of each of {len(first)} months, by the whole "
        "protocol. In a series a patient votes once, so each month only new patients do, and the student "
        "learns from all months so far. Beside it is what it costs to ask all patients again each month."),
        "",
        (f"- data: Diabetes 130 as above, in the order of `encounter_id`, cut into {len(first)} equal parts "
        f"(the file has no dates); {found['patients']:,} patients, of whom each has one vote in the series; "
        "a label is known thirty days after discharge, so a month's votes are cast a month later"),
        (f"- test: AUC of readmission within 30 days, on {found['unseen_stays']:,} stays of patients who are "
        "in no round (*others*), and on all stays of the month that follows (*next month*)"),
        (f"- settings: nearest votes, {told['representatives']} representatives, epsilon "
        f"{told['epsilon']:g} a campaign, unit patient, student {told['student']}; in the series geometric "
        "noise, at delta 0; asking again has Gaussian noise, which adds up to less"),
        ("- privacy: epsilon of the series at delta 0, and of all campaigns that asked again at delta "
        f"{told['delta']:g}, as a party's own accountant has it; unit: patient, all of whose records are "
        "added, removed or altered; observer: server, and so the public"),
        f"- figures are means over {len(dealings)} dealings, with the largest minus the least in brackets",
        f"- run: {found['date']}, commit {str(found['commit'])[:12]}", "",
        ("| month | patients who vote for the first time | epsilon of the series | AUC, others | AUC, next "
        "month | epsilon of asking all again |"),
        "|" + " --- |" * 6,
    ]  # fmt: skip
    for at, month in enumerate(first):
        cells = (
            str(month["month"]), f"{month['new']:,}", mean(at, "series", "campaign_epsilon"),
            mean(at, "series", "auc_others"), mean(at, "series", "auc_next"),
            mean(at, "again", "epsilon"),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "", (f"The student that forgets gives a vote half its weight after {told['half_life']:g} months "
        "(`--half-life`)."), "",
        ("| month | AUC, others: series | with a half-life | all asked again | next month: series | with a "
        "half-life | all asked again |"),
        "|" + " --- |" * 7,
    ]  # fmt: skip
    for at, month in enumerate(first):
        if "forgetful" in month:
            arms = "series", "forgetful", "again"
            areas = [mean(at, arm, name) for name in ("auc_others", "auc_next") for arm in arms]
            lines.append(f"| {month['month']} | {' | '.join(areas)} |")
    return lines


def _groups(data: Dataset) -> NDArray[np.str_]:
    assert data.groups is not None
    return data.groups


def _both(one: Dataset, other: Dataset) -> Dataset:
    assert isinstance(one.inputs, Table)
    assert isinstance(other.inputs, Table)
    pairs = zip(one.inputs.columns, other.inputs.columns, strict=True)
    columns = tuple(cast("Column", np.concatenate(pair)) for pair in pairs)
    inputs = Table(one.inputs.names, columns)
    return Dataset(inputs, np.concatenate([one.labels, other.labels]), one.classes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers.monthly",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dealings", type=int, default=3, help="their number (default: 3)")
    parser.add_argument("--work", type=Path, metavar="DIR", help="folder for the parties' homes")
    parser.add_argument(
        "--out", type=Path, default=FOLDER, metavar="DIR",
        help="folder of the result (default: benchmarks/papers/results/monthly)",
    )  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
