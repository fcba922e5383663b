"""Banking77 (Casanueva et al., 2020): which of 77 intents a question of a bank's customer has."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final

from benchmarks.papers.data import data_folder
from benchmarks.papers.data.encoded import divided, labelled

if TYPE_CHECKING:
    from benchmarks.papers.data.encoded import Embedder
    from benchmarks.papers.split import Split

SIZES: Final = (7_500, 2_503)


def load(embedder: Embedder) -> Split:
    """Return the parts, embedded. Needs PATE_TEST_DATA."""
    parts = {name: _read(name) for name in ("train", "test")}
    classes = tuple(sorted({intent for _, intent in parts["train"]}))
    made = {}
    for name, rows in parts.items():
        texts = [text for text, _ in rows]
        inputs = embedder.embed(f"banking77-{name}", texts.__iter__)
        made[name] = labelled(inputs, [classes.index(intent) for _, intent in rows], classes)
    note = (
        "label: the intent of a question; unit: record, one question; of the 10,003 of train 7,500 "
        "private and 2,503 public, tested on the official 3,080"
    )
    return divided(made["train"], SIZES, made["test"], note)


def _read(name: str) -> list[tuple[str, str]]:
    path = data_folder() / "text" / "banking77" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]
