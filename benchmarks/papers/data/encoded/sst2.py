"""SST-2 (Socher et al., EMNLP 2013): whether a sentence of a film review is positive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.papers.data import data_folder
from benchmarks.papers.data.encoded import divided, labelled

if TYPE_CHECKING:
    from benchmarks.papers.data.encoded import Embedder
    from benchmarks.papers.split import Split
    from pate.data.values import Dataset

CLASSES: Final = ("negative", "positive")
SIZES: Final = (5_500, 2_292)


def load(embedder: Embedder) -> Split:
    """Return the parts, embedded. Needs PATE_TEST_DATA."""
    whole = _part(embedder, "train-dev", ("train", "dev"))
    note = (
        "label: whether a sentence is positive; unit: record, one sentence; of the 7,792 of train and "
        "dev 5,500 private and 2,292 public, tested on the official 1,821"
    )
    return divided(whole, SIZES, _part(embedder, "test", ("test",)), note)


def _part(embedder: Embedder, name: str, files: tuple[str, ...]) -> Dataset:
    folder = data_folder() / "text" / "sst2"
    lines = [
        line
        for file in files
        for line in (folder / f"{file}.tsv").read_text(encoding="utf-8").split("\n")
        if line.strip()
    ]
    rows = [line.rstrip("\r").rpartition("\t") for line in lines]
    inputs = embedder.embed(f"sst2-{name}", lambda: [text for text, _, _ in rows])
    return labelled(inputs, [int(label) for _, _, label in rows], CLASSES)
