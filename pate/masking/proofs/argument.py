"""The argument: a party proves its votes, the server checks the proof, and the sum against all proofs."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import ProtocolError, RefusedError, UsageError
from pate.masking.encoding import draw
from pate.masking.proofs.code import SALT_BYTES, slot_values
from pate.masking.proofs.transcript import (
    SEED_BYTES,
    Statement,
    climb,
    grow,
    leaf,
    link_weights,
    opened,
    path,
    read,
    weights,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pate.masking.proofs.code import Elements, Shape

#: Symbols processed at once: 16 MiB, and some copies of it.
_AT_ONCE: Final = 2**21


class Prover:
    """Proves one party's votes: (queries, classes) integers, none negative, each row with a sum of k.

    Its ``commitment`` is the root over everything. Its ``link_masks``, (tests, used slots) uniform
    elements, are added to the masked sum; together with the proof they reveal combinations of the
    votes.
    """

    def __init__(
        self, statement: Statement, votes: NDArray[np.integer], random: Callable[[int], bytes]
    ) -> None:
        shape, code, field = statement.parts
        self.statement = statement
        self._check(votes)
        hidden = field.uniform(random, shape.rows, code.columns)
        rows = np.concatenate([self._planes(votes), hidden], axis=1)
        masks = field.uniform(random, 2 * code.tests, code.degree)
        link, near = masks[: code.tests], masks[code.tests :]
        self.link_masks: Elements = link[:, : shape.linked[1]].copy()
        self._rows = code.interpolate(rows)
        self._link, self._near = code.interpolate(link), code.interpolate(near)
        # Uniform among polynomials with 2 * degree coefficients that are 0 at all slots: what is
        # 0 there and of low degree, and any multiple of X^degree - 1.
        zero = np.zeros((code.tests, code.degree), np.uint64)
        zero[:, code.slots :] = field.uniform(random, code.tests, code.columns)
        above = field.uniform(random, code.tests, code.degree)
        below = field.minus(code.interpolate(zero), above)
        self._zero = np.concatenate([below, above], axis=1)
        self._symbols = self._encoded()
        salts = draw(random, SALT_BYTES * code.length)
        self._salts = [salts[at : at + SALT_BYTES] for at in range(0, len(salts), SALT_BYTES)]
        self._levels = grow(
            [
                leaf(statement.binding, place, salt, column.tobytes())
                for place, (salt, column) in enumerate(zip(self._salts, self._symbols, strict=True))
            ]
        )
        self.commitment: bytes = self._levels[-1][0]
        self._given: tuple[bytes, bytes] | None = None

    def prove(self, seed: bytes) -> bytes:
        """Answer the server's seed, which it reveals once it has all commitments and masked votes.

        A repeated seed gets the same bytes, a second one none: a second answer would reveal more of the
        rows than is masked.
        """
        if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
            raise UsageError(f"the seed of proofs must be {SEED_BYTES} bytes")
        if self._given is None:
            self._given = (seed, self._proof(seed))
            # Values that are not revealed are no longer needed.
            self._symbols = np.empty((0, 0), np.dtype("<u4"))
            self._rows = self._link = self._near = self._zero = np.empty((0, 0), np.uint64)
            self._salts, self._levels = [], []
        before, proof = self._given
        if not hmac.compare_digest(before, seed):
            raise RefusedError("asked to prove votes a second time, with another seed")
        return proof

    def _check(self, votes: NDArray[np.integer]) -> None:
        shape = self.statement.shape
        if votes.shape != (shape.queries, shape.classes) or not np.issubdtype(
            votes.dtype, np.integer
        ):
            raise UsageError(
                f"votes to prove are ({shape.queries}, {shape.classes}) integers, got "
                f"{votes.shape} {votes.dtype}"
            )
        if np.any(votes < 0) or np.any(votes.sum(axis=1, dtype=np.int64) != shape.teachers):
            raise UsageError(
                f"votes that are negative or do not sum to {shape.teachers} cannot be proved, "
                "nor can votes with a noise share: leave out --vote-proofs or use central noise"
            )

    def _planes(self, votes: NDArray[np.integer]) -> Elements:
        """Return the data of the slots: (rows, slots)."""
        return self.statement.shape.planes(votes)

    def _encoded(self) -> NDArray[np.uint32]:
        """Return all codewords, one symbol of each in a row: (length, width)."""
        shape, code, _ = self.statement.parts
        out = np.empty((code.length, shape.width), np.dtype("<u4"))
        step, at = max(1, _AT_ONCE // code.length), 0
        for group in (self._rows, self._link, self._near, self._zero):
            for start in range(0, len(group), step):
                words = code.encode(group[start : start + step])
                out[:, at : at + len(words)] = words.T
                at += len(words)
        return out

    def _proof(self, seed: bytes) -> bytes:
        shape, code, field = self.statement.parts
        asked = weights(self.statement, seed)
        link = field.mod(field.combine(shape.spread(asked.link), self._rows) + self._link)
        near = field.mod(field.combine(asked.near, self._rows) + self._near)
        valid = field.mod(self._squares(asked.bits) + self._zero)
        totals = shape.totals(asked.totals)
        sums = field.minus(field.combine(totals, self._rows), shape.target(asked.totals))
        valid[:, : code.degree] = field.mod(valid[:, : code.degree] + sums)
        shown = b"".join(map(field.write, (near, link, valid)))
        at = opened(self.statement, seed, self.commitment, shown)
        salts = b"".join(self._salts[place] for place in at)
        paths = b"".join(path(self._levels, place) for place in at)
        return shown + self._symbols[at].tobytes() + salts + paths

    def _squares(self, by: Elements) -> Elements:
        """Return the weighted sum of bit * (bit - 1): (tests, 2 * degree) coefficients."""
        shape, code, field = self.statement.parts
        # A product has 2 * degree coefficients, and these symbols are its values at that many
        # points.
        points = self._symbols[:: code.stretch // 2, : shape.rows]
        total = np.zeros((code.tests, 2 * code.degree), np.uint64)
        step = max(1, _AT_ONCE // len(points))
        for start in range(0, shape.rows, step):
            bits = points[:, start : start + step].T.astype(np.uint64)
            squares = field.mod(bits * (bits + np.uint64(field.prime - 1)))
            total = field.mod(total + field.combine(by[:, start : start + step], squares))
        return code.interpolate_coset(total)


def verify(statement: Statement, commitment: bytes, seed: bytes, raw: bytes) -> Elements:
    """Check a proof, and return its link, (tests, used slots): weighted counts plus committed link masks."""
    shape, code, field = statement.parts
    proof = read(statement, raw)
    at = opened(statement, seed, commitment, proof.shown)
    for place, column, salt, siblings in zip(
        at, proof.columns, proof.salts, proof.paths, strict=True
    ):
        node = leaf(statement.binding, place, salt, field.write(column))
        if not hmac.compare_digest(climb(node, place, siblings), commitment):
            raise statement.refused("a column does not match its commitment")
    asked = weights(statement, seed)
    columns = np.ascontiguousarray(proof.columns.T)
    rows, masks = columns[: shape.rows], columns[shape.rows :]
    link_masks, near_masks, zeros = np.split(masks, 3)
    if not np.array_equal(
        code.encode(proof.near)[:, at], field.mod(field.combine(asked.near, rows) + near_masks)
    ):
        raise statement.refused("its rows are not codewords")
    links = field.combine(shape.spread(asked.link), rows)
    if not np.array_equal(code.encode(proof.link)[:, at], field.mod(links + link_masks)):
        raise statement.refused("its link does not match the committed counts")
    squares = field.mod(rows * (rows + np.uint64(field.prime - 1)))
    sums = field.combine(shape.totals(asked.totals), rows)
    target = code.encode(shape.target(asked.totals))[:, at]
    expected = field.combine(asked.bits, squares) + field.minus(sums, target) + zeros
    if not np.array_equal(code.encode(proof.valid)[:, at], field.mod(expected)):
        raise statement.refused("its test of counts does not match the committed counts")
    if np.any(slot_values(code, proof.valid)):
        raise statement.refused("a count is out of range, or a row has a wrong sum")
    return code.values(proof.link)[:, : shape.linked[1]]


def check_link(
    shape: Shape,
    context: bytes,
    seed: bytes,
    *,
    links: Sequence[Elements],
    votes: NDArray[np.int64],
    masks: Elements,
    teachers: int,
) -> None:
    """Check a sum against the proofs of all its parties: the links of all survivors.

    ``shape`` is of any party of the sum; its own k does not matter. ``masks`` is the sum of their link masks
    modulo the prime, which is above the number of their teachers.
    """
    field = shape.code.field
    otherwise = (
        "the sum is not that of the votes that were proved: a party masked other votes than it "
        "proved, and cannot be identified; the batch is refused"
    )
    # Beyond this range different integers would have the same residue.
    if np.any(votes < 0) or np.any(votes > min(teachers, field.prime - 1)):
        raise ProtocolError(otherwise)
    tests, used = shape.linked
    by = link_weights(shape, context, seed).reshape(tests, shape.classes * shape.blocks)
    counts = shape.padded(votes).reshape(shape.classes * shape.blocks, shape.code.slots)
    wanted = field.mod(field.combine(by, counts)[:, :used] + masks)
    if not np.array_equal(field.mod(np.stack(links).sum(axis=0, dtype=np.uint64)), wanted):
        raise ProtocolError(otherwise)
