"""Class quotas: what asking for scarce classes first does to labels and student, on MNIST.

The votes are real: those of 250 teachers on the first 9,000 test images, as published with the PATE
papers. The public set is these images, as they are or with a long tail (of digit 0 all are kept, of
digit 9 a twentieth). Round 1 asks 100 queries by Confident-GNMax, a student learns from the answers
and predicts, and round 2 asks 200 more by Interactive-GNMax: in the public order, or in that of
:func:`pate.campaign.quota.quota_order`. Both cost the same by accounting that looks at no vote.
The student is a logistic model on 100 principal components of the scattering features of the 9,000
images, a stand-in for one that takes long to train; it is measured on the last 1,000 test images, by
the mean recall of the classes. Twenty runs, both orders with the same public order and the same seed
of the noise.

``python -m benchmarks.quota [--json FILE] [--picture FILE]``. Needs PATE_TEST_DATA; two minutes or
so on one core. Noise is seeded: nothing here protects anybody.
"""

from __future__ import annotations

import argparse
import json
import time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.dirichlet import thin
from benchmarks.field import data_folder
from pate.accounting.composition import Gdp, total_cost
from pate.campaign.order import public_order
from pate.campaign.quota import quota_order
from pate.data.idx import read_idx_images, read_idx_labels
from pate.data.values import Images
from pate.features.space import space_over
from pate.mechanisms import ConfidentGNMax, InteractiveGNMax, round_predictions
from pate.noise.simulated import SimulatedNoise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pate.mechanisms import Outcome

    Floats = NDArray[np.float32]
    Whole = NDArray[np.int64]

CLASSES, TEACHERS = 10, 250
FIRST, SECOND = 100, 200
RUNS: Final = 20
ROUND_1: Final = ConfidentGNMax(200, Fraction(150), Fraction(40), 1)
ROUND_2: Final = InteractiveGNMax(125, Fraction(150), Fraction(40), Fraction(9, 10), 1)
TAIL: Final = 20
#: Shares of each digit that are in the public set.
SETS: Final[Mapping[str, Sequence[float]]] = {
    "as it is": (1.0,) * CLASSES,
    "long tail": tuple(TAIL ** (-digit / 9) for digit in range(CLASSES)),
}
DELTA = 1e-5


class Student:
    """A logistic model on fixed features; answers evenly as long as it has seen one class alone."""

    def __init__(self, features: Floats, labels: Mapping[int, int]) -> None:
        from sklearn.linear_model import LogisticRegression

        queries = sorted(labels)
        values = np.array([labels[query] for query in queries], dtype=np.int64)
        self._model = None
        if len(np.unique(values)) > 1:
            self._model = LogisticRegression(C=1000.0, max_iter=500)
            self._model.fit(features[queries], values)

    def probabilities(self, features: Floats) -> Floats:
        found = np.zeros((len(features), CLASSES), dtype=np.float32)
        if self._model is None:
            return found + np.float32(1 / CLASSES)
        found[:, self._model.classes_] = self._model.predict_proba(features)
        return found


def one_run(
    features: Floats, votes: Whole, run: int, *, quota: bool
) -> tuple[dict[int, Outcome], dict[int, int]]:
    """Return the outcomes of round 2, and all labels after it."""
    order = public_order(f"{run:032x}", len(votes))
    noise = SimulatedNoise(run)
    asked = list(order[:FIRST])
    answers = ROUND_1.answer_all(votes[asked], noise)
    labels = {
        q: each.label for q, each in zip(asked, answers, strict=True) if each.label is not None
    }
    predictions = Student(features, labels).probabilities(features)
    left: Sequence[int] = [query for query in order if query not in asked]
    if quota:
        left = quota_order(left, labels, predictions)
    asked = list(left[:SECOND])
    expected = round_predictions(predictions[asked], TEACHERS)
    second = dict(zip(asked, ROUND_2.answer_all(votes[asked], noise, expected), strict=True))
    given = {query: each.label for query, each in second.items() if each.label is not None}
    return second, labels | given


