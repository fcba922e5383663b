"""Proofs of valid votes: honest ones hold, and every way to cheat is found by its own check."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pate.errors import ProtocolError, RefusedError, UsageError
from pate.masking.encoding import HASH_BYTES
from pate.masking.proofs import transcript as tree
from pate.masking.proofs.argument import Prover, check_link, verify
from pate.masking.proofs.code import FIELD, SALT_BYTES, Elements, Shape, code_for
from pate.masking.proofs.transcript import (
    Statement,
    commit_seed,
    link_weights,
    opened,
    read,
    weights,
)
from tests.support.masking.proving import (
    CONTEXT,
    SEED,
    byte_source,
    prover_of,
    statement,
    votes_for,
)

P = FIELD.prime
CODEWORDS = "its rows are not codewords"
LINK = "its link does not match the committed counts"
COUNTS = "its test of counts does not match"
RANGE = "a count is out of range, or a row has a wrong sum"
COLUMN = "a column does not match its commitment"


def refused(cheat: Prover, why: str, seed: bytes = SEED) -> None:
    with pytest.raises(ProtocolError, match=f"the votes of mercy are not proved: {why}"):
        verify(cheat.statement, cheat.commitment, seed, cheat.prove(seed))


# --- what must hold --------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    queries=st.integers(1, 200),
    classes=st.integers(2, 5),
    teachers=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    seed=st.binary(min_size=32, max_size=32),
)
def test_honest_votes_are_proved_and_linked(
    queries: int, classes: int, teachers: tuple[int, int], seed: bytes
) -> None:
    links, masks, total = [], np.zeros((1, 1), np.uint64), np.zeros((queries, classes), np.int64)
    for name, k in zip(("mercy", "unity"), teachers, strict=True):
        about = statement(queries, classes, k, name, max(teachers))
        votes = votes_for(about, seed[0])
        prover = prover_of(about, votes)
        proof = prover.prove(seed)
        assert len(proof) == about.shape.proof_bytes
        links.append(verify(about, prover.commitment, seed, proof))
        masks, total = FIELD.mod(masks + prover.link_masks), total + votes
    check_link(
        about.shape, CONTEXT, seed, links=links, votes=total, masks=masks, teachers=sum(teachers)
    )


@pytest.mark.parametrize("queries", [351, 352, 353, 800])
def test_several_blocks_of_queries(queries: int) -> None:
    about = statement(queries, 3, 5)
    votes = votes_for(about)
    prover = prover_of(about, votes)
    link = verify(about, prover.commitment, SEED, prover.prove(SEED))
    assert link.shape == about.shape.linked == (4, min(queries, about.shape.code.slots))
    check_link(
        about.shape, CONTEXT, SEED, links=[link], votes=votes, masks=prover.link_masks, teachers=5
    )


def test_the_format_does_not_change_unnoticed() -> None:
    prover = prover_of(statement())
    proof = prover.prove(SEED)
    assert prover.commitment.hex()[:32] == "d7aa4579c97609033f1568e44474399f"
    assert hashlib.sha256(proof).hexdigest()[:32] == "f94ea667fa879ccd0afc25d76a1f7384"
    assert commit_seed(SEED).hex()[:32] == "fe9520bfe1a2856d7366138b1bf0856d"


def test_a_large_proof_stays_below_a_megabyte() -> None:
    shape = Shape(9_000, 10, 250, code_for(9_000, 10, 250))
    assert shape.proof_bytes + 4 * shape.linked[0] * shape.linked[1] < 1_000_000


def test_extreme_votes() -> None:
    about = statement(3, 2, 7)
    for votes in ([[7, 0]] * 3, [[0, 7]] * 3, [[7, 0], [0, 7], [3, 4]]):
        prover = prover_of(about, np.array(votes))
        verify(about, prover.commitment, SEED, prover.prove(SEED))


# --- one answer ------------------------------------------------------------------------------


def test_one_seed_is_answered_and_the_answer_kept() -> None:
    prover = prover_of(statement())
    proof = prover.prove(SEED)
    assert prover.prove(SEED) is proof
    with pytest.raises(RefusedError, match="a second time, with another seed"):
        prover.prove(bytes(32))
    assert prover.prove(SEED) is proof


def test_what_hides_the_votes_is_gone_once_it_answered() -> None:
    prover = prover_of(statement())
    before = prover._rows, prover._link, prover._near, prover._zero, prover._symbols
    assert all(each.size for each in before)
    prover.prove(SEED)
    after = prover._rows, prover._link, prover._near, prover._zero, prover._symbols
    assert not any(each.size for each in after)
    assert not prover._salts
    assert not prover._levels


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33), "x" * 32])
def test_a_seed_has_32_bytes(seed: bytes) -> None:
    with pytest.raises(UsageError, match="32 bytes"):
        prover_of(statement()).prove(seed)
    with pytest.raises(UsageError, match="32 bytes"):
        commit_seed(seed)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda votes: votes + 1,
        lambda votes: -votes,
        lambda votes: votes[:-1],
        lambda votes: votes[:, :-1],
        lambda votes: votes.astype(float),
        lambda votes: votes + np.eye(*votes.shape, dtype=np.int64),
        lambda votes: votes + np.array([-11, 11, 0, 0]),  # rows sum to k
    ],
)
def test_an_honest_party_proves_no_invalid_votes(
    spoil: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> None:
    about = statement()
    with pytest.raises(UsageError):
        prover_of(about, spoil(votes_for(about)))


# --- cheating about the votes ----------------------------------------------------------------


class Cheat(Prover):
    """Commits to whatever it likes."""

    def __init__(
        self, change: Callable[[Elements, Shape], None], about: Statement | None = None
    ) -> None:
        self.change = change
        self.about = about or statement()
        super().__init__(self.about, votes_for(self.about), byte_source("cheat"))

    def _check(self, votes: NDArray[np.integer]) -> None:
        pass

    def _planes(self, votes: NDArray[np.integer]) -> Elements:
        planes = super()._planes(votes)
        by_bit = planes.reshape(
            self.about.shape.classes, self.about.shape.bits, self.about.shape.blocks, -1
        )
        self.change(by_bit, self.about.shape)
        return planes


def written(
    counts: list[int], cells: Mapping[tuple[int, int], int] = {}, query: int | None = 3
) -> Callable[[Elements, Shape], None]:
    """Write counts with proper bits for one query, None the one after the last, then single bits."""

    def change(by_bit: Elements, shape: Shape) -> None:
        at = shape.queries if query is None else query
        for number, count in enumerate(counts):
            for bit in range(by_bit.shape[1]):
                by_bit[number, bit, 0, at] = cells.get((number, bit), count >> bit & 1)

    return change


FIVE_MORE = written([15, 0, 0, 0])
CHEATS = {
    "five more": FIVE_MORE,
    "one fewer": written([9, 0, 0, 0]),
    "several classes": written([10, 10, 10, 10]),
    "negative: -1 + 11": written([0, 11, 0, 0], {(0, 0): P - 1}),
    "a half and a half and 9": written([0, 0, 9, 0], {(0, 0): (P + 1) // 2, (1, 0): (P + 1) // 2}),
    "two in a bit: 2 * 8 - 6": written([0, 0, 0, 0], {(0, 3): 2, (1, 1): P - 3}),
    "none at all": written([0, 0, 0, 0]),
    "votes after the last query": written([10, 0, 0, 0], query=None),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_invalid_votes_are_found(cheat: str) -> None:
    refused(Cheat(CHEATS[cheat]), RANGE)


def test_the_cheats_are_caught_for_the_votes_alone() -> None:
    unchanged = Cheat(lambda _bits, _shape: None)
    verify(unchanged.statement, unchanged.commitment, SEED, unchanged.prove(SEED))


@pytest.mark.parametrize("block", [0, 1])
def test_an_invalid_row_is_found_in_any_block_and_slot(block: int) -> None:
    def move(by_bit: Elements, shape: Shape) -> None:
        by_bit[0, :, block, 17] = 1
        by_bit[1:, :, block, 17] = 1

    about = statement(500, 3, 2)
    assert about.shape.blocks == 2
    refused(Cheat(move, about), RANGE)


def test_a_small_party_cannot_count_to_the_largest_k() -> None:
    """Its bits come from its own k, though the code comes from the largest."""
    small = statement(30, 4, 2, most=200)
    assert small.shape.bits == 2
    assert small.shape.code == statement(30, 4, 200).shape.code
    claimed = Statement(statement(30, 4, 200).shape, CONTEXT, "mercy")
    prover = prover_of(claimed)
    with pytest.raises(ProtocolError, match=r"a proof has \d+ bytes"):
        verify(small, prover.commitment, SEED, prover.prove(SEED))


# --- cheating about the matrix ---------------------------------------------------------------


class Corrupt(Prover):
    """Commits to words that are no codewords in part of the columns of one row."""

    def __init__(self, row: int, columns: int, about: Statement | None = None) -> None:
        self.row, self.columns = row, columns
        about = about or statement()
        super().__init__(about, votes_for(about), byte_source("corrupt"))

    def _encoded(self) -> NDArray[np.uint32]:
        symbols = super()._encoded()
        symbols[1 : self.columns + 1, self.row] += np.uint32(1)
        symbols[symbols >= P] = 0
        return symbols


@pytest.mark.parametrize(("group", "why"), [(0, CODEWORDS), (1, LINK), (2, CODEWORDS), (3, COUNTS)])
def test_what_is_no_codeword_is_found(group: int, why: str) -> None:
    """A row of bits, or a mask of only one test: each by the check that it is for."""
    shape = statement().shape
    row = 0 if group == 0 else shape.rows + (group - 1) * shape.code.tests + 2
    refused(Corrupt(row, int(0.375 * shape.code.length)), why)


def test_corrupting_few_columns_is_harmless() -> None:
    """What is opened is then as committed, and decodes to the honest rows: not a way to cheat."""
    seeds = (bytes([each]) * 32 for each in range(10))
    held = 0
    for seed in seeds:
        cheat = Corrupt(0, 1)
        try:
            verify(cheat.statement, cheat.commitment, seed, cheat.prove(seed))
        except ProtocolError:
            continue
        held += 1
    assert held >= 4  # each passes with chance 1 - 160/4096; fewer with chance below 2e-8


class Switch(Prover):
    """Commits to some votes, and answers one of the tests for others."""

    def __init__(self, which: str) -> None:
        about = statement()
        super().__init__(about, votes_for(about), byte_source("switch"))
        self.which = which
        other = prover_of(about, votes_for(about, seed=1))
        self.other = other._rows, other._symbols

    def prove(self, seed: bytes) -> bytes:
        shape, code = self.statement.shape, self.statement.shape.code
        asked = weights(self.statement, seed)
        rows, _ = self.other
        difference = FIELD.minus(rows, self._rows)
        if self.which == "near":
            self._near = FIELD.mod(self._near + FIELD.combine(asked.near, difference))
        elif self.which == "link":
            by = shape.spread(asked.link)
            self._link = FIELD.mod(self._link + FIELD.combine(by, difference))
        else:
            by = shape.totals(asked.totals)
            self._zero[:, : code.degree] = FIELD.mod(
                self._zero[:, : code.degree] + FIELD.combine(by, difference)
            )
        return super().prove(seed)


@pytest.mark.parametrize(("which", "why"), [("near", CODEWORDS), ("link", LINK), ("sums", COUNTS)])
def test_an_answer_about_other_votes_is_found(which: str, why: str) -> None:
    refused(Switch(which), why)


def test_an_invalid_sum_hidden_in_the_test_is_found() -> None:
    """Has the zero polynomial take back what an invalid row leaves at its slot."""

    class Hidden(Cheat):
        def prove(self, seed: bytes) -> bytes:
            code = self.statement.shape.code
            left = np.zeros((code.tests, code.degree), np.uint64)
            # k + 5 leaves 5 * weight at slot 3.
            left[:, 3] = FIELD.mod(weights(self.statement, seed).totals[:, 0] * np.uint64(5))
            low = self._zero[:, : code.degree]
            self._zero[:, : code.degree] = FIELD.minus(low, code.interpolate(left))
            return super().prove(seed)

    refused(Hidden(FIVE_MORE), COUNTS)


# --- cheating about the opening --------------------------------------------------------------


def parts_of(about: Statement, proof: bytes) -> dict[str, int]:
    """Where the parts of a proof begin."""
    shape, code = about.shape, about.shape.code
    columns = 4 * shape.shown
    salts = columns + 4 * code.columns * shape.width
    paths = salts + SALT_BYTES * code.columns
    assert paths + HASH_BYTES * shape.depth * code.columns == len(proof)
    return {"polynomials": 0, "columns": columns, "salts": salts, "paths": paths}


def spoiled(proof: bytes, at: int) -> bytes:
    return proof[:at] + bytes([proof[at] ^ 1]) + proof[at + 1 :]


@pytest.mark.parametrize("part", ["polynomials", "columns", "salts", "paths"])
def test_a_changed_bit_is_found(part: str) -> None:
    prover = prover_of(statement())
    proof = prover.prove(SEED)
    at = parts_of(prover.statement, proof)[part]
    with pytest.raises(ProtocolError, match=COLUMN):
        verify(prover.statement, prover.commitment, SEED, spoiled(proof, at))


def test_columns_of_a_choice_of_its_own_are_found() -> None:
    prover = prover_of(statement())
    places = list(range(prover.statement.shape.code.columns))
    symbols = prover._symbols[places].tobytes()
    salts = b"".join(prover._salts[place] for place in places)
    paths = b"".join(tree.path(prover._levels, place) for place in places)
    shown = prover.prove(SEED)[: 4 * prover.statement.shape.shown]
    with pytest.raises(ProtocolError, match=COLUMN):
        verify(prover.statement, prover.commitment, SEED, shown + symbols + salts + paths)


def test_opened_columns_are_distinct_and_depend_on_everything() -> None:
    about = statement()
    code = about.shape.code
    base = opened(about, SEED, bytes(32), b"shown")
    assert len(set(base)) == code.columns == 160
    assert max(base) < code.length
    others = [
        opened(about, bytes(32), bytes(32), b"shown"),
        opened(about, SEED, b"\1" * 32, b"shown"),
        opened(about, SEED, bytes(32), b"other"),
        opened(statement(name="unity"), SEED, bytes(32), b"shown"),
        opened(Statement(about.shape, bytes(32), "mercy"), SEED, bytes(32), b"shown"),
    ]
    assert all(other != base for other in others)


def test_a_code_with_few_symbols_is_opened_with_as_many() -> None:
    from pate.masking.proofs.code import Code, Field

    code = Code(degree=4, columns=3, tests=1, stretch=4, field=Field(97, 5))
    about = Statement(Shape(1, 2, 1, code), CONTEXT, "mercy")
    for number in range(50):
        found = opened(about, bytes([number]) * 32, bytes(32), b"")
        assert len(set(found)) == 3


@pytest.mark.parametrize("length", [0, 1, -1, -4, 4])
def test_a_proof_of_another_length_is_not_looked_at(length: int) -> None:
    prover = prover_of(statement())
    proof = prover.prove(SEED)
    cut = proof + bytes(length) if length > 0 else proof[: len(proof) + length or 0]
    if length == 0:
        cut = b""
    with pytest.raises(ProtocolError, match=rf"has {len(proof)} bytes, but this has {len(cut)}"):
        verify(prover.statement, prover.commitment, SEED, cut)


@pytest.mark.parametrize("part", ["polynomials", "columns"])
@pytest.mark.parametrize("value", [P, P + 1, 2**32 - 1])
def test_each_element_has_one_written_form(part: str, value: int) -> None:
    prover = prover_of(statement())
    proof = prover.prove(SEED)
    at = parts_of(prover.statement, proof)[part]
    other = proof[:at] + value.to_bytes(4, "little") + proof[at + 4 :]
    with pytest.raises(ProtocolError, match="not an element of the field"):
        verify(prover.statement, prover.commitment, SEED, other)


def test_a_proof_is_read_as_it_was_written() -> None:
    prover = prover_of(statement())
    raw = prover.prove(SEED)
    proof = read(prover.statement, raw)
    written = b"".join(map(FIELD.write, (proof.near, proof.link, proof.valid, proof.columns)))
    assert written + b"".join(proof.salts) + b"".join(proof.paths) == raw


# --- cheating about who, where and when ------------------------------------------------------


def test_a_proof_is_for_one_seed_party_context_and_commitment() -> None:
    prover = prover_of(statement())
    about, proof = prover.statement, prover.prove(SEED)
    verify(about, prover.commitment, SEED, proof)
    other = prover_of(about, votes_for(about, seed=1)).commitment
    for held, commitment, seed in (
        (about, prover.commitment, bytes(32)),
        (about, other, SEED),
        (Statement(about.shape, CONTEXT, "unity"), prover.commitment, SEED),
        (Statement(about.shape, bytes(32), "mercy"), prover.commitment, SEED),
    ):
        with pytest.raises(ProtocolError, match=f"the votes of {held.name} are not proved"):
            verify(held, commitment, seed, proof)


def test_a_leaf_is_bound_to_party_and_context() -> None:
    """So no party can take over another party's commitment, whatever the challenges."""
    names = [Statement(statement().shape, CONTEXT, name).binding for name in ("mercy", "unity")]
    places = [Statement(statement().shape, held, "mercy").binding for held in (CONTEXT, bytes(32))]
    shapes = [statement(teachers=k, most=15).binding for k in (9, 10)]
    assert all(len(set(pair)) == 2 for pair in (names, places, shapes))
    column = b"x" * 8
    assert len({tree.leaf(each, 0, bytes(32), column) for each in names}) == 2


