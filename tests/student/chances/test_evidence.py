"""What becomes of each kind of evidence: a matrix of chances, and what goes with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pate.errors import DataError
from pate.formats.noisy_counts import NoisyVotes
from student.chances.evidence import Chances, chances_of, labelled
from student.fit.rows import encoding_of
from student.lesson import Lesson
from student.training import train
from tests.student.chances.test_cells import lesson_of, voted
from tests.student.chances.test_sums import in_rounds, summed
from tests.support.encoders.embedded import embedded_records
from tests.support.student_samples import taught_rows

FEW = np.arange(0, 300, 20)


def of(lesson: Lesson) -> Chances:
    rows = encoding_of(lesson.public).encode(lesson.public)
    (found,) = chances_of(lesson, rows, seed=0)
    return found


def test_each_evidence_over_a_table_has_its_chances() -> None:
    for (public, noisy), source in (
        (voted(), "counts"),
        (summed(3.0), "sums"),
        (in_rounds(3.0, 2), "rounds"),
    ):
        found = of(lesson_of(public, noisy))
        assert found.source == source
        assert found.matrix.shape == (len(public), 2)
        np.testing.assert_allclose(found.matrix.sum(axis=1), 1.0, atol=1e-6)
        # Trees are moved to agree with counts; they copy what has no noise of its own.
        assert (found.cells is not None) == (source == "counts")
        assert found.smooth == (source != "counts")


def test_where_the_sums_are_only_noise_the_labels_are_left() -> None:
    """Of tables and of embeddings alike."""
    data = embedded_records(300, seed=2)
    table, noisy = summed(3.0)
    lost = NoisyVotes(noisy.queries, noisy.counts * 0, 1e9, noisy.code)
    lesson = lesson_of(table, lost)
    assert of(lesson).source == "labels"
    assert (of(lesson).matrix == labelled(lesson).matrix).all()
    nothing = np.zeros((24, 3), np.int64)
    drowned = NoisyVotes(np.arange(24), nothing, 1e9, "dense-24")
    known = replace(
        lesson,
        public=data.inputs,
        queries=FEW,
        labels=data.labels[FEW],
        classes=data.classes,
        noisy=drowned,
    )
    found = of(known)
    assert found.source == "labels"
    right = (found.matrix.argmax(axis=1) == data.labels).mean()
    assert right > 0.9
    test = embedded_records(300, seed=3)
    student = taught_rows(known)
    assert (student.predict(test.inputs) == test.labels).mean() > 0.9
    none = replace(known, queries=FEW[:0], labels=FEW[:0])
    with pytest.raises(DataError, match="no more than their noise"):
        of(none)
    with pytest.raises(DataError, match="no more than their noise"):
        train(none, seed=0)
