"""Heart disease: four hospitals, one CSV each; each hospital's queries are the others' rows.

The four sites of the UCI Heart Disease data are the four parties. There is no public set in this
data, so half of every site's patients, their diagnosis left out, stand in for one, and the other
half are the sites' private records. 20 % of the stand-in is held back with its labels to evaluate.
With some 460 private patients in all the votes are few and the noise is large beside them: the
figures say what that comes to, beside the majority class. Needs PATE_TEST_DATA.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.field import alone, campaign, data_folder
from pate.data.read import read_dataset
from pate.formats.labels import LabelSet
from simulation.report import label_accuracy, majority_accuracy

COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal",
)  # fmt: skip
#: Teachers per site: about a dozen patients each.
TEACHERS = {"cleveland": 12, "hungarian": 12, "switzerland": 5, "va": 8}
CLASSES = "disease,healthy"
EPSILON, DELTA = 5.0, 1e-3
SERVER = (
    "--aggregator", "gnmax", "--epsilon", str(EPSILON), "--delta", str(DELTA), "--sigma2", "12",
    "--classes", CLASSES,
)  # fmt: skip


def rows_of(site: str) -> list[list[str]]:
    """Return a site's patients: 13 features and the diagnosis in words."""
    text = (data_folder() / "heart_disease" / f"processed.{site}.data").read_text()
    found = []
    for fields in csv.reader(text.splitlines()):
        features, diagnosis = fields[:-1], int(float(fields[-1]))
        # A cholesterol of 0 says that none was measured.
        features[4] = "?" if features[4] in ("0", "0.0") else features[4]
        found.append([*features, "disease" if diagnosis else "healthy"])
    return found


def write(path: Path, rows: list[list[str]], *, labelled: bool) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, "diagnosis"] if labelled else COLUMNS)
        writer.writerows(rows if labelled else [row[:-1] for row in rows])


def prepare(place: Path) -> None:
    """Write one CSV per site, the stand-in for a public set, its truth, and a test set."""
    public, test = [], []
    for number, site in enumerate(TEACHERS):
        rows = rows_of(site)
        order = np.random.default_rng(number).permutation(len(rows)).tolist()
        private, held, rest = np.split(np.array(order), [len(rows) // 2, len(rows) * 6 // 10])
        write(place / f"{site}.csv", [rows[at] for at in private.tolist()], labelled=True)
        test += [rows[at] for at in held.tolist()]
        public += [rows[at] for at in rest.tolist()]
    write(place / "public.csv", public, labelled=False)
    write(place / "truth.csv", public, labelled=True)
    write(place / "test.csv", test, labelled=True)


def run(place: Path | None = None) -> dict[str, object]:
    """Run the campaign and return its figures."""
    if place is None:
        with tempfile.TemporaryDirectory(prefix="pate-heart-") as scratch:
            return run(Path(scratch))
    prepare(place)
    found = campaign(
        place,
        public=place / "public.csv",
        test=place / "test.csv",
        parties={
            site: (
                "--data", str(place / f"{site}.csv"), "--label", "diagnosis",
                "--classes", CLASSES, "--teachers", str(teachers),
            )
            for site, teachers in TEACHERS.items()
        },
        server=SERVER,
        evaluate=("--label", "diagnosis"),
    )  # fmt: skip
    truth = read_dataset(place / "truth.csv", label="diagnosis")
    test = read_dataset(place / "test.csv", label="diagnosis")
    labels = LabelSet.from_json((place / "labels.json").read_text())
    found["label_accuracy"] = label_accuracy(labels, truth)
    found["majority_accuracy"] = majority_accuracy(test)
    return found


if __name__ == "__main__":
    alone(run, __doc__ or "")
