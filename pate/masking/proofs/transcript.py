"""What a proof is about and is bound to: parameters, statement, challenges, hash tree, encoding.

The tree is over the columns of a codeword matrix: one root, and paths to some leaves. Leaves, inner
nodes and other hashes of a proof begin with different bytes. A leaf includes its owner, its position
and a salt, which hides a column that is not opened.

Source of the tree: Merkle, "A certified digital signature", CRYPTO 1989.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from pate.errors import ProtocolError, UsageError
from pate.masking.encoding import HASH_BYTES, digest, encode, whole
from pate.masking.proofs.code import (
    ELEMENT_BYTES,
    FIELD,
    SALT_BYTES,
    Code,
    Elements,
    Field,
    Shape,
    code_for,
)

SEED_BYTES: Final = 32
_LEAF: Final = b"\0"
_NODE: Final = b"\1"
#: Bytes of a seed or hash per challenge element: within 2^-33 of uniform, which multiplies the
#: success probability of a cheater by less than 1 + 2^-16.
_CHALLENGE_BYTES: Final = 8


def commit_seed(seed: bytes) -> bytes:
    """Return the hash that fixes the server's seed before a sum begins, 32 bytes.

    Every party's context has it, so all parties whose masks cancel answer the same seed. By
    choosing seeds for each party a server could read single votes from the links
    (docs/proofs/vote-proofs.md, section 4).
    """
    if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
        raise UsageError(f"the seed of proofs must be {SEED_BYTES} bytes")
    return digest("seed of proofs", seed)


@dataclass(frozen=True)
class Proofs:
    """Proofs of valid votes in one attempt."""

    teachers: tuple[int, ...]  # k of each party, in the order of the roster
    # :func:`commit_seed` of the seed that the server drew for this attempt and reveals when all masked
    # votes are in; 32 bytes
    seed_hash: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.seed_hash, bytes) or len(self.seed_hash) != SEED_BYTES:
            raise ProtocolError(f"the hash of the seed of proofs must be {SEED_BYTES} bytes")
        if not isinstance(self.teachers, tuple) or not self.teachers:
            raise ProtocolError("proofs of votes need the number of teachers of each party")
        if any(type(each) is not int or each < 1 for each in self.teachers):
            raise ProtocolError("proofs of votes need a whole number of teachers of each party")

    def check(self, queries: int, classes: int, parties: int, bits: int) -> None:
        """Check that votes of these sizes can be proved and their sums do not wrap."""
        if len(self.teachers) != parties:
            raise ProtocolError(
                f"proofs have the teachers of {len(self.teachers)} parties, the roster has {parties}"
            )
        if sum(self.teachers) >= min(1 << bits, FIELD.prime):
            raise ProtocolError(
                f"sums of {sum(self.teachers)} votes cannot be proved in {bits} bits"
            )
        try:
            self.largest(queries, classes)
        except UsageError as error:
            raise ProtocolError(str(error)) from error

    def largest(self, queries: int, classes: int) -> Shape:
        """Return the shape of the votes of the largest party; all use its code."""
        most = max(self.teachers)
        return Shape(queries, classes, most, code_for(queries, classes, most))

    def encoded(self, queries: int, classes: int) -> bytes:
        """Return all fields and the resulting code as bytes, for hashing."""
        shape = self.largest(queries, classes).encoded
        return encode("proofs", shape, self.seed_hash, *map(whole, self.teachers))


@dataclass(frozen=True)
class Statement:
    """The statement of a proof: party, attempt and shape of the votes."""

    shape: Shape  # of the votes
    context: bytes  # digest of the attempt, 32 bytes
    name: str  # of the party

    @property
    def parts(self) -> tuple[Shape, Code, Field]:
        """The shape, its code, and the field of that."""
        return self.shape, self.shape.code, self.shape.code.field

    @cached_property
    def binding(self) -> bytes:
        """Digest in all leaves and challenges of this proof, 32 bytes."""
        return digest("proof of votes", self.context, self.name.encode(), self.shape.encoded)

    def refused(self, why: str) -> ProtocolError:
        """Return the error that names the party."""
        return ProtocolError(f"the votes of {self.name} are not proved: {why}")


@dataclass(frozen=True)
class Weights:
    """Random weights of the combinations that a party must reveal."""

    near: Elements  # (tests, rows) of all rows: they are codewords
    bits: Elements  # (tests, rows): bits are bits
    totals: Elements  # (tests, blocks): counts of a row sum to k
    link: Elements  # (tests, classes, blocks): of the counts, the same for all parties of a sum


def weights(statement: Statement, seed: bytes) -> Weights:
    """Return the weights for a seed."""
    shape, own = statement.shape, statement.binding
    tests = shape.code.tests
    return Weights(
        near=_expand(shape, "near", own, seed, tests, shape.rows),
        bits=_expand(shape, "bits", own, seed, tests, shape.rows),
        totals=_expand(shape, "totals", own, seed, tests, shape.blocks),
        link=link_weights(shape, statement.context, seed),
    )


def link_weights(shape: Shape, context: bytes, seed: bytes) -> Elements:
    """Return weights of counts, (tests, classes, blocks), the same for all parties of a sum."""
    tests, classes, blocks = shape.code.tests, shape.classes, shape.blocks
    return _expand(shape, "link", context, seed, tests, classes, blocks)


def _expand(shape: Shape, what: str, bound: bytes, seed: bytes, *sizes: int) -> Elements:
    stream = hashlib.shake_256(encode(f"weights of {what}", bound, seed))
    raw = stream.digest(_CHALLENGE_BYTES * math.prod(sizes))
    return shape.code.field.mod(np.frombuffer(raw, "<u8").astype(np.uint64)).reshape(sizes)


def opened(statement: Statement, seed: bytes, commitment: bytes, shown: bytes) -> list[int]:
    """Return the opened columns, chosen by a hash once the polynomials are fixed."""
    code = statement.shape.code
    said = encode("columns", statement.binding, seed, commitment, shown)
    wanted = 64 * code.columns
    while True:
        raw = hashlib.shake_256(said).digest(wanted)
        # The length is a power of two: all remainders are equally likely.
        drawn = np.frombuffer(raw, "<u4") % np.uint32(code.length)
        found = list(dict.fromkeys(drawn.tolist()))[: code.columns]
        if len(found) == code.columns:
            return found
        wanted *= 2  # starts with the same bytes, and is almost never needed


def leaf(binding: bytes, place: int, salt: bytes, column: bytes) -> bytes:
    """Return the hash of a column."""
    return hashlib.sha256(_LEAF + binding + place.to_bytes(4, "little") + salt + column).digest()


def grow(leaves: list[bytes]) -> list[list[bytes]]:
    """Return all levels, from the leaves (a power of two of them) to the root."""
    levels = [leaves]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append(
            [
                hashlib.sha256(_NODE + left + right).digest()
                for left, right in zip(below[::2], below[1::2], strict=True)
            ]
        )
    return levels


def path(levels: list[list[bytes]], place: int) -> bytes:
    """Return the siblings on the way from a leaf to the root, one after the other."""
    return b"".join(level[place >> depth ^ 1] for depth, level in enumerate(levels[:-1]))


def climb(node: bytes, place: int, siblings: bytes) -> bytes:
    """Return the root that a leaf at a place and the siblings on its way lead to."""
    for depth in range(len(siblings) // HASH_BYTES):
        other = siblings[depth * HASH_BYTES : (depth + 1) * HASH_BYTES]
        pair = other + node if place >> depth & 1 else node + other
        node = hashlib.sha256(_NODE + pair).digest()
    return node


@dataclass(frozen=True)
class Proof:
    """A parsed proof."""

    near: Elements  # (tests, degree) coefficients
    link: Elements  # (tests, degree) coefficients
    valid: Elements  # (tests, 2 * degree) coefficients
    columns: Elements  # (columns, width) elements: rows of bits, masks of link, near and valid
    salts: tuple[bytes, ...]  # of the columns
    paths: tuple[bytes, ...]  # from the columns to the root
    shown: bytes  # the polynomials, as sent


def read(statement: Statement, raw: bytes) -> Proof:
    """Read a proof: polynomials, columns, salts and paths, one after the other."""
    shape, code = statement.shape, statement.shape.code
    if not isinstance(raw, bytes) or len(raw) != shape.proof_bytes:
        found = len(raw) if isinstance(raw, bytes) else type(raw).__name__
        raise statement.refused(f"a proof has {shape.proof_bytes} bytes, but this has {found}")
    column_bytes = ELEMENT_BYTES * code.columns * shape.width
    shown_bytes = ELEMENT_BYTES * shape.shown
    numbers = np.frombuffer(raw[: shown_bytes + column_bytes], "<u4").astype(np.uint64)
    if int(numbers.max()) >= code.field.prime:
        raise statement.refused("it has a value that is not an element of the field")
    polynomials, columns = np.split(numbers, [shape.shown])
    near, link, valid = np.split(
        polynomials, [code.tests * code.degree, 2 * code.tests * code.degree]
    )
    rest = raw[shown_bytes + column_bytes :]
    salts, paths = rest[: SALT_BYTES * code.columns], rest[SALT_BYTES * code.columns :]
    return Proof(
        near=near.reshape(code.tests, code.degree),
        link=link.reshape(code.tests, code.degree),
        valid=valid.reshape(code.tests, 2 * code.degree),
        columns=columns.reshape(code.columns, shape.width),
        salts=_pieces(salts, SALT_BYTES),
        paths=_pieces(paths, HASH_BYTES * shape.depth),
        shown=raw[:shown_bytes],
    )


def _pieces(raw: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(raw[at : at + size] for at in range(0, len(raw), size))
