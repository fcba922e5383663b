"""``python -m benchmarks.costs.vote_proofs``: costs of proofs that each row of a hidden vote matrix is valid.

The proofs of :mod:`pate.masking.proofs` are made and checked, with their link to a sum, for the sizes of real
campaigns. Seconds are CPU seconds.
"""

from __future__ import annotations

import math
import secrets
import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.costs import main_of
from pate.masking.proofs.argument import Prover, check_link, verify
from pate.masking.proofs.code import Shape, code_for
from pate.masking.proofs.transcript import Statement

#: Queries, and teachers of a party.
SIZES: Final = ((1_000, 10), (1_000, 250), (9_000, 10), (9_000, 50), (9_000, 250))


def random_votes(shape: Shape) -> NDArray[np.int64]:
    rng = np.random.default_rng(7)  # the cost does not depend on the votes
    found = rng.multinomial(
        shape.teachers, rng.dirichlet(np.full(shape.classes, 0.3)), shape.queries
    )
    return found.astype(np.int64)


def measure(queries: int, teachers: int, classes: int = 10) -> dict[str, float | int]:
    """Prove and check one party's votes, and a sum of only these."""
    shape = Shape(queries, classes, teachers, code_for(queries, classes, teachers))
    context, seed = secrets.token_bytes(32), secrets.token_bytes(32)
    statement, votes = Statement(shape, context, "party"), random_votes(shape)
    began = time.process_time()
    prover = Prover(statement, votes, secrets.token_bytes)
    proof = prover.prove(seed)
    proved = time.process_time()
    link = verify(statement, prover.commitment, seed, proof)
    checked = time.process_time()
    check_link(
        shape,
        context,
        seed,
        links=[link],
        votes=votes,
        masks=prover.link_masks,
        teachers=teachers,
    )
    assert len(proof) == shape.proof_bytes
    return {
        "queries": queries,
        "teachers": teachers,
        "degree": shape.code.degree,
        "votes_bytes": queries * classes,
        "proof_bytes": shape.proof_bytes,
        "link_bytes": 4 * math.prod(shape.linked) + len(prover.commitment),
        "party_s": round(proved - began, 2),
        "server_s_per_party": round(checked - proved, 3),
    }


def run(*, quick: bool = False) -> dict[str, Any]:
    """Measure all sizes, or with ``quick`` the first."""
    return {"sizes": [measure(*size) for size in (SIZES[:1] if quick else SIZES)]}


if __name__ == "__main__":
    main_of(__doc__, "vote_proofs", run)
