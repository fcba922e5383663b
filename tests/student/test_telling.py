"""The final output of ``pate-student train``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pate.formats.labels import LabelRow, LabelSet
from pate.runtime.screen import Screen
from student.output import tell_few_labels, tell_published
from student.session import Published
from tests.support.student_samples import STATEMENT

NEIGHBOUR = [{"mechanism": "neighbour", "threshold": 3, "sigma": "40", "votes_per_unit": 1}]
GNMAX = [{"mechanism": "gnmax", "sigma2": "40", "votes_per_unit": 1}]
SEEDED = {"observer": "public", "epsilon": None, "delta": None, "meaning": "a seeded run"}


@pytest.mark.parametrize(
    ("mechanism", "more", "words"),
    [
        (NEIGHBOUR, {}, "one record added, removed or altered"),
        (
            [NEIGHBOUR[0] | {"mechanism": "distributed-neighbour"}],
            {},
            "one record added, removed or",
        ),
        (GNMAX, {}, "one record added or removed; observer"),
        (GNMAX, {"statements": [SEEDED]}, "no privacy guarantee: see privacy.json"),
    ],
)
def test_the_last_line_promises_what_the_statement_does(
    mechanism: list[dict[str, object]],
    more: dict[str, object],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For the neighbours of who voted; and nothing where the statement takes it back."""
    labels = few(mechanism, (), **more)
    tell_published(
        Published((), None, 1.0), labels, Path("out"), Screen("pate-student"), as_json=False
    )
    said = capsys.readouterr().err
    terms = "" if more else "epsilon 1.97 at delta 1e-05 (unit: record; adjacency: "
    assert f"1 labels, {terms}{words}" in said
    assert ("1.97" in said) == (not more)


def few(mechanism: object, rows: tuple[LabelRow, ...] = (), **changes: object) -> LabelSet:
    return LabelSet(
        campaign=b"1" * 16,
        classes=("no", "yes", "may\x1b[2Jbe"),
        public_set=bytes(32),
        queries=100,
        rows=rows or (LabelRow(0, 1, 1, "teachers"),),
        privacy=json.dumps(STATEMENT | {"mechanism": mechanism} | changes),
    )


def test_classes_without_labels_are_said_before_the_training_and_what_to_try(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell_few_labels(few(GNMAX, teachers=40), Screen("pate-student"))
    said = capsys.readouterr().err
    assert (
        "1 labels: no label of 2 of 3 classes (no, may\\x1b[2Jbe), fewer than 10 labels of 1 class (yes)"
        in said
    )
    assert "`pate plan --aggregator gnmax --classes 3 --teachers 40 --queries 100 --epsilon" in said
    tell_few_labels(few(NEIGHBOUR), Screen("pate-student"))
    assert "`pate plan --aggregator neighbour --classes 3 --epsilon" in capsys.readouterr().err
    enough = tuple(LabelRow(i, i % 3, 1, "teachers") for i in range(30))
    tell_few_labels(few(GNMAX, enough), Screen("pate-student"))
    assert capsys.readouterr().err == ""


def test_a_server_cannot_write_into_the_command_that_is_to_be_copied(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = "1; rm -rf ~"
    mechanism = [{"mechanism": evil, "votes_per_unit": evil}]
    tell_few_labels(few(mechanism, teachers=evil, unit=evil), Screen("pate-student"))
    tell_few_labels(few(mechanism, unit="party"), Screen("pate-student"))
    assert "rm -rf" not in capsys.readouterr().err
