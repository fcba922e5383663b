"""Masked sums with proofs from end to end: cheaters are reported and excluded, and others are unaffected."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pate.errors import ProtocolError, QuorumError, RefusedError, UsageError
from pate.masking import masks, party
from pate.masking.context import Context, Phase, threshold_for
from pate.masking.party import PartyMasking
from pate.masking.proofs.argument import Prover
from pate.masking.proofs.code import FIELD, Elements, Shape
from pate.masking.proofs.transcript import Proofs, Statement, commit_seed
from pate.masking.ring import ChaChaStream, LinkedRing, LinkedStream, Ring
from pate.masking.server import ServerMasking
from tests.support.masking.attempts import (
    Attempt,
    bytes_from,
    changed,
    context_for,
    identity_of,
    party_of,
)
from tests.support.masking.proving import votes_of

P = FIELD.prime
SEED = hashlib.sha256(b"drawn for this attempt").digest()
TEACHERS = (3, 9, 1, 20, 7, 4, 11, 2)
ROWS, CLASSES = 5, 3


def proved_context(parties: int, **changed: int) -> Context:
    threshold, colluders = threshold_for(parties)
    plain = context_for(parties, threshold, colluders, rows=ROWS, classes=CLASSES, **changed)
    return replace(plain, proofs=Proofs(TEACHERS[:parties], commit_seed(SEED)))


@dataclass
class Proved(Attempt):
    """An attempt with proofs; ``cheats`` take the place of honest parties."""

    cheats: dict[str, PartyMasking] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parties = {name: party_of(self.context, name) for name in self.context.names}
        self.parties |= self.cheats
        self.server = ServerMasking(self.context, seed=SEED)
        self.values = {
            name: votes_of(ROWS, CLASSES, self.context.shape_of(name).teachers, number)
            for number, name in enumerate(self.context.names)
        }

    def prove(self, who: Collection[str]) -> None:
        for name in who:
            self.server.take_proof(name, self.parties[name].prove(self.server.seed))
        self.server.advance()

    @property
    def steps(self) -> tuple[Callable[[Collection[str]], object], ...]:
        return (self.begin, self.vote, self.prove, self.agree, self.open)

    def begin(self, who: Collection[str]) -> None:
        self.announce(who)
        self.share(who)

    def totals(self, who: Collection[str]) -> list[list[int]]:
        total: NDArray[np.int64] = np.sum([self.values[name] for name in who], axis=0)
        return total.tolist()  # type: ignore[no-any-return]

    def up_to(self, phase: Phase) -> Proved:
        order = [Phase.SHARES, Phase.MASKED, Phase.PROOFS, Phase.CONSISTENCY, Phase.UNMASK]
        for step in self.steps[: order.index(phase)]:
            step(self.context.names)
        return self


FOUR = proved_context(4)
NAMES = FOUR.names
ME, PEER = NAMES[0], NAMES[1]
REST = [name for name in NAMES if name != PEER]


# --- sums ------------------------------------------------------------------------------------


def test_the_sum_is_exact_and_linked() -> None:
    attempt = Proved(FOUR)
    assert attempt.run().tolist() == attempt.totals(NAMES)
    assert attempt.server.survivors == NAMES


@pytest.mark.parametrize("missing_from", range(5))
def test_a_party_may_drop_out_at_any_step(missing_from: int) -> None:
    """Who has proved its votes is in the sum, whatever becomes of it."""
    attempt = Proved(proved_context(6))
    names = attempt.context.names
    left = names[1:]
    phases = [names] * missing_from + [left] * (5 - missing_from)
    found = attempt.run(*phases).tolist()
    assert found == attempt.totals(names if missing_from > 2 else left)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_dropouts_that_leave_enough(data: st.DataObject) -> None:
    parties = data.draw(st.integers(3, 8))
    context = proved_context(parties)
    present: list[str] = list(context.names)
    phases = []
    for _ in range(5):
        least = context.roster.threshold
        keep = data.draw(st.integers(least, len(present)))
        present = sorted(data.draw(st.permutations(present))[:keep])
        phases.append(present)
    attempt = Proved(context)
    # Signatures and openings may come from fewer than are in the sum.
    found = attempt.run(*phases).tolist()
    assert found == attempt.totals(phases[2])


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_every_width(bits: int) -> None:
    attempt = Proved(proved_context(3, bits=bits))
    assert attempt.run().tolist() == attempt.totals(attempt.context.names)


def test_too_few_proofs_end_the_attempt() -> None:
    attempt = Proved(FOUR).up_to(Phase.PROOFS)
    with pytest.raises(QuorumError, match="2 parties of 4 answered with proofs of votes, 3 are"):
        attempt.prove(NAMES[:2])
    attempt.prove(NAMES[2:])  # more may still answer
    assert attempt.server.survivors == NAMES


# --- cheaters --------------------------------------------------------------------------------


class CheatingProver(Prover):
    def __init__(
        self,
        statement: Statement,
        votes: NDArray[np.integer],
        random: Callable[[int], bytes],
        change: Callable[[Elements], None],
    ) -> None:
        self.change = change
        super().__init__(statement, votes, random)

    def _check(self, votes: NDArray[np.integer]) -> None:
        pass

    def _planes(self, votes: NDArray[np.integer]) -> Elements:
        shape = self.statement.shape
        planes = super()._planes(votes)
        self.change(planes.reshape(shape.classes, shape.bits, shape.blocks, -1))
        return planes


def cheat(change: Callable[[Elements], None]) -> PartyMasking:
    """A party that commits to changed bits, and masks whatever it is given."""

    class Cheating(PartyMasking):
        def _prover_of(self, values: NDArray[np.integer]) -> Prover:
            about = Statement(FOUR.shape_of(PEER), FOUR.digest, PEER)
            return CheatingProver(about, values, bytes_from("cheat"), change)

    return Cheating(FOUR, name=PEER, identity=identity_of(PEER), random=bytes_from("cheating"))


def with_cheat(change: Callable[[Elements], None], votes: list[int]) -> Proved:
    attempt = Proved(FOUR, {PEER: cheat(change)})
    attempt.values[PEER][2] = votes
    return attempt.up_to(Phase.PROOFS)


def nothing(bits: Elements) -> None:
    pass


def minus_one(bits: Elements) -> None:
    bits[0, :, 0, 2] = 0
    bits[0, 0, 0, 2] = P - 1


@pytest.mark.parametrize(
    ("change", "votes"),
    [
        (nothing, [9 + 5, 0, 0]),
        (nothing, [9, 9, 0]),
        (nothing, [0, 0, 0]),
        (minus_one, [-1, 10, 0]),
    ],
)
def test_a_cheater_is_named_and_left_out_and_the_sum_of_the_rest_is_exact(
    change: Callable[[Elements], None], votes: list[int]
) -> None:
    if votes[0] < 0:  # bits of the next lower count that has some; minus_one writes the rest
        attempt = Proved(FOUR, {PEER: cheat(change)})
        attempt.values[PEER][2] = [0, 10, 0]
        attempt.up_to(Phase.PROOFS)
    else:
        attempt = with_cheat(change, votes)
    proof = attempt.parties[PEER].prove(attempt.server.seed)
    with pytest.raises(ProtocolError, match=f"the votes of {PEER} are not proved: a count is out"):
        attempt.server.take_proof(PEER, proof)
    assert attempt.server.answered == frozenset()
    attempt.prove(REST)
    assert attempt.server.survivors == tuple(REST)
    attempt.agree(REST)
    attempt.open(REST)
    assert attempt.server.result().tolist() == attempt.totals(REST)


def masking_otherwise(
    monkeypatch: pytest.MonkeyPatch, other: Callable[[NDArray[np.integer]], NDArray[np.integer]]
) -> None:
    """Have one party mask other values than it proves."""

    def hiding(known: Any, name: str, secrets: Any, values: Any, *rest: Any) -> bytes:
        return masks.hide(known, name, secrets, other(values) if name == PEER else values, *rest)

    monkeypatch.setattr(party, "hide", hiding)


@pytest.mark.parametrize("part", ["votes", "links"])
def test_masking_other_votes_than_proved_breaks_the_link_and_names_nobody(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(values: NDArray[np.integer]) -> NDArray[np.integer]:
        other = values.copy()
        other[7 if part == "votes" else ROWS * CLASSES + 2] += 1
        other[6 if part == "votes" else ROWS * CLASSES + 3] -= 1
        return other

    masking_otherwise(monkeypatch, moved)
    attempt = Proved(FOUR).up_to(Phase.UNMASK)
    with pytest.raises(ProtocolError, match="cannot be identified; the batch is refused") as error:
        attempt.open(NAMES)
    assert not any(name in str(error.value) for name in NAMES)
    with pytest.raises(ProtocolError, match="no sum yet"):
        attempt.server.result()


def test_who_breaks_the_link_and_fails_to_prove_harms_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it masked is taken out with it."""
    masking_otherwise(monkeypatch, lambda values: values * 0 + 77)
    attempt = Proved(FOUR)
    assert attempt.run(NAMES, NAMES, REST).tolist() == attempt.totals(REST)


