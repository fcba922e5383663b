"""What ``pate-student train`` says at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pate.formats.labels import LabelRow, LabelSet
from pate.runtime.screen import Screen
from student.output import tell_published
from student.session import Published
from tests.support.student_samples import STATEMENT

NEIGHBOUR = [{"mechanism": "neighbour", "threshold": 3, "sigma": "40", "votes_per_unit": 1}]
GNMAX = [{"mechanism": "gnmax", "sigma2": "40", "votes_per_unit": 1}]


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        (NEIGHBOUR, "one record added, removed or altered"),
        ([NEIGHBOUR[0] | {"mechanism": "distributed-neighbour"}], "one record added, removed or"),
        (GNMAX, "one record added or removed; observer"),
    ],
)
def test_the_guarantee_is_for_the_neighbours_of_who_voted(
    mechanism: list[dict[str, object]], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = LabelSet(
        campaign=b"1" * 16,
        classes=("no", "yes"),
        public_set=bytes(32),
        queries=10,
        rows=(LabelRow(0, 1, 1, "records"),),
        privacy=json.dumps(STATEMENT | {"mechanism": mechanism}),
    )
    tell_published(
        Published((), None, 1.0), labels, Path("out"), Screen("pate-student"), as_json=False
    )
    said = capsys.readouterr().err
    assert f"1 labels, epsilon 1.97 at delta 1e-05 (unit: record; adjacency: {words}" in said
