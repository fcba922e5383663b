"""MNIST, masked sums: noise by the server against noise by the parties, at one noise and budget.

``python -m benchmarks.observers`` trains four hospitals' teachers once, and runs two campaigns with
real processes over the same votes: GNMax with sigma 45, epsilon 1.97. With noise shares the server
sees noisy sums alone, so there is a figure towards it too; ``pate plan`` is asked beforehand what
both will be. Needs PATE_TEST_DATA.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.field import alone, plan, votes_only
from benchmarks.mnist import DELTA, EPSILON, HOSPITALS, TEACHERS, prepare
from pate.commands.report import label_accuracy
from pate.labels import LabelSet

if TYPE_CHECKING:
    from pathlib import Path

SIGMA = 45
NOISES = ("central", "distributed")


def run(place: Path) -> dict[str, object]:
    """Run both campaigns and return their figures."""
    truth = prepare(place)
    parties = {
        name: ("--data", str(place / name), "--teachers", str(TEACHERS)) for name in HOSPITALS
    }
    found: dict[str, object] = {"sigma": SIGMA, "delta": DELTA, "unit": "record"}
    for noise in NOISES:
        text = votes_only(
            place,
            public=place / "public.npz",
            parties=parties,
            campaign=noise,
            server=(
                "--aggregator", "gnmax", "--sigma2", str(SIGMA), "--noise", noise,
                "--epsilon", str(EPSILON), "--delta", str(DELTA),
            ),
        )  # fmt: skip
        labels = LabelSet.from_json(text)
        stated = json.loads(labels.privacy)
        towards = {each["observer"]: each["epsilon"] for each in stated["statements"]}
        found[noise] = {
            "labels": len(labels.rows),
            "label_accuracy": label_accuracy(labels, truth),
            "epsilon_public": towards["public"],
            "epsilon_server": towards["server"],
        }
    found["planned"] = plan(
        "--teachers", str(len(HOSPITALS) * TEACHERS), "--parties", str(len(HOSPITALS)),
        "--mechanism", "gnmax", "--sigma2", str(SIGMA), "--noise", "distributed",
        "--queries", "9000", "--epsilon", str(EPSILON), "--delta", str(DELTA),
    )  # fmt: skip
    return found


if __name__ == "__main__":
    alone(run, __doc__ or "")