def test_another_party_cannot_be_copied() -> None:
    attempt = Proved(FOUR).up_to(Phase.MASKED)
    server = attempt.server
    sent = {
        name: attempt.parties[name].mask(server.boxes_for(name), attempt.values[name])
        for name in NAMES
    }
    server.take_masked(ME, sent[ME])
    server.take_masked(PEER, sent[ME][:32] + sent[PEER][32:])
    server.take_masked(NAMES[2], sent[NAMES[2]])
    server.advance()
    proof = attempt.parties[ME].prove(server.seed)
    for copied in (proof, attempt.parties[PEER].prove(server.seed)):
        with pytest.raises(ProtocolError, match=f"the votes of {PEER} are not proved"):
            server.take_proof(PEER, copied)
    server.take_proof(ME, proof)


def test_a_proof_of_another_attempt_is_refused() -> None:
    other = Proved(proved_context(4, attempt=1)).up_to(Phase.PROOFS)
    attempt = Proved(FOUR).up_to(Phase.PROOFS)
    with pytest.raises(ProtocolError, match=f"the votes of {ME} are not proved: a column does not"):
        attempt.server.take_proof(ME, other.parties[ME].prove(SEED))


@pytest.mark.parametrize("proof", [b"", bytes(10), None, "x"])
def test_what_is_no_proof_is_refused(proof: object) -> None:
    attempt = Proved(FOUR).up_to(Phase.PROOFS)
    with pytest.raises(ProtocolError, match=f"the votes of {ME} are not proved: a proof has"):
        attempt.server.take_proof(ME, proof)  # type: ignore[arg-type]
    attempt.prove(NAMES)


