"""AG News (Zhang, Zhao and LeCun, NeurIPS 2015): the class of a news item by title and description.

Only its test part, 7,600 items, is divided: 5,000 private, 1,600 public, 1,000 to test.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final

from benchmarks.papers.data import data_folder
from benchmarks.papers.data.encoded import divided, labelled

if TYPE_CHECKING:
    from benchmarks.papers.data.encoded import Embedder
    from benchmarks.papers.split import Split

CLASSES: Final = ("World", "Sports", "Business", "Sci/Tech")
SIZES: Final = (5_000, 1_600)


def load(embedder: Embedder) -> Split:
    """Return the parts, embedded. Needs PATE_TEST_DATA."""
    path = data_folder() / "text" / "ag_news" / "test.csv"
    rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    inputs = embedder.embed("ag_news", lambda: [f"{row[1]}. {row[2]}" for row in rows])
    whole = labelled(inputs, [int(row[0]) - 1 for row in rows], CLASSES)
    note = (
        "label: the class of a news item; unit: record, one news item; 5,000 private, 1,600 public and "
        "1,000 to test, in a random order, all of the published test part"
    )
    return divided(whole, SIZES, None, note)
