"""A student that measures its accuracy states it with its predictions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pate.errors import DataError
from student.client import StudentClient
from student.lesson import Student
from student.session import Measure, follow, identify
from tests.student.test_session import Teaching, script
from tests.support.student_samples import ScriptedServer, serving, tumours


def submitted(measure: Measure | None) -> ScriptedServer:
    public, _ = tumours()
    server = ScriptedServer(public.inputs, public.classes, script(40, 25))
    with serving(server) as port:
        client = StudentClient(f"127.0.0.1:{port}", identify(public.inputs), max_wait=20)
        with client:
            follow(client, public.inputs, Teaching(), say=lambda _: None, measure=measure)
    return server


def test_it_is_measured_before_each_submission() -> None:
    _, held_out = tumours()
    measured: list[float] = []

    def measure(student: Student) -> float:
        found = student.predict_probabilities(held_out.inputs).argmax(axis=1)
        measured.append(float(np.mean(found == held_out.labels)))
        return measured[-1]

    message = submitted(measure).submitted[2]
    assert measured == [message.accuracy]
    assert message.accuracy > 0.7


def test_without_a_measure_nothing_is_said() -> None:
    assert not submitted(None).submitted[2].HasField("accuracy")


@pytest.mark.parametrize("wrong", [-0.01, 1.01, math.nan, math.inf])
def test_only_a_share_is_sent(wrong: float) -> None:
    public, _ = tumours()
    server = ScriptedServer(public.inputs, public.classes, script(4, 2))
    with (
        serving(server) as port,
        StudentClient(f"127.0.0.1:{port}", identify(public.inputs), max_wait=20) as client,
        pytest.raises(DataError, match="an accuracy"),
    ):
        client.submit(2, np.full((400, 2), 0.5, dtype=np.float32), wrong)