def test_challenges_depend_on_their_use_and_the_seed() -> None:
    about = statement(30, 4, 10)
    one, two = weights(about, SEED), weights(about, bytes(32))
    drawn = [one.near[0, 0], one.bits[0, 0], one.totals[0, 0], one.link[0, 0, 0]]
    assert len(set(map(int, drawn))) == 4
    assert int(two.near[0, 0]) != int(one.near[0, 0])
    other = weights(Statement(about.shape, CONTEXT, "unity"), SEED)
    assert np.array_equal(other.link, one.link)  # a sum needs the same for all
    assert not np.array_equal(other.near, one.near)
    larger = statement(30, 4, 10, most=15).shape
    assert np.array_equal(link_weights(larger, CONTEXT, SEED), one.link)


# --- the link --------------------------------------------------------------------------------


@cache
def three() -> tuple[Shape, list[Elements], NDArray[np.int64], Elements]:
    links, masks, total = [], np.zeros((1, 1), np.uint64), np.zeros((40, 3), np.int64)
    for name, k in (("mercy", 3), ("saint_anna", 20), ("unity", 7)):
        about = statement(40, 3, k, name, 20)
        prover = prover_of(about)
        links.append(verify(about, prover.commitment, SEED, prover.prove(SEED)))
        masks, total = FIELD.mod(masks + prover.link_masks), total + votes_for(about)
    return about.shape, links, total, masks