# --- a server that lies ----------------------------------------------------------------------


def test_a_party_answers_the_seed_that_was_fixed_and_no_other() -> None:
    attempt = Proved(FOUR).up_to(Phase.PROOFS)
    party = attempt.parties[ME]
    for seed in (bytes(32), SEED[::-1]):
        with pytest.raises(ProtocolError, match="not the one of this attempt"):
            party.prove(seed)
    for wrong in (b"", bytes(31), None):
        with pytest.raises(ProtocolError, match="the seed of proofs"):
            party.prove(wrong)  # type: ignore[arg-type]
    assert party.phase is Phase.PROOFS
    proof = party.prove(SEED)
    assert party.prove(SEED) == proof
    with pytest.raises(RefusedError, match="a second time"):
        party.prove(bytes(32))


def test_two_seeds_for_two_parties_are_two_contexts() -> None:
    """So their masks do not cancel, and neither signs the keys of the other."""
    assert FOUR.proofs is not None
    other = replace(FOUR, proofs=replace(FOUR.proofs, seed_hash=commit_seed(bytes(32))))
    assert other.digest != FOUR.digest
    keys = {name: party_of(FOUR, name).keys() for name in NAMES[:3]}
    lied_to = party_of(other, NAMES[3])
    keys[NAMES[3]] = lied_to.keys()
    with pytest.raises(ProtocolError, match=f"the keys of {ME} are not signed"):
        lied_to.shares(keys)


def test_the_order_of_steps_is_kept() -> None:
    attempt = Proved(FOUR).up_to(Phase.MASKED)
    party = attempt.parties[ME]
    with pytest.raises(ProtocolError, match="asked for proofs of votes, and the next is mask"):
        party.prove(SEED)
    party.mask(attempt.server.boxes_for(ME), attempt.values[ME])
    with pytest.raises(ProtocolError, match=r"asked for signatures of .*, and the next is proofs"):
        party.sign_survivors(NAMES)
    party.prove(SEED)
    party.sign_survivors(NAMES)


def test_without_proofs_none_is_given() -> None:
    plain = replace(FOUR, proofs=None)
    party = party_of(plain, ME)
    party.keys()
    with pytest.raises(ProtocolError, match="asked for proofs of votes, and the next is"):
        party.prove(SEED)
    server = ServerMasking(plain)
    with pytest.raises(ProtocolError, match="proofs of votes of"):
        server.take_proof(ME, b"")
    with pytest.raises(ProtocolError, match="the seed is secret"):
        _ = server.seed
    with pytest.raises(UsageError, match="votes are not proved"):
        plain.shape_of(ME)


