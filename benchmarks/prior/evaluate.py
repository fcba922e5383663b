"""Teachers of tiny shards, kind by kind: how often one is right, their plurality, and that with noise.

Every kind gets the same shards and answers the same queries, in five random splits: 60 % of the records
are dealt into shards of one size, the others are the queries. Heart Disease is split within each
hospital, and a shard has records of one hospital only.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.data import data_folder, tables
from party.teachers.protocol import Constant
from party.teachers.registry import kind_for
from pate.data.values import Dataset, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

_PRIVATE: Final = 0.6
#: Spread of the noise in each count, in teachers, and how often it is drawn.
_NOISE: Final = 1 / 3
_DRAWS: Final = 100
#: Rows of Adult that a split uses, private and queries together.
_ADULT: Final = 1_000


def heart_sites() -> list[Dataset]:
    """Return the patients of the four hospitals."""
    return [tables.heart_site(site) for site in tables.SITES]


def wdbc() -> list[Dataset]:
    """Return the 569 cases of Breast Cancer Wisconsin (Diagnostic), 30 columns."""
    path = data_folder() / "breast_cancer_wisconsin" / "wdbc.data"
    rows = [row for row in csv.reader(path.read_text().splitlines()) if row]
    labels = np.array([row[1] == "M" for row in rows], dtype=np.int64)
    numbers = np.array([[float(cell) for cell in row[2:]] for row in rows])
    names = tuple(f"c{at}" for at in range(numbers.shape[1]))
    return [Dataset(Table(names, tuple(numbers.T.copy())), labels, ("benign", "malignant"))]


def adult_rows(split: int) -> list[Dataset]:
    """Return some rows of Adult, others in each split."""
    whole = tables.adult_rows("data")
    return [whole.take(np.random.default_rng(split).permutation(len(whole))[:_ADULT])]


def wine() -> list[Dataset]:
    """Return the 178 wines of three classes that come with scikit-learn."""
    from sklearn.datasets import load_wine

    found = load_wine()
    names = tuple(found.feature_names)
    return [
        Dataset(
            Table(names, tuple(found.data.T.copy())), found.target.astype(np.int64), ("a", "b", "c")
        )
    ]


SETS: Final[dict[str, Callable[[int], list[Dataset]]]] = {
    "heart": lambda _: heart_sites(),
    "wdbc": lambda _: wdbc(),
    "adult": adult_rows,
    "wine": lambda _: wine(),
}


def parts(sites: list[Dataset], size: int, split: int) -> tuple[list[Dataset], list[Dataset]]:
    """Return the shards and the queries of one split."""
    random = np.random.default_rng([split, size])
    shards, queries = [], []
    for site in sites:
        order = random.permutation(len(site))
        private, rest = np.split(order, [round(len(site) * _PRIVATE)])
        count = len(private) // size
        shards += [site.take(rows) for rows in private[: count * size].reshape(count, size)]
        queries.append(site.take(rest))
    return shards, queries


def answers(model: str, shards: list[Dataset], queries: list[Dataset]) -> NDArray[np.int64]:
    """Return (shards, queries) int64, each teacher's class for each query."""
    kind = kind_for(model, shards[0].inputs)
    given = []
    for at, shard in enumerate(shards):
        teacher = Constant.of(shard.labels) or kind.fit(shard, at)
        given.append(np.concatenate([teacher.predict(part.inputs) for part in queries]))
    return np.stack(given)


def measure(
    name: str, size: int, models: Iterable[str], splits: int
) -> dict[str, NDArray[np.float64]]:
    """Return for each model (splits, 3): the share right of single teachers, plurality, and with noise."""
    found: dict[str, list[tuple[float, float, float]]] = {model: [] for model in models}
    for split in range(splits):
        shards, queries = parts(SETS[name](split), size, split)
        truth = np.concatenate([part.labels for part in queries])
        for model, figures in found.items():
            given = answers(model, shards, queries)
            votes = np.stack(
                [(given == label).sum(axis=0) for label in range(len(shards[0].classes))]
            )
            plurality = (votes.argmax(axis=0) == truth).mean()
            noise = np.random.default_rng(split).normal(size=(_DRAWS, *votes.shape))
            noisy = votes + _NOISE * len(shards) * noise
            released = (noisy.argmax(axis=1) == truth).mean()
            figures.append((float((given == truth).mean()), float(plurality), float(released)))
    return {model: np.array(figures) for model, figures in found.items()}


def report(names: list[str], sizes: list[int], models: list[str], splits: int) -> None:
    """Print a table of per cent right, and standard errors over the splits.

    Each cell has single teachers / their plurality / their plurality with Gaussian noise of a third of
    the teachers in each count, as the row of Heart Disease in docs/results.md has it.
    """
    print("| set, records a teacher | " + " | ".join(models) + " |")
    print("|---" * (1 + len(models)) + "|")
    for name in names:
        for size in sizes:
            found = measure(name, size, models, splits)
            cells = [_cell(100 * found[model]) for model in models]
            print(f"| {name}, {size} | " + " | ".join(cells) + " |", flush=True)


def _cell(figures: NDArray[np.float64]) -> str:
    errors = figures.std(axis=0, ddof=1) / len(figures) ** 0.5
    return " / ".join(
        f"{mean:.1f} ± {error:.1f}"
        for mean, error in zip(figures.mean(axis=0), errors, strict=True)
    )
