"""The verifier: the server checks one party's proof."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

import numpy as np

from pate.masking.proofs import tree
from pate.masking.proofs.code import slot_values
from pate.masking.proofs.transcript import Statement, opened, read, weights

if TYPE_CHECKING:
    from pate.masking.proofs.field import Elements


def verify(statement: Statement, commitment: bytes, seed: bytes, raw: bytes) -> Elements:
    """Check a proof.

    Args:
        statement: party, attempt and shape of the votes.
        commitment: from the masked votes, 32 bytes.
        seed: 32 bytes, drawn by the server, and revealed after the commitment.
        raw: the proof.

    Returns:
        The link, (tests, used slots): weighted counts plus the committed link masks.

    Raises:
        ProtocolError: if it is invalid; names the party and the reason.
    """
    shape, code, field = statement.shape, statement.shape.code, statement.shape.code.field
    proof = read(statement, raw)
    at = opened(statement, seed, commitment, proof.shown)
    for place, column, salt, path in zip(at, proof.columns, proof.salts, proof.paths, strict=True):
        node = tree.leaf(statement.binding, place, salt, field.write(column))
        if not hmac.compare_digest(tree.climb(node, place, path), commitment):
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