def test_a_party_that_forgot_proves_nothing() -> None:
    attempt = Proved(FOUR).up_to(Phase.PROOFS)
    party = attempt.parties[ME]
    held = [party._prover]
    party.forget()
    held.append(party._prover)
    assert [each is None for each in held] == [False, True]
    with pytest.raises(RefusedError, match="is over"):
        party.prove(SEED)


# --- the server ------------------------------------------------------------------------------


def test_the_seed_is_shown_when_all_masked_votes_are_in() -> None:
    attempt = Proved(FOUR)
    for phase in (Phase.KEYS, Phase.MASKED):
        if phase is Phase.MASKED:
            attempt.up_to(phase)
        assert attempt.server.phase is phase
        with pytest.raises(ProtocolError, match="the seed is secret while"):
            _ = attempt.server.seed
    attempt.vote(NAMES)
    assert attempt.server.seed == SEED


@pytest.mark.parametrize("seed", [None, bytes(32)])
def test_a_server_needs_the_seed_of_its_context(seed: bytes | None) -> None:
    with pytest.raises(UsageError, match="needs the seed"):
        ServerMasking(FOUR, seed=seed)
    with pytest.raises(UsageError, match="and one without proofs no seed"):
        ServerMasking(replace(FOUR, proofs=None), seed=SEED)


def test_masked_votes_are_taken_as_they_should_be() -> None:
    attempt = Proved(FOUR).up_to(Phase.MASKED)
    server = attempt.server
    packed = attempt.parties[ME].mask(server.boxes_for(ME), attempt.values[ME])
    assert len(packed) == FOUR.masked_bytes == 32 + 2 * ROWS * CLASSES + 4 * 4 * ROWS
    too_large = packed[:-4] + P.to_bytes(4, "little")
    for wrong, why in (
        (packed[:-1], "has"),
        (packed + b"\0", "has"),
        (packed[32:], "has"),
        (None, "is NoneType"),
        (too_large, "a masked link is not an element"),
    ):
        with pytest.raises(ProtocolError, match=why):
            server.take_masked(ME, wrong)  # type: ignore[arg-type]
    assert server.answered == frozenset()
    server.take_masked(ME, packed)
    server.take_masked(ME, packed)
    other = packed[:-1] + bytes([packed[-1] ^ 1])
    with pytest.raises(ProtocolError, match="a second time"):
        server.take_masked(ME, other)


def test_a_proof_is_taken_once() -> None:
    attempt = Proved(FOUR).up_to(Phase.PROOFS)
    server = attempt.server
    proof = attempt.parties[ME].prove(SEED)
    server.take_proof(ME, proof)
    server.take_proof(ME, proof)
    with pytest.raises(ProtocolError, match="a second time"):
        server.take_proof(ME, proof[:-1] + b"\0")
    assert server.answered == {ME}
    assert server.awaited == set(NAMES)
    with pytest.raises(ProtocolError, match="takes no part in this sum or missed a phase"):
        server.take_proof("mallory", proof)


def test_without_proofs_the_context_is_what_it_was() -> None:
    plain = replace(FOUR, proofs=None)
    assert plain.digest == context_for(4, 3, 1, rows=ROWS, classes=CLASSES).digest
    assert plain.links == 0
    assert plain.values == plain.matrix.count
    assert plain.masked_bytes == 2 * ROWS * CLASSES


def test_everything_about_proofs_is_in_the_context() -> None:
    held = Proofs((3, 9, 1, 20), commit_seed(SEED))
    others = [
        held,
        Proofs((3, 9, 1, 21), held.seed_hash),
        Proofs((9, 3, 1, 20), held.seed_hash),
        Proofs((3, 9, 1, 20), bytes(32)),
    ]
    digests = {replace(FOUR, proofs=each).digest for each in others}
    assert len(digests | {replace(FOUR, proofs=None).digest}) == 5
    assert FOUR.shape_of(NAMES[3]).teachers == 20
    assert FOUR.shape_of(NAMES[0]).code == FOUR.shape_of(NAMES[3]).code