def figures(
    features: Floats, votes: Whole, truth: Whole, test: Floats, answers: Whole, *, quota: bool
) -> dict[str, Any]:
    """Return means over the runs."""
    found: list[dict[str, Any]] = []
    for run in range(RUNS):
        second, labels = one_run(features, votes, run, quota=quota)
        said = Student(features, labels).probabilities(test).argmax(axis=1)
        asked, known = np.array(list(second)), np.array(sorted(labels))
        right = np.array([labels[query] for query in known.tolist()]) == truth[known]
        recalls = [float((said == answers)[answers == digit].mean()) for digit in range(CLASSES)]
        given = np.array([each.label is not None for each in second.values()])
        found.append(
            {
                "labels": len(known),
                "from_teachers_in_round_2": sum(
                    each.source == "teachers" for each in second.values()
                ),
                "label_accuracy": float(right.mean()),
                "asked_per_class": np.bincount(truth[asked], minlength=CLASSES).tolist(),
                "answered_per_class": np.bincount(truth[asked[given]], minlength=CLASSES).tolist(),
                "labels_per_class": np.bincount(truth[known], minlength=CLASSES).tolist(),
                "recall_per_class": recalls,
                "accuracy": float((said == answers).mean()),
                "balanced_accuracy": float(np.mean(recalls)),
                "worst_recall": min(recalls),
            }
        )
    means = {key: np.mean([each[key] for each in found], axis=0).tolist() for key in found[0]}
    return {**means, "balanced_accuracies": [each["balanced_accuracy"] for each in found]}


def load() -> tuple[Floats, Whole, Whole]:
    """Return features and truth of the 10,000 test images, and votes of the first 9,000."""
    from sklearn.decomposition import PCA

    raw = data_folder() / "mnist" / "MNIST" / "raw"
    images = Images(read_idx_images(raw / "t10k-images-idx3-ubyte.gz"))
    names = read_idx_labels(raw / "t10k-labels-idx1-ubyte.gz")
    votes = np.load(data_folder() / "pate_votes" / "mnist_250_teachers.npy").astype(np.int64)
    whole = space_over(images, "scattering").embed(images)
    components = PCA(100, svd_solver="randomized", random_state=0).fit(whole[:9000])
    features: Floats = components.transform(whole).astype(np.float32)
    return features, np.array([int(each) for each in names]), votes


def run(place: Path | None = None) -> dict[str, Any]:
    """Run both orders on both public sets and return the figures."""
    del place
    began = time.monotonic()
    features, truth, votes = load()
    test = (features[9000:], truth[9000:])
    found: dict[str, Any] = {}
    for name, kept in SETS.items():
        rows = thin(truth[:9000], kept, np.random.default_rng(0))
        given = (features[rows], votes[rows], truth[rows])
        plain = figures(*given, *test, quota=False)
        quota = figures(*given, *test, quota=True)
        better = np.subtract(quota["balanced_accuracies"], plain["balanced_accuracies"])
        found[name] = {
            "public": len(rows),
            "public order": plain,
            "quota order": quota,
            "balanced_accuracy_gained": float(better.mean()),
            "standard_error": float(better.std(ddof=1) / np.sqrt(RUNS)),
        }
    cost = FIRST * total_cost(Gdp(), ROUND_1.worst) + SECOND * total_cost(Gdp(), ROUND_2.worst)
    return {
        "first": FIRST, "second": SECOND, "runs": RUNS, "teachers": TEACHERS,
        "epsilon": Gdp().epsilon(cost, DELTA), "delta": DELTA, "unit": "record", "sets": found,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw labels and recall per digit, in both orders."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 6.4), dpi=120, layout="constrained")
    figure.suptitle(
        f"Class quotas in the second round, MNIST, {found['first']} + {found['second']} questions, "
        f"means of {found['runs']} runs",
        fontsize=11,
    )
    for row, (name, case) in zip(figure.subplots(2, 2), found["sets"].items(), strict=True):
        for axes, key, title in zip(
            row,
            ("labels_per_class", "recall_per_class"),
            ("labels", "student's recall"),
            strict=True,
        ):
            for shift, order, colour in (
                (-0.2, "public order", "#9db4c8"),
                (0.2, "quota order", "#0b3c5d"),
            ):
                axes.bar(
                    np.arange(CLASSES) + shift, case[order][key], 0.4, color=colour, label=order
                )
            axes.set_title(
                f"{name}, {case['public']:,} public images: {title}", loc="left", fontsize=10
            )
            axes.set_xticks(range(CLASSES))
        row[1].set_ylim(0, 1)
        row[0].legend(frameon=False, fontsize=9)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--json", type=Path, help="write the figures there, instead of printing them"
    )
    parser.add_argument("--picture", type=Path, help="draw labels and recall per digit, as a PNG")
    chosen = parser.parse_args()
    found = run()
    text = json.dumps(found, indent=2)
    if chosen.json:
        chosen.json.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    if chosen.picture:
        draw(found, chosen.picture)


if __name__ == "__main__":
    main()
