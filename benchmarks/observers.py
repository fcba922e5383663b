"""Central noise compared with noise shares, on MNIST with masked sums, at equal sigma and budget.

``python -m benchmarks.observers`` trains four hospitals' teachers once, and runs three campaigns with real
processes over the same votes: GNMax with sigma 45, epsilon 5. With noise shares the server sees only noisy
sums, so there is an epsilon towards it, too; ``pate plan`` predicts both. If all four parties are needed and
none may collude (``distributed``), the shares of all are counted and labels carry the noise that the server
would add. By default (``distributed-default``: three of four, one of whom may collude) two shares are counted
and four are in the sum. Needs PATE_TEST_DATA.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.data import mnist
from pate.runtime.child import python
from pate.runtime.screen import Screen
from simulation.datasets import write_inputs, write_labelled
from simulation.demo import run_roles
from simulation.programs import Program, Programs
from simulation.report import label_accuracy

HOSPITALS = ("hospital_a", "hospital_b", "hospital_c", "hospital_d")
TEACHERS = 50
SIGMA, EPSILON, DELTA = 45, 5.0, 1e-5
ALL = ("--min-parties", "4", "--colluders", "0")
CAMPAIGNS = {
    "central": ("--noise", "central"),
    "distributed": ("--noise", "distributed", *ALL),
    "distributed-default": ("--noise", "distributed"),
}


def run() -> dict[str, object]:
    """Run the campaigns in a folder that is removed, and return their figures."""
    with tempfile.TemporaryDirectory(prefix="pate-observers-") as scratch:
        return run_in(Path(scratch))


def run_in(place: Path) -> dict[str, object]:
    """Run the campaigns and return their figures."""
    split = mnist.load()
    for number, name in enumerate(HOSPITALS):
        (place / name).mkdir(exist_ok=True)
        rows = np.arange(number, len(split.private), len(HOSPITALS))
        write_labelled(place / name / "records.npz", split.private.take(rows))
    write_inputs(place / "public", split.queries)
    found: dict[str, object] = {"sigma": SIGMA, "delta": DELTA, "unit": "record"}
    for name, options in CAMPAIGNS.items():
        with Programs(Screen("benchmark"), place) as cast:
            labels = run_roles(
                cast,
                place,
                home=place / "server",
                parties=HOSPITALS,
                server=(
                    "--aggregator", "gnmax", "--sigma2", SIGMA, *options,
                    "--epsilon", EPSILON, "--delta", DELTA,
                ),
                party=("--teachers", TEACHERS),
                campaign=name,
            )  # fmt: skip
        stated = json.loads(labels.privacy)
        towards = {each["observer"]: each["epsilon"] for each in stated["statements"]}
        figures: dict[str, object] = {
            "labels": len(labels.rows),
            "label_accuracy": label_accuracy(labels, split.public),
            "epsilon_public": towards["public"],
            "epsilon_server": towards["server"],
        }
        if "distributed" in name:
            figures["planned"] = plan(place, *options)
        found[name] = figures
    return found


def plan(place: Path, *options: str) -> dict[str, object]:
    """Return the output of ``pate plan`` for the settings, for both observers."""
    program = Program(place, "plan", python(
        "simulation", "plan", "--teachers", len(HOSPITALS) * TEACHERS, "--parties", len(HOSPITALS),
        "--mechanism", "gnmax", "--sigma2", SIGMA, *options, "--queries", 9000,
        "--epsilon", EPSILON, "--delta", DELTA, "--json",
    ))  # fmt: skip
    program.ends(0)
    given: Any = program.result()["plans"]
    given = given["given"]
    return {
        "labels": given["expected"]["answered"],
        "epsilon_public": given["guarantee"]["epsilon"],
        "epsilon_server": given["server_of_noisy_histograms"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="folder to work in and to keep")
    kept = parser.parse_args().keep
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    print(json.dumps(run() if kept is None else run_in(kept), indent=2))
