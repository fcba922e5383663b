"""Masked sums are exact, and masks and votes under them uniform."""

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
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pate.errors import ProtocolError, QuorumError, UsageError
from pate.masking.context import VERSION, Member, check_threshold
from pate.masking.graph import COMPLETE_UP_TO
from pate.masking.party import PartyMasking
from pate.masking.ring import ChaChaStream, Residues, Ring, centred, ring_bits
from tests.support.masking.attempts import Attempt, context_for, flat_context


def thresholds(parties: int) -> list[tuple[int, int]]:
    """Every valid t and c."""
    found = []
    for threshold in range(2, parties + 1):
        for colluders in range(parties):
            try:
                check_threshold(parties, threshold, colluders)
            except UsageError:
                continue
            found.append((threshold, colluders))
    return found


@st.composite
def attempts(draw: st.DrawFn) -> tuple[Attempt, list[list[str]]]:
    """An attempt, and who is there in each of its five phases: at least t, ever fewer."""
    parties = draw(st.integers(3, 12))
    threshold, colluders = draw(st.sampled_from(thresholds(parties)))
    rows, classes = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    bits = draw(st.sampled_from([8, 16, 32]))
    attempt = Attempt(
        context_for(parties, threshold, colluders, rows=rows, classes=classes, bits=bits)
    )
    # Votes and noise: any integers whose sum fits.
    largest = (2 ** (bits - 1) - 1) // parties
    votes = draw(
        st.lists(
            st.integers(-largest, largest),
            min_size=parties * rows * classes,
            max_size=parties * rows * classes,
        )
    )
    matrices = np.array(votes, dtype=np.int64).reshape(parties, rows, classes)
    attempt.values = dict(zip(attempt.context.names, matrices, strict=True))
    present = draw(st.permutations(attempt.context.names))
    phases = []
    for _ in range(5):
        present = present[: draw(st.integers(threshold, len(present)))]
        phases.append(list(present))
    return attempt, phases


@settings(max_examples=25, deadline=None)
@given(attempts())
def test_the_sum_is_exact_whoever_drops_out(case: tuple[Attempt, list[list[str]]]) -> None:
    attempt, phases = case
    found = attempt.run(*phases)
    assert attempt.server.survivors == tuple(sorted(phases[2]))
    assert (found == attempt.expected(phases[2])).all()
    total = np.sum([attempt.values[name] for name in phases[2]], axis=0)
    assert (centred(found, attempt.context.matrix.bits) == total).all()
    assert attempt.server.faults == ()


@settings(max_examples=25, deadline=None)
@given(attempts(), st.integers(0, 4), st.data())
def test_below_the_threshold_there_is_no_sum(
    case: tuple[Attempt, list[list[str]]], short: int, data: st.DataObject
) -> None:
    attempt, phases = case
    few = data.draw(st.integers(0, attempt.context.roster.threshold - 1))
    phases[short] = phases[short][:few]
    with pytest.raises(QuorumError, match=f"{few} parties of"):
        attempt.run(*phases[: short + 1])
    assert not attempt.server.enough
    with pytest.raises(ProtocolError, match="no sum yet"):
        attempt.server.result()


def test_the_order_of_answers_changes_nothing() -> None:
    found = []
    for order in (1, -1):
        attempt = Attempt(context_for(6, 5, 1))
        names = list(attempt.context.names)[::order]
        found.append((attempt.run(names, names, sorted(names)[:5][::order]), attempt))
    assert (found[0][0] == found[1][0]).all()
    assert found[0][1].server.signatures == found[1][1].server.signatures


def test_another_attempt_masks_the_same_votes_anew() -> None:
    packed = []
    for number in range(2):
        attempt = Attempt(context_for(3, 3, 0, attempt=number, rows=20))
        names = attempt.context.names
        attempt.announce(names)
        attempt.share(names)
        boxes = attempt.server.boxes_for(names[0])
        packed.append(attempt.parties[names[0]].mask(boxes, attempt.values[names[0]]))
    same = np.frombuffer(packed[0], "<u2") == np.frombuffer(packed[1], "<u2")
    # Each of 60 values is equal by chance with 2^-16: two or more, with less than 1e-6.
    assert same.sum() < 2


def test_a_ring_of_140_parties_down_to_the_fewest_and_no_further() -> None:
    """Parties drop out in every phase, until t are left: the sum is right. Of t - 1 there is none yet."""
    context = context_for(140, 120, 3, rows=3)
    names, last = list(context.names), 4
    assert len(names) > COMPLETE_UP_TO
    gone = np.random.default_rng(3).permutation(140)
    present = [[names[at] for at in sorted(gone[: 136 - 4 * phase])] for phase in range(5)]
    assert len(present[last]) == context.roster.threshold
    attempt = Attempt(context)
    for step, who in zip(attempt.steps[:2], present[:2], strict=True):
        step(who)
    few = present[last][1:]
    with pytest.raises(QuorumError, match="119 parties of"):
        attempt.vote(few)
    with pytest.raises(ProtocolError, match="no sum yet"):
        attempt.server.result()
    assert attempt.server.answered == set(few)
    attempt.vote([name for name in present[2] if name not in few])
    attempt.agree(present[3])
    attempt.open(present[last])
    found = attempt.server.result()
    graph = attempt.server._known.graph
    assert not graph.degree.complete
    assert {len(graph.neighbours(name)) for name in present[0]} == {graph.degree.neighbours}
    assert (found == attempt.expected(present[2])).all()
    assert attempt.server.awaited == frozenset()


def test_wide_sums_need_wide_rings() -> None:
    assert [ring_bits(largest) for largest in (0, 127, 128, 2**15 - 1, 2**15, 2**31 - 1)] == [
        8, 8, 16, 16, 32, 32,
    ]  # fmt: skip
    for largest in (2**31, -1):
        with pytest.raises(UsageError, match="do not fit"):
            ring_bits(largest)


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
