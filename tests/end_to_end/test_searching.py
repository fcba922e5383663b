"""The search for secrets finds them in each form that a program may print or store."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.processes import searching
from tests.support.processes.searching import Secret

ROW = np.array([[31, 9, 0, 7, 4, 0]])


@pytest.mark.parametrize(
    ("secret", "leaks", "others"),
    [
        (
            searching.number("", "", 104_729),
            [
                "n=104729",
                "104,729 records",
                "pate_records 104729.0",
                '{"n": 104729}',
                "1.04729e+05",
            ],
            ["1104729", "0.104729", "104729f", "104729.5", "10472"],
        ),
        (
            searching.rows("", "", ROW),
            ["[31, 9, 0, 7, 4, 0]", "31,9,0,7,4,0", "[31 9\n 0 7 4 0]", "31.0 9.0 0.0 7.0 4.0 0.0"],
            ["[31, 9, 0, 7, 4, 10]", "131,9,0,7,4,0", "31 9 0 7 4"],
        ),
        (
            searching.figures("", "", [8.370381806]),
            ["epsilon 8.370381806", "8.37038", "8.3704,", "pate_x 8.370381806e+00"],
            ["8.37", "8.3705", "18.370381806", "process_x 8.37038"],
        ),
        (
            searching.key("", "", bytes(range(7, 39))),
            [
                bytes(range(7, 39)).hex(),
                "BwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSY=",
                str(list(range(7, 39))),
                repr(bytes(range(7, 39))),
            ],
            [bytes(range(7, 38)).hex()],
        ),
    ],
    ids=["number", "row", "figure", "key"],
)
def test_the_search_finds_every_form(secret: Secret, leaks: list[str], others: list[str]) -> None:
    for leak in leaks:
        assert secret.is_in(f"something {leak}\n".encode()), leak
    for other in others:
        assert not secret.is_in(f"something\n{other}\n".encode()), other


@pytest.mark.parametrize("kind", ["u1", "<i2", ">i4", "<i8", "<f8"])
def test_the_search_finds_a_matrix_as_bytes(kind: str) -> None:
    counts = np.random.default_rng(0).integers(0, 50, (20, 6))
    secret = searching.matrix("", "", counts)
    assert secret.is_in(b"x" + counts.astype(kind).tobytes())
    assert secret.is_in(b"x" + counts.T.astype(kind).tobytes())
    assert not secret.is_in(counts[1:].astype(kind).tobytes())
