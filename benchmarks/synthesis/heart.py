"""Heart Disease: four hospitals with different policies are asked for synthetic queries.

The consortium's schema states at least 100 rows per party. Each hospital has its own policy, its own ledger
and 60 % of its patients; every refusal is printed, and the request that is granted. The released rows are
merged into one public set, a campaign asks all four, and a student is measured on a fifth of every hospital's
patients. For comparison the campaign is repeated with real patients without diagnosis.

    PATE_TEST_DATA=DATA python -m benchmarks.synthesis.heart [--work WORK] [--out DIR]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.figures import add_out, publish
from benchmarks.papers import reference
from benchmarks.papers.campaign import lesson, run_campaign
from benchmarks.papers.data import heart
from benchmarks.papers.row import Options
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import POLICY_FILE
from party.synthesis.release.options import SynthesisOptions
from party.synthesis.release.parquet import merge, to_bytes
from party.synthesis.release.run import make
from party.synthesis.table.schema import read, to_json
from pate.accounting.filters import Delta
from pate.data.read import read_dataset, read_inputs
from pate.errors import PateError
from pate.runtime.environment import QUIET_FLOWER
from pate.runtime.home import private_directory
from pate.runtime.screen import Screen
from simulation.datasets import write_labelled
from simulation.report import majority_accuracy
from student.trainers.base import Effort
from student.trainers.choose import train as teach

if TYPE_CHECKING:
    from collections.abc import Callable

    from pate.data.values import Dataset, Inputs

SCHEMA: Final = Path(__file__).with_name("heart_schema.json")
MIN_ROWS: Final = 100
ROWS: Final = 150
LABEL: Final = "diagnosis"
#: As the heart row of ``benchmarks.papers``.
OPTIONS: Final = Options(
    aggregator="gnmax",
    epsilon=5.0,
    delta=1e-3,
    sigma2="12",
    teachers=(12, 12, 5, 8),
)
_SEEDLESS: Final = partial(SynthesisOptions, rows=ROWS)
_SEEDED: Final = partial(_SEEDLESS, method="cfs", release="seeded")


@dataclass(frozen=True)
class Hospital:
    """One of the four.

    Attributes:
        name: of the site.
        policy: its policy.toml.
        asked: requests, made in order until one is granted.
    """

    name: str
    policy: str
    asked: tuple[Callable[..., SynthesisOptions], ...]


HOSPITALS: Final = (
    # Enough budget: served.
    Hospital("cleveland", "largest_epsilon = 6.0\n", (_SEEDLESS,)),
    # Little budget: refused with a suggestion that fits; served with that.
    Hospital(
        "hungarian",
        "largest_epsilon = 0.5\n",
        (_SEEDLESS, partial(_SEEDLESS, epsilon="0.5")),
    ),
    # Fewer rows than the schema states: refused at any budget.
    Hospital("switzerland", "largest_epsilon = 6.0\n", (_SEEDLESS,)),
    # Asked for seed-based rows first: refused, with the price of the other methods.
    Hospital("va", "largest_epsilon = 6.0\n", (_SEEDED, _SEEDLESS)),
)


def run(work: Path, screen: Screen) -> dict[str, object]:
    """Ask every hospital, run the campaigns, and return answers and measurements."""
    split = heart.load()
    schema = work / "schema.json"
    schema.write_bytes(to_json(replace(read(SCHEMA), min_rows=MIN_ROWS)))
    parts = heart.sites()
    lines: list[str] = []
    released: list[Path] = []
    for at, hospital in enumerate(HOSPITALS):
        data = work / f"{hospital.name}.csv"
        write_labelled(data, parts[hospital.name], LABEL)
        home = private_directory(work / "synthetic" / f"party_{at}")
        (home / POLICY_FILE).write_text(hospital.policy)
        out = work / f"{hospital.name}.parquet"
        lines.extend(
            _answer(hospital, asked, schema, home, data, out, screen) for asked in hospital.asked
        )
        released += [out] if out.exists() else []
    public = work / "public.parquet"
    public.write_bytes(to_bytes(*merge(released)))
    test = _reread(split.test, work / "test.csv")
    parties = [read_dataset(work / f"{each.name}.csv", label=LABEL) for each in HOSPITALS]
    real = _reread(split.public, work / "real.csv").inputs
    found: dict[str, object] = {
        "answers": lines,
        "queries": {"synthetic": len(read_inputs(public)), "real": len(real)},
        "majority": majority_accuracy(test),
    }
    for kind, queries in (
        ("synthetic", read_inputs(public)),
        ("real", real),
    ):
        place = private_directory(work / kind)
        found[kind] = _campaign(parties, queries, test, place, screen)
    figures = {}
    for at, hospital in enumerate(HOSPITALS):
        ledger = PartyLedger(work / "synthetic" / f"party_{at}" / LEDGER_FILE, read_only=True)
        figures[hospital.name] = ledger.cumulative_epsilon(Delta(OPTIONS.delta)).in_words
    return found | {"own_figures": figures}


def _answer(
    hospital: Hospital,
    asked: Callable[..., SynthesisOptions],
    schema: Path,
    home: Path,
    data: Path,
    out: Path,
    screen: Screen,
) -> str:
    try:
        told = make(asked(schema=schema, home=home, data=data, out=out), screen)
    except PateError as error:
        line = f"{hospital.name}: exit code {error.exit_code}: {error}"
    else:
        line = f"{hospital.name}: served, {told['rows']} rows at epsilon {told['epsilon']:g}"
    screen.say(line)
    return line


def _campaign(
    parties: list[Dataset], queries: Inputs, test: Dataset, place: Path, screen: Screen
) -> dict[str, object]:
    outcome = run_campaign(parties, queries, OPTIONS, place=place, screen=screen)
    student = teach(
        lesson(outcome.labels, queries),
        model="auto",
        seed=0,
        effort=Effort(None),
        progress=lambda _step, _total, _loss: None,
    )
    accuracy = reference.judge(student, test)["accuracy"]
    screen.say(f"{place.name}: {len(outcome.labels.rows)} labels, student {accuracy:.4f}")
    return {"labels": len(outcome.labels.rows), "accuracy": accuracy}


def _reread(records: Dataset, path: Path) -> Dataset:
    """Return records as read back from CSV: numeric codes become numbers."""
    write_labelled(path, records, LABEL)
    return read_dataset(path, label=LABEL)


def main() -> None:
    """Run it from the command line."""
    import os

    os.environ.update(QUIET_FLOWER)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=None, help="kept; default: a scratch folder")
    add_out(parser)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pate-synthesis-") as scratch:
        found = run(asked.work or Path(scratch), Screen("synthesis"))
    publish(found, asked.out, "heart")


if __name__ == "__main__":
    main()
