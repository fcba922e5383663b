from __future__ import annotations

import doctest
import subprocess
import sys

import pytest

import pate.label_source
from tests.support.pages import blocks


@pytest.mark.e2e
def test_the_code_of_the_page_runs_and_prints_what_it_says() -> None:
    (code,) = blocks("library.md", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    # -X importtime names every module: neither engine nor network library may be among them.
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    labels, right = ran.stdout.splitlines()
    # The noise is drawn anew each time. Some 800 of 1,000 queries have 205 votes for their class, and
    # the budget ends it long before: each of these lines fails with a chance below 1e-9.
    assert int(labels.split()[0]) > 50
    assert "epsilon 2" in labels
    assert "delta 1e-05" in labels
    assert "unit: record" in labels
    assert float(right.split("%")[0]) > 90
    modules = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert not {"flwr", "torch", "grpc"} & modules


def test_what_the_front_door_says_of_itself_holds() -> None:
    for module in (pate, pate.label_source):
        tried = doctest.testmod(module)
        assert tried.attempted
        assert not tried.failed
