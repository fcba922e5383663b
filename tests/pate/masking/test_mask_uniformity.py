"""Masks, and votes under them, are uniform; and nothing but the given random bytes makes them.

The keys are fresh each time. What is right fails a run of this file with a chance of at most
:data:`ALARM`, which is shared out among both tails of all the statistics.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from pate.masking.context import VERSION, Member
from pate.masking.party import PartyMasking
from pate.masking.ring import ChaChaStream, Residues, Ring
from tests.support.masking.attempts import flat_context

ROOT = Path(__file__).resolve().parents[3]
ALARM = 1e-6
#: Streams and votes have 24 and 52 statistics; the rest is in reserve.
STATISTICS = 100
#: Bytes of a vector that is tested.
LENGTH = 2**22


def uniform(bins: NDArray[np.int64]) -> bool:
    """Chi-square for bins that are all as likely: neither too uneven nor too even."""
    from scipy.stats import chi2

    expected = bins.sum() / bins.size
    assert expected >= 32, "too few values for that many bins"
    statistic = float(((bins - expected) ** 2).sum() / expected)
    law = chi2(bins.size - 1)
    return bool(min(law.sf(statistic), law.cdf(statistic)) > ALARM / (2 * STATISTICS))


def flaws(values: Residues) -> list[str]:
    """The statistics that are off: of each byte of a residue, and of bytes that follow another.

    64 bytes are a block of ChaCha20: a block that comes twice shows.
    """
    width = values.dtype.itemsize
    raw = np.frombuffer(values.astype(values.dtype.newbyteorder("<")).tobytes(), np.uint8)
    assert raw.size >= LENGTH
    found = [
        f"byte {at} of a residue"
        for at in range(width)
        if not uniform(np.bincount(raw[at::width], minlength=256))
    ]
    for lag in (1, 64):
        # Pairs that have no byte in common, or they would depend on each other.
        first, second = raw[: raw.size // (2 * lag) * 2 * lag].reshape(-1, 2, lag).swapaxes(0, 1)
        pairs = first.astype(np.int64).ravel() * 256 + second.ravel()
        if not uniform(np.bincount(pairs, minlength=2**16)):
            found.append(f"bytes {lag} apart")
    return found


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_the_mask_stream_is_uniform(bits: int) -> None:
    stream = ChaChaStream(Ring(bits))
    count = LENGTH * 8 // bits
    one, other = (stream(secrets.token_bytes(32), count) for _ in range(2))
    assert flaws(one) == []
    assert flaws(one - other) == []


def masked_zeros(bits: int, rows: int) -> list[Residues]:
    """What three parties send that have no votes at all."""
    identities = {name: Ed25519PrivateKey.generate() for name in "abc"}
    context = flat_context(
        version=VERSION, campaign=bytes(16), attempt=secrets.token_bytes(16), batch=bytes(32),
        members=tuple(
            Member(name, key.public_key().public_bytes_raw()) for name, key in identities.items()
        ),
        rows=rows, classes=16, bits=bits, threshold=3, colluders=1, terms=bytes(32),
    )  # fmt: skip
    parties = [
        PartyMasking(context, name=name, identity=key, random=secrets.token_bytes)
        for name, key in identities.items()
    ]
    keys = dict(zip("abc", (party.keys() for party in parties), strict=True))
    boxes = {party.name: party.shares(keys) for party in parties}
    votes = np.zeros((rows, 16), dtype=np.int64)
    return [
        Ring(bits).unpack(party.mask(addressed(boxes, party.name), votes), rows * 16)
        for party in parties
    ]


def addressed(boxes: Mapping[str, Mapping[str, bytes]], name: str) -> dict[str, bytes]:
    """The boxes for one party, by sender."""
    return {sender: sealed[name] for sender, sealed in boxes.items() if sender != name}


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_votes_that_are_all_zero_are_uniform_under_their_masks(bits: int) -> None:
    masked = masked_zeros(bits, LENGTH * 8 // bits // 16)
    for values in masked:
        assert flaws(values) == []
    # The pair's mask goes out of this sum, and the masks with the third party do not.
    assert flaws(masked[0] + masked[1]) == []


def _without_the_last_value(raw: Residues) -> None:
    raw[raw == 255] = 0


def _with_a_block_twice(raw: Residues) -> None:
    blocks = raw.reshape(-1, 128)
    blocks[:, 64:] = blocks[:, :64]


def _of_alternate_evenness(raw: Residues) -> None:
    raw[0::2] &= 254
    raw[1::2] |= 1


def _too_even(raw: Residues) -> None:
    raw[:] = np.arange(raw.size) // 8 % 256


def _with_votes_in_clear(raw: Residues) -> None:
    """One count in a hundred stands there bare: ten votes for a class."""
    raw[::100] = 10


@pytest.mark.parametrize(
    "spoil",
    [
        _without_the_last_value,
        _with_a_block_twice,
        _of_alternate_evenness,
        _too_even,
        _with_votes_in_clear,
    ],
)
def test_flaws_are_found(spoil: Callable[[Residues], None]) -> None:
    values = ChaChaStream(Ring(8))(secrets.token_bytes(32), LENGTH)
    spoil(values)
    assert flaws(values) != []


def test_equal_bytes_of_randomness_give_equal_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the given source is drawn from, and neither Python's nor numpy's generators."""

    def never(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a generator was used that is not the given one")

    for name in ("random", "randint", "bytes", "default_rng", "RandomState", "Generator"):
        monkeypatch.setattr(np.random, name, never)
    for name in ("random", "getrandbits", "randbytes", "randrange"):
        monkeypatch.setattr(random, name, never)
    identities = [Ed25519PrivateKey.from_private_bytes(bytes([at]) * 32) for at in range(3)]

    def messages(seed: bytes) -> list[object]:
        at = itertools.count()

        def tape(count: int) -> bytes:
            return hashlib.shake_256(seed + bytes([next(at)])).digest(count)

        context = flat_context(
            version=VERSION, campaign=bytes(16), attempt=bytes(16), batch=bytes(32),
            members=tuple(
                Member(name, key.public_key().public_bytes_raw())
                for name, key in zip("abc", identities, strict=True)
            ),
            rows=2, classes=3, bits=16, threshold=3, colluders=1, terms=bytes(32),
        )  # fmt: skip
        parties = [
            PartyMasking(context, name=name, identity=key, random=tape)
            for name, key in zip("abc", identities, strict=True)
        ]
        keys = dict(zip("abc", (party.keys() for party in parties), strict=True))
        boxes = {party.name: party.shares(keys) for party in parties}
        masked = parties[0].mask(addressed(boxes, "a"), np.ones((2, 3), dtype=np.int64))
        return [keys, boxes, masked]

    assert messages(b"x") == messages(b"x")
    for one, other in zip(messages(b"x"), messages(b"y"), strict=True):
        assert one != other