def test_a_sum_is_linked_to_its_proofs_and_no_other_is() -> None:
    shape, links, total, masks = three()

    def check(**changed: object) -> None:
        held: dict[str, object] = {"links": links, "votes": total, "masks": masks, "teachers": 30}
        check_link(shape, CONTEXT, SEED, **(held | changed))  # type: ignore[arg-type]

    check()
    moved = total.copy()
    moved[5] = np.roll(moved[5], 1)
    assert not np.array_equal(moved, total)
    one_more, other_masks = total.copy(), masks.copy()
    one_more[39, 2] += 1
    other_masks[2, 7] = (other_masks[2, 7] + np.uint64(1)) % np.uint64(P)
    for changed in (
        {"votes": moved},
        {"votes": one_more},
        {"masks": other_masks},
        {"links": links[:2]},
        {"links": [links[0], links[0], links[2]]},
    ):
        with pytest.raises(ProtocolError, match="cannot be identified"):
            check(**changed)


@pytest.mark.parametrize("shift", [P, 2 * P, -P])
def test_a_count_is_not_taken_for_another_with_its_residue(shift: int) -> None:
    """In a ring of 32 bits a party could add the prime to a count and pass modulo it."""
    shape, links, total, masks = three()
    votes = total.copy()
    votes[0, 0] += shift
    with pytest.raises(ProtocolError, match="cannot be identified"):
        check_link(shape, CONTEXT, SEED, links=links, votes=votes, masks=masks, teachers=2**31)


