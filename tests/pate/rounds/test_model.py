"""The shown model: its bounds, its one byte string, and what is none."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from pate.answers import MOST_CLASSES
from pate.codes import GRID, MOST_DIRECTIONS
from pate.errors import ProtocolError
from pate.rounds.model import MOST_CUT, MOST_WEIGHT, RoundModel

WEIGHTS = np.array([[3, -4], [0, MOST_WEIGHT], [-MOST_WEIGHT, 7]], dtype=np.int64)


def test_a_model_has_one_byte_string_and_its_own_digest() -> None:
    made = RoundModel(WEIGHTS, 700)
    raw = made.to_bytes()
    assert len(raw) == 6 + 4 * WEIGHTS.size
    assert RoundModel.from_bytes(raw) == made
    assert np.array_equal(RoundModel.from_bytes(raw).weights, WEIGHTS)
    others = [
        RoundModel(WEIGHTS, 701),
        RoundModel(WEIGHTS[:, ::-1], 700),
        RoundModel(WEIGHTS.T.copy(), 700),
    ]
    assert len({each.digest for each in (made, *others)}) == 4
    assert made not in others
    assert made != raw
    assert len({made, RoundModel.from_bytes(raw)}) == 1


def test_a_model_stays_as_it_was_made() -> None:
    given = WEIGHTS.copy()
    made = RoundModel(given, 1)
    given[0, 0] = 99
    assert made.weights[0, 0] == 3
    with pytest.raises(ValueError, match="read-only"):
        made.weights[0, 0] = 5


@pytest.mark.parametrize(
    ("weights", "cut"),
    [
        (WEIGHTS, 0),
        (WEIGHTS, -1),
        (WEIGHTS, MOST_CUT + 1),
        (WEIGHTS, True),
        (WEIGHTS, 5.0),
        (WEIGHTS + 1, 5),
        (WEIGHTS - 1, 5),
        (np.full((2, 2), np.iinfo(np.int64).min), 5),
        (WEIGHTS.astype(np.float64), 5),
        (WEIGHTS.astype(np.int32), 5),
        (WEIGHTS[0], 5),
        (WEIGHTS[:1], 5),
        (WEIGHTS[:, :1], 5),
        (np.zeros((MOST_DIRECTIONS + 1, 2), np.int64), 5),
        (np.zeros((2, MOST_CLASSES + 1), np.int64), 5),
        (WEIGHTS.tolist(), 5),
    ],
)
def test_another_model_is_refused(weights: Any, cut: Any) -> None:
    with pytest.raises(ProtocolError, match="a shown model"):
        RoundModel(weights, cut)


def test_a_model_of_another_campaign_is_refused() -> None:
    made = RoundModel(WEIGHTS, 5)
    made.check_shape(3, 2)
    for shape in ((2, 3), (3, 3), (2, 2)):
        with pytest.raises(ProtocolError, match="not"):
            made.check_shape(*shape)


def test_bytes_of_anybody_are_a_model_or_refused() -> None:
    """Cut, grown, changed in one byte, and drawn: what is read is written as it was."""
    raw = RoundModel(WEIGHTS, 700).to_bytes()
    drawn = np.random.default_rng(1)
    tried = [raw[:at] for at in range(len(raw))]
    tried += [raw + b"\0", raw + raw, b"", bytes(6), struct.pack("<HHH", 65535, 65535, 65535)]
    tried += [
        raw[:at] + bytes([value]) + raw[at + 1 :]
        for at in range(len(raw))
        for value in (0, 1, 127, 255)
    ]
    tried += [drawn.bytes(int(size)) for size in drawn.integers(0, 40, 500)]
    # Heads that fit their length.
    for _ in range(500):
        shape = drawn.integers(0, 5, 2)
        head = struct.pack("<HHH", *shape, int(drawn.integers(0, 2 * MOST_CUT)))
        size = (4 * int(shape.prod()),)
        tried.append(head + drawn.bytes(*size))
    read = 0
    for each in tried:
        try:
            found = RoundModel.from_bytes(each)
        except ProtocolError:
            continue
        read += 1
        assert found.to_bytes() == each
        assert 1 <= found.cut <= 2 * GRID
        assert np.abs(found.weights).max() <= MOST_WEIGHT
    assert 0 < read < len(tried) / 2
    odd: Any = bytearray(raw)
    with pytest.raises(ProtocolError):
        RoundModel.from_bytes(odd)
