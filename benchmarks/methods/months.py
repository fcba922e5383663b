"""A federation that asks every month, at one epsilon.

The stays of Diabetes 130 in the order of ``encounter_id`` are cut into twelve equal parts, the months (the
file has no dates). Five hospitals' tables grow month by month, and each month they are asked twice, by the
real protocol:

* as the next campaign of a *series*: a patient votes once in all of its campaigns, in the month of the
  first stay. The student learns from all campaigns so far;
* *again*: all patients who are there vote in a campaign of their own. Its noise is Gaussian, which adds up
  to less over many campaigns.

What both cost is what a party's own accountant says of its ledger. The student is measured on the stays of
patients who are in no round, and on the stays of the month that follows. Every fourth month the other
students are trained: of the campaign that asked all again, and of a series in which a vote counts half
after six months.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from benchmarks import measure
from benchmarks.data import Split, deal, joined
from benchmarks.data.tables import diabetes, read_stays
from benchmarks.methods import campaign
from benchmarks.methods.campaign import home, lesson
from benchmarks.methods.standard import output
from benchmarks.record import Cell, Estimate, Result, Run
from benchmarks.rows import Options, Row
from party.ledger.accountant import Totals, cumulative_epsilon
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from pate.accounting.filters import Delta
from pate.data.values import Dataset, Table
from pate.formats.labels import LabelSet
from pate.runtime.screen import Screen
from student.series import together
from student.trainers.choose import train

Months = NDArray[np.int64]
MONTHS: Final = 12
PARTIES: Final = 5
_SERIES: Final = "admissions"
#: Every how many months the other students are trained.
_COMPARED: Final = 4
#: Of the parties' accountants; no part of it is for campaigns that fail.
_DELTA: Final = Delta(1e-5, Fraction(0))
#: Months after which a vote counts half, for the student that forgets.
HALF_LIFE: Final = 6.0


def run(row: Row, dealings: int, work: Path, screen: Screen, commit: str | None) -> Result:
    """Return every month of every dealing; a dealing decides which hospital a patient goes to."""
    split = replace(diabetes(), whole=None)
    stays = read_stays(numbered=True)
    assert isinstance(stays.inputs, Table)
    months = months_of(np.asarray(stays.inputs.columns[-1]), MONTHS)
    of_part = {name: _of(getattr(split, name), stays, months) for name in ("private", "test")}
    runs: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for dealing in range(dealings):
        place = work / f"dealing-{dealing}"
        shutil.rmtree(place, ignore_errors=True)  # patients would have voted
        for key, one in _dealing(row, split, of_part, dealing, place, screen).items():
            runs[key].append(one)
    assert row.options is not None
    return Result.begun(
        row.name,
        {
            "unit": "patient", "parties": PARTIES, "dealings": dealings,
            "private_units": len(np.unique(_groups(split.private))), "test": len(split.test),
            "note": (
                "the stays of Diabetes 130 in the order of encounter_id, cut into twelve equal parts; "
                f"epsilon {row.options.epsilon:g} a campaign, {row.options.representatives} "
                f"representatives, student {row.student}; accountants at delta {_DELTA.whole:g}"
            ),
        },
        cells=tuple(_cell(arm, month, each, commit) for (arm, month), each in sorted(runs.items())),
    )  # fmt: skip


def _cell(arm: str, month: int, runs: list[Run], commit: str | None) -> Cell:
    first = runs[0]
    means = {name: float(np.mean([one.figures[name] for one in runs])) for name in first.figures}
    return Cell(
        method=arm,
        epsilon=first.epsilons.get("campaign_epsilon"),
        delta=first.epsilons.get("campaign_delta"),
        setting={"month": month} | ({"half_life": HALF_LIFE} if arm == "forgetful" else {}),
        figures={name: Estimate(mean) for name, mean in means.items()},
        runs=tuple(runs),
        commit=commit,
    )


def months_of(encounters: NDArray[Any], months: int) -> Months:
    """Return (n,) the month of each stay from 0: equal parts in the order of their numbers.

    >>> months_of(np.array([50, 10, 30, 20]), 2).tolist()
    [1, 0, 1, 0]
    """
    place = np.empty(len(encounters), dtype=np.int64)
    place[np.argsort(encounters, kind="stable")] = np.arange(len(encounters))
    found: Months = place * months // len(encounters)
    return found


def _of(part: Dataset, stays: Dataset, months: Months) -> Months:
    """Return the month of each stay of a part: a part has whole patients, in the order of the file."""
    return months[np.isin(_groups(stays), np.unique(_groups(part)))]


def _dealing(
    row: Row, split: Split, months: dict[str, Months], dealing: int, place: Path, screen: Screen
) -> dict[tuple[str, int], Run]:
    """Return the months of one dealing, by arm and month."""
    dealt = deal(split.private, PARTIES, dealing)
    options = row.options
    assert options is not None
    arms = {
        "series": _Arm(row, replace(options, series=_SERIES), place / "series", screen),
        "again": _Arm(
            row, replace(options, noise_law="gaussian", delta=_DELTA.whole), place / "again", screen
        ),
    }
    seen: set[str] = set()
    made: dict[tuple[str, int], Run] = {}
    for month in range(MONTHS):
        tables = [split.private.take(rows[months["private"][rows] <= month]) for rows in dealt]
        here = {str(name) for each in tables for name in np.unique(_groups(each))}
        tests = {"others": split.test}
        if month + 1 < MONTHS:
            tests["next"] = joined(
                split.private.take(np.flatnonzero(months["private"] == month + 1)),
                split.test.take(np.flatnonzero(months["test"] == month + 1)),
            )
        counts = {"new": len(here - seen), "there": len(here)}
        seen |= here
        compared = (month + 1) % _COMPARED == 0
        for name, arm in arms.items():
            told = arm.ask(tables, split)
            figures = arm.learn(split, tests, dealing) if name == "series" or compared else {}
            made[name, month + 1] = Run(seed=dealing, counts=counts, epsilons=told, figures=figures)
        if compared:
            figures = arms["series"].learn(split, tests, dealing, HALF_LIFE)
            made["forgetful", month + 1] = Run(seed=dealing, counts=counts, figures=figures)
        screen.say(f"dealing {dealing}, month {month + 1}: {made['series', month + 1].figures}")
    return made


class _Arm:
    """One way of asking, month after month."""

    def __init__(self, row: Row, options: Options, place: Path, screen: Screen) -> None:
        self._row, self._options, self._place, self._screen = row, options, place, screen
        # A series is known by its name and the key that signs its campaigns.
        self._key = Ed25519PrivateKey.generate()
        self._labels: list[LabelSet] = []
        self._asked = 0
        self._totals: tuple[Totals, ...] = ()

    def ask(self, tables: Sequence[Dataset], split: Split) -> dict[str, float]:
        """Run the month's campaign; return what it and all so far cost."""
        single, self._asked = self._options.series is None, self._asked + 1
        # Parties answer the same representatives with other votes only if their policy says so; here
        # each campaign has a ledger of its own, and the totals of all are added up.
        place = self._place / f"month_{self._asked}" if single else self._place
        sources = campaign.records_of(tables, place, self._screen)
        found = campaign.run(
            sources, split.queries, self._options,
            place=place, screen=self._screen, signing_key=self._key,
        )  # fmt: skip
        self._labels = [*([] if single else self._labels), found.labels]
        ledger = PartyLedger(home(place, 0) / LEDGER_FILE, read_only=True).totals()
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
        labels = together(self._labels, half_life if len(self._labels) > 1 else None)
        student = train(lesson(labels, split.queries), model=self._row.student, seed=seed)
        return {
            f"auc_{name}": measure.auc(output(student, each), each.labels)
            for name, each in tests.items()
        }


def _groups(data: Dataset) -> NDArray[np.str_]:
    assert data.groups is not None
    return data.groups
