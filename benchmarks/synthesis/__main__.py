"""Adult without a public set: one of four parties releases 1,000 synthetic queries at epsilon 1.

Four parties divide adult.data and train 250 teachers. A campaign of GNMax, sigma 40, asks them 1,000 queries:
real rows of adult.test, or rows synthesised by the first party (``l1``, epsilon 1). Two students, our own and
a plain random forest, are trained on the labels and measured on the 8,281 rows of adult.test that are not
queries. The party's ledger composes both costs.

    PATE_TEST_DATA=DATA python -m benchmarks.synthesis adult [--seeds 5] [--work WORK] [--out DIR]

Votes, masks, ledgers and noise are the real ones, as in the rows, and so is the synthesis. Noise
is fresh in every run: a seed chooses the real rows and the student's own randomness. Teachers are trained
once and stored in WORK.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from benchmarks import measure
from benchmarks.costs import add_out, publish
from benchmarks.data import deal
from benchmarks.data.tables import adult_rows
from benchmarks.methods import campaign
from benchmarks.methods.campaign import Source, lesson
from benchmarks.methods.standard import output
from benchmarks.rows import Options
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.synthesis.options import SynthesisOptions
from party.synthesis.release import make
from pate.accounting.filters import Delta
from pate.data.read import read_inputs
from pate.data.values import Dataset, Table, is_numeric
from pate.runtime.environment import QUIET_FLOWER
from pate.runtime.home import private_directory
from pate.runtime.screen import Screen
from simulation.datasets import write_labelled
from student.lesson import Effort
from student.training import train as teach

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from party.synthesis.options import Method
    from pate.data.values import Inputs
    from pate.formats.labels import LabelSet

SCHEMA: Final = Path(__file__).with_name("adult_schema.json")
PARTIES: Final = 4
TEACHERS: Final = (63, 63, 62, 62)
QUERIES: Final = 1_000
#: Rows of adult.test that real queries are taken from; the student is measured on the others.
PUBLIC: Final = 8_000
OPTIONS: Final = Options(
    aggregator="gnmax",
    epsilon=5.0,
    delta=1e-5,
    max_queries=QUERIES,
    sigma2="40",
    teachers=TEACHERS,
)
#: Our own student of tables, and a plain random forest.
MEASURES: Final = ("accuracy", "forest_accuracy")
#: Real rows; the methods that are compared with them.
SETS: Final = ("real", "l1")


def run(seeds: int, work: Path, screen: Screen) -> dict[str, object]:
    """Run every set once per seed and return the figures."""
    whole, rest = adult_rows("data"), adult_rows("test")
    parts = [whole.take(rows) for rows in deal(whole, PARTIES, 0)]
    test = rest.take(np.arange(PUBLIC, len(rest)))
    sources = campaign.teachers_of(parts, OPTIONS, work / "teachers", screen)
    write_labelled(work / "party_0.csv", parts[0], "income")
    runs: list[dict[str, object]] = []
    for seed in range(seeds):
        for kind in SETS:
            place = work / f"seed-{seed}" / kind
            shutil.rmtree(place, ignore_errors=True)
            runs.append(_run(kind, seed, place, work, rest, test, sources, screen))
    found: dict[str, object] = {"settings": asdict(OPTIONS), "seeds": seeds, "runs": runs}
    for kind in SETS:
        mine = [each for each in runs if each["set"] == kind]
        found[kind] = {
            name: _spread([float(str(each[name])) for each in mine]) for name in MEASURES
        }
    return found


def _spread(values: list[float]) -> dict[str, float | None]:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": deviation}


def _forest(labels: LabelSet, queries: Inputs, test: Dataset, seed: int) -> float:
    """Return the accuracy of a random forest with default settings, trained on the labels."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.preprocessing import OneHotEncoder

    known = test.with_classes(labels.classes)
    assert isinstance(queries, Table)
    assert isinstance(known.inputs, Table)
    asked = queries.take([row.query for row in labels.rows])
    kinds = [at for at, column in enumerate(asked.columns) if not is_numeric(column)]
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encoder.fit(np.stack([asked.columns[at] for at in kinds], axis=1))

    def encoded(table: Table) -> NDArray[np.float64]:
        numbers = [column for column in table.columns if is_numeric(column)]
        words = encoder.transform(np.stack([table.columns[at] for at in kinds], axis=1))
        return np.concatenate([np.stack(numbers, axis=1), words], axis=1)

    forest = RandomForestClassifier(random_state=seed)
    forest.fit(encoded(asked), [row.label for row in labels.rows])
    return float((forest.predict(encoded(known.inputs)) == known.labels).mean())


def _run(
    kind: str,
    seed: int,
    place: Path,
    work: Path,
    rest: Dataset,
    test: Dataset,
    sources: list[Source],
    screen: Screen,
) -> dict[str, object]:
    queries = _queries(kind, seed, place, work, rest, screen)
    outcome = campaign.run(sources, queries, OPTIONS, place=place, screen=screen)
    student = teach(
        lesson(outcome.labels, queries),
        model="auto",
        seed=1_000 * seed,
        effort=Effort(None),
        progress=lambda _step, _total, _loss: None,
    )
    accuracy = measure.accuracy(output(student, test), test.labels)
    forest = _forest(outcome.labels, queries, test, seed)
    figures = {
        f"party_{at}": PartyLedger(
            place / f"party_{at}" / LEDGER_FILE, read_only=True
        ).cumulative_epsilon(Delta(OPTIONS.delta))
        for at in range(PARTIES)
    }
    screen.say(
        f"seed {seed}, {kind}: student {accuracy:.4f}, forest {forest:.4f}; "
        + "; ".join(f"{name} epsilon {figure.epsilon:.3f}" for name, figure in figures.items())
    )
    return {
        "set": kind,
        "seed": seed,
        "queries": len(queries),
        "labels": len(outcome.labels.rows),
        "accuracy": accuracy,
        "forest_accuracy": forest,
        "own_figures": {name: asdict(figure) for name, figure in figures.items()},
    }


def _queries(
    kind: str, seed: int, place: Path, work: Path, rest: Dataset, screen: Screen
) -> Inputs:
    if kind == "real":
        chosen = np.random.default_rng(seed).choice(PUBLIC, QUERIES, replace=False)
        return rest.take(np.sort(chosen)).inputs
    home = private_directory(place / "party_0")
    out = place / "public.parquet"
    made = make(
        SynthesisOptions(
            rows=QUERIES,
            method=cast("Method", kind),
            schema=SCHEMA,
            home=home,
            data=work / "party_0.csv",
            out=out,
        ),
        screen,
    )
    assert made["rows"] == QUERIES
    return read_inputs(out)


def main() -> None:
    import os

    os.environ.update(QUIET_FLOWER)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["adult"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=None, help="kept; default: a scratch folder")
    add_out(parser)
    asked = parser.parse_args()
    screen = Screen("synthesis")
    with tempfile.TemporaryDirectory(prefix="pate-synthesis-") as scratch:
        found = run(asked.seeds, asked.work or Path(scratch), screen)
    publish(found, asked.out, "adult")


if __name__ == "__main__":
    main()