def test_each_test_of_the_link_counts() -> None:
    """Four together err with 2^-123; a single one with 2^-31."""
    shape, links, total, masks = three()
    for test in range(4):
        wrong = [links[0].copy(), *links[1:]]
        wrong[0][test, 3] = (wrong[0][test, 3] + np.uint64(1)) % np.uint64(P)
        with pytest.raises(ProtocolError, match="cannot be identified"):
            check_link(shape, CONTEXT, SEED, links=wrong, votes=total, masks=masks, teachers=30)


# --- sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "classes", "teachers", "why"),
    [
        (0, 2, 3, "a proof about 0 queries"),
        (1, 0, 3, "a proof about 0 classes"),
        (1, 2, 0, "a proof about 0 teachers"),
        (1, 2, -1, "a proof about -1 teachers"),
        (1, 2, 2**30, "too many to prove votes"),
        (1, 2**20, 2**11, "too many to prove"),
        (10**6, 1_000, 10, "take smaller batches"),
    ],
)
def test_what_cannot_be_proved_is_refused(
    queries: int, classes: int, teachers: int, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        code_for(queries, classes, teachers)


def test_sums_of_bits_cannot_wrap_round() -> None:
    """The largest sum that the bits can write is below the prime."""
    for classes, teachers in ((2, 2**29 - 1), (100, 2**23)):
        shape = Shape(1, classes, teachers, code_for(1, classes, teachers))
        assert classes * (2**shape.bits - 1) < P
    with pytest.raises(UsageError, match="too many to prove votes"):
        code_for(1, 15, 2**27)