@pytest.mark.parametrize(
    ("teachers", "why"),
    [
        ((), "the number of teachers of each party"),
        ([3, 9, 1, 20], "the number of teachers of each party"),
        ((3, 9, 1), "the teachers of 3 parties, the roster has 4"),
        ((3, 9, 0, 20), "a whole number of teachers"),
        ((3, 9, -1, 20), "a whole number of teachers"),
        ((3, 9, 1.0, 20), "a whole number of teachers"),
        ((3, True, 1, 20), "a whole number of teachers"),
        ((3, 9, 1, 2**16), "sums of 65549 votes cannot be proved in 16 bits"),
    ],
)
def test_teachers_that_cannot_be_are_refused(teachers: tuple[int, ...], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        replace(FOUR, proofs=Proofs(teachers, commit_seed(SEED)))


def test_sums_beyond_the_prime_are_refused() -> None:
    wide = changed(FOUR, bits=32, proofs=None)
    with pytest.raises(ProtocolError, match="cannot be proved in 32 bits"):
        replace(wide, proofs=Proofs((P - 3, 1, 1, 1), commit_seed(SEED)))
    with pytest.raises(ProtocolError, match="too many to prove votes"):
        replace(wide, proofs=Proofs((2**29, 1, 1, 1), commit_seed(SEED)))


@pytest.mark.parametrize("seed_hash", [b"", bytes(31), None])
def test_the_hash_of_a_seed_has_32_bytes(seed_hash: object) -> None:
    with pytest.raises(ProtocolError, match="must be 32 bytes"):
        Proofs((1, 1, 1), seed_hash)  # type: ignore[arg-type]


@pytest.mark.parametrize("spoil", [1, -1])
def test_noisy_votes_are_not_masked(spoil: int) -> None:
    attempt = Proved(FOUR).up_to(Phase.MASKED)
    party, boxes = attempt.parties[ME], attempt.server.boxes_for(ME)
    noisy = attempt.values[ME].copy()
    noisy[0, 0] += spoil
    with pytest.raises(UsageError, match="cannot be proved"):
        party.mask(boxes, noisy)
    assert party.phase is Phase.MASKED
    party.mask(boxes, attempt.values[ME])


# --- masks -----------------------------------------------------------------------------------

KEY = hashlib.sha256(b"one mask").digest()


def test_votes_have_the_masks_that_they_have_without_proofs() -> None:
    votes = ChaChaStream(Ring(8))
    linked = LinkedStream(votes, 50)
    both = linked(KEY, 150)
    first, second = linked.ring.split(both)
    assert np.array_equal(first, votes(KEY, 100))
    assert np.array_equal(linked(KEY, 150), both)
    # No byte of the key stream is used twice: the elements are not made of the start of it.
    plain = ChaChaStream(Ring(32))(KEY, 4 * 50)
    assert not np.array_equal(second, FIELD.reduce(plain.astype("<u4").tobytes()))
    assert int(second.max()) < P


def test_link_masks_are_uniform_modulo_the_prime() -> None:
    """Chi-square, and the top of the range; a false alarm has a chance of 1e-6."""
    from scipy import stats

    ring = LinkedStream(ChaChaStream(Ring(8)), 64_000)
    drawn = ring.ring.split(ring(KEY, 64_001))[1]
    counts = np.histogram(drawn, bins=100, range=(0, P))[0]
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("bits", [3, 8, 16, 32])
def test_each_part_is_summed_in_its_own_group(bits: int) -> None:
    ring = LinkedRing(Ring(bits), 4)
    size, links = 2**bits, np.array([0, 1, P - 1, P - 1], np.int64)
    one = ring.reduce(np.concatenate([[-1, 2, size + 3], links]))
    assert one.tolist() == [size - 1, 2 % size, 3, *links.tolist()]
    total = one.copy()
    ring.add(total, one)
    assert total.tolist() == [size - 2, 4 % size, 6, 0, 2, P - 2, P - 2]
    ring.subtract(total, one)
    assert total.tolist() == one.tolist()
    zero = ring.reduce(np.zeros(7, np.int64))
    ring.subtract(zero, one)
    assert zero.tolist() == [1, size - 2, size - 3, 0, P - 1, 1, 1]
    assert ring.unpack(ring.pack(one), 7).tolist() == one.tolist()


def test_masked_links_hide_link_masks() -> None:
    """Every masked vector of a survivor has a separate mask on every element."""
    attempt = Proved(FOUR).up_to(Phase.MASKED)
    party = attempt.parties[ME]
    packed = party.mask(attempt.server.boxes_for(ME), attempt.values[ME])
    prover = party._prover
    assert prover is not None
    masked = np.frombuffer(packed[-4 * FOUR.links :], "<u4").astype(np.uint64)
    added = FIELD.minus(masked, prover.link_masks.ravel())
    assert len(set(added.tolist())) == FOUR.links  # distinct, and none left out
    assert 0 not in added


def test_shapes_of_a_context_are_those_of_its_parties() -> None:
    assert [FOUR.shape_of(name) for name in NAMES] == [
        Shape(ROWS, CLASSES, k, FOUR.shape_of(ME).code) for k in TEACHERS[:4]
    ]
