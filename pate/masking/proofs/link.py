"""The link: checks that the unmasked sum is that of the proved votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pate.errors import ProtocolError
from pate.masking.proofs.transcript import link_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.masking.proofs.field import Elements
    from pate.masking.proofs.shape import Shape


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
    """Check a sum against the proofs of all its parties.

    Args:
        shape: of any party of the sum; its own k does not matter.
        context: digest of the attempt, 32 bytes.
        seed: of the proofs, 32 bytes.
        links: results of :func:`pate.masking.proofs.verifier.verify`, one per survivor.
        votes: (queries, classes), the sum of the survivors' votes.
        masks: (tests, used slots), the sum of their link masks modulo the prime.
        teachers: of the survivors together, below the prime.

    Raises:
        ProtocolError: if they disagree. Some party masked other votes or link masks than it proved,
            or masked wrongly; it cannot be identified.
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
