"""MNIST, masked sums: noise by the server against noise by the parties, at one noise and budget.

``python -m benchmarks.observers`` trains four hospitals' teachers once, and runs three campaigns
with real processes over the same votes: GNMax with sigma 45, epsilon 5. With noise shares the server
sees noisy sums alone, so there is a figure towards it too; ``pate plan`` is asked what both will be.
If all four parties are needed and none may collude (``distributed``), the shares of all are counted
and labels carry the noise that the server would add. By default (``distributed-default``: three of
four, one of whom may collude) two shares are counted and four are in the sum. Needs PATE_TEST_DATA.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.field import alone, plan, votes_only
from benchmarks.papers.data import mnist
from pate.formats.labels import LabelSet
from simulation.datasets import write_inputs, write_labelled
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


def run(place: Path | None = None) -> dict[str, object]:
    """Run the campaigns and return their figures."""
    if place is None:
        with tempfile.TemporaryDirectory(prefix="pate-observers-") as scratch:
            return run(Path(scratch))
    split = mnist.load()
    for number, name in enumerate(HOSPITALS):
        (place / name).mkdir(exist_ok=True)
        rows = np.arange(number, len(split.private), len(HOSPITALS))
        write_labelled(place / name / "records.npz", split.private.take(rows))
    write_inputs(place / "public", split.queries)
    parties = {
        name: ("--data", str(place / name), "--teachers", str(TEACHERS)) for name in HOSPITALS
    }
    found: dict[str, object] = {"sigma": SIGMA, "delta": DELTA, "unit": "record"}
    for name, options in CAMPAIGNS.items():
        text = votes_only(
            place,
            public=place / "public.npz",
            parties=parties,
            campaign=name,
            server=(
                "--aggregator", "gnmax", "--sigma2", str(SIGMA), *options,
                "--epsilon", str(EPSILON), "--delta", str(DELTA),
            ),
        )  # fmt: skip
        labels = LabelSet.from_json(text)
        stated = json.loads(labels.privacy)
        towards = {each["observer"]: each["epsilon"] for each in stated["statements"]}
        figures: dict[str, object] = {
            "labels": len(labels.rows),
            "label_accuracy": label_accuracy(labels, split.public),
            "epsilon_public": towards["public"],
            "epsilon_server": towards["server"],
        }
        if "distributed" in name:
            figures["planned"] = plan(
                "--teachers", str(len(HOSPITALS) * TEACHERS), "--parties", str(len(HOSPITALS)),
                "--mechanism", "gnmax", "--sigma2", str(SIGMA), *options,
                "--queries", "9000", "--epsilon", str(EPSILON), "--delta", str(DELTA),
            )  # fmt: skip
        found[name] = figures
    return found


if __name__ == "__main__":
    alone(run, __doc__ or "")
