"""Statement, challenges and encoding of a proof."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import ProtocolError, UsageError
from pate.masking.encoding import digest, encode
from pate.masking.proofs.field import ELEMENT_BYTES, Elements
from pate.masking.proofs.tree import HASH_BYTES, SALT_BYTES

if TYPE_CHECKING:
    from pate.masking.proofs.shape import Shape

SEED_BYTES: Final = 32
#: Bytes of a seed or hash per challenge element: within 2^-33 of uniform, which multiplies the
#: success probability of a cheater by less than 1 + 2^-16.
_CHALLENGE_BYTES: Final = 8


def commit_seed(seed: bytes) -> bytes:
    """Return the hash that fixes the server's seed before a sum begins, 32 bytes.

    Every party's context has it, so all parties whose masks cancel answer the same seed. By
    choosing seeds for each party a server could read single votes from the links
    (docs/proofs/vote-proofs.md, section 4).

    Raises:
        UsageError: if the seed does not have 32 bytes.
    """
    if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
        raise UsageError(f"the seed of proofs must be {SEED_BYTES} bytes")
    return digest("seed of proofs", seed)


@dataclass(frozen=True)
class Statement:
    """The statement of a proof: party, attempt and shape of the votes.

    Attributes:
        shape: of the votes.
        context: digest of the attempt, 32 bytes.
        name: of the party.
    """

    shape: Shape
    context: bytes
    name: str

    @cached_property
    def binding(self) -> bytes:
        """Digest in all leaves and challenges of this proof, 32 bytes."""
        return digest("proof of votes", self.context, self.name.encode(), self.shape.encoded)

    def refused(self, why: str) -> ProtocolError:
        """Return the error that names the party."""
        return ProtocolError(f"the votes of {self.name} are not proved: {why}")


@dataclass(frozen=True)
class Weights:
    """Random weights of the combinations that a party must reveal.

    Attributes:
        near: (tests, rows) of all rows: they are codewords.
        bits: (tests, rows): bits are bits.
        totals: (tests, blocks): counts of a row sum to k.
        link: (tests, classes, blocks): of the counts, the same for all parties of a sum.
    """

    near: Elements
    bits: Elements
    totals: Elements
    link: Elements


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
    """Return the opened columns, chosen by a hash once the polynomials are fixed.

    Args:
        statement: of the proof.
        seed: of the server, 32 bytes.
        commitment: root of the tree.
        shown: the polynomials, as sent.
    """
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


@dataclass(frozen=True)
class Proof:
    """A parsed proof.

    Attributes:
        near: (tests, degree) coefficients.
        link: (tests, degree) coefficients.
        valid: (tests, 2 * degree) coefficients.
        columns: (columns, width) elements: rows of bits, masks of link, near and valid.
        salts: of the columns.
        paths: from the columns to the root.
        shown: the polynomials, as sent.
    """

    near: Elements
    link: Elements
    valid: Elements
    columns: Elements
    salts: tuple[bytes, ...]
    paths: tuple[bytes, ...]
    shown: bytes


def read(statement: Statement, raw: bytes) -> Proof:
    """Read a proof: polynomials, columns, salts and paths, one after the other.

    Raises:
        ProtocolError: if it has another length, or a value that is not an element of the field.
    """
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
