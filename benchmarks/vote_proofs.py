"""Costs of proofs of valid votes: each row of a hidden vote matrix is >= 0 and sums to k.

Three sorts of figures, for the sizes of real campaigns (see docs/decisions/0008-vote-proofs.md):

* *measured*: the proofs of :mod:`pate.masking.proofs`, made and checked, with their link to a sum;
* *counted*: group operations of commitments with range proofs, times one measured operation;
* *counted*: field operations of proofs on secret-shared votes (Prio), times one measured transform.

    python -m benchmarks.vote_proofs [--json]
"""

from __future__ import annotations

import json
import math
import secrets
import sys
import time
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from pate.masking.proofs.field import FIELD
from pate.masking.proofs.link import check_link
from pate.masking.proofs.prover import Prover
from pate.masking.proofs.shape import Shape, code_for
from pate.masking.proofs.transcript import Statement
from pate.masking.proofs.verifier import verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def random_votes(shape: Shape) -> NDArray[np.int64]:
    rng = np.random.default_rng(7)  # the cost does not depend on the votes
    found = rng.multinomial(
        shape.teachers, rng.dirichlet(np.full(shape.classes, 0.3)), shape.queries
    )
    return found.astype(np.int64)


def seconds(run: Callable[[], object], least: float = 0.2) -> float:
    """Mean CPU seconds of a call, over calls of at least ``least`` seconds in total."""
    run()
    began, calls = time.process_time(), 0
    while (took := time.process_time() - began) < least:
        run()
        calls += 1
    return took / calls


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


def group_operations() -> dict[str, float]:
    """Seconds of one multiplication by a 256-bit scalar, in each available group."""
    modulus = secrets.randbits(3072) | 1 << 3071 | 1
    base, scalar = secrets.randbits(3070), secrets.randbits(256) | 1 << 255
    found = {"integers mod 3072 bits (pow)": seconds(lambda: pow(base, scalar, modulus))}
    try:
        from Crypto.PublicKey import ECC

        point = ECC.generate(curve="P-256").pointQ
        found["P-256 (pycryptodome)"] = seconds(lambda: point * scalar)
    except ImportError:
        pass
    try:
        from nacl import bindings  # type: ignore[import-not-found, unused-ignore]

        ed = bindings.crypto_core_ed25519_from_uniform(secrets.token_bytes(32))
        small = bindings.crypto_core_ed25519_scalar_reduce(secrets.token_bytes(64))
        found["edwards25519 (PyNaCl)"] = seconds(
            lambda: bindings.crypto_scalarmult_ed25519_noclamp(small, ed)
        )
    except ImportError:
        pass
    return found


def counted(queries: int, teachers: int, parties: int, operation: float) -> dict[str, float]:
    """Costs of commitments with range proofs, from their numbers of scalar multiplications."""
    bits = queries * 10 * teachers.bit_length()
    return {
        # Per bit: one commitment and three multiplications of a two-branch Sigma proof; four to
        # check. Commitment and two challenges, two answers: 32 bytes each.
        "or_party_s": 4 * bits * operation,
        "or_server_s": 4 * bits * operation * parties,
        "or_bytes": 160 * bits,
        # Ten per bit over all rounds of the inner product; two per bit to check, as one product
        # of powers. A native library with Pippenger's method divides both by some ten.
        "bullet_party_s": 10 * bits * operation,
        "bullet_server_s": 2 * bits * operation * parties,
        "bullet_bytes": 32 * (queries * 10 + 2 * math.ceil(math.log2(bits)) + 9),
    }


def shared(queries: int, teachers: int, parties: int) -> dict[str, float]:
    """Costs of a proof on shares (fully linear, chunks of about the root of the length)."""
    bits = queries * 10 * teachers.bit_length()
    calls = 2 ** math.ceil(math.log2(math.sqrt(bits)))
    wires = 2 * math.ceil(bits / calls)
    x = FIELD.uniform(secrets.token_bytes, wires, 2 * calls)
    took = seconds(lambda: FIELD.transform(x, FIELD.root(2 * calls)), 0.0001)
    # Interpolate and evaluate at twice the points; _TESTS times for a field of 31 bits.
    return {
        "party_s": 2 * _TESTS * took,
        "verifying_party_s": _TESTS * took * (2 + parties),
        "server_s": _TESTS * took * parties,
        "leader_bytes": 16 * bits,  # Prio3 with Field128; the second server gets a seed
        "parties_bytes": 8 * (queries * 10 + bits) * parties,  # Shamir shares to every party
    }


#: Repetitions of a test in a field of 31 bits.
_TESTS: Final = 4

SIZES: Final = ((1_000, 10), (1_000, 250), (9_000, 10), (9_000, 50), (9_000, 250))


def run() -> dict[str, object]:
    """Measure and count everything; a JSON-able dict."""
    operations = group_operations()
    rows = []
    for queries, teachers in SIZES:
        by_group = {
            group: {n: counted(queries, teachers, n, each) for n in (4, 25)}
            for group, each in operations.items()
        }
        rows.append(
            {
                **measure(queries, teachers),
                "commitments": by_group,
                "shared": {n: shared(queries, teachers, n) for n in (4, 25)},
            }
        )
    return {"group_operation_s": operations, "sizes": rows}


def _amount(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def main() -> None:
    found = run()
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    operations = cast("dict[str, float]", found["group_operation_s"])
    for group, each in operations.items():
        print(f"one scalar multiplication, {group}: {each * 1e6:,.0f} us")
    head = f"{'queries':>8}{'k':>5}{'parties':>8}  {'construction':<44}"
    print(f"\n{head}{'party s':>10}{'server s':>10}{'party kB':>10}")
    sizes = cast("list[dict[str, float]]", found["sizes"])
    for size in sizes:
        for n in (4, 25):
            start = f"{size['queries']:>8}{size['teachers']:>5}{n:>8}  "
            total = size["proof_bytes"] + size["link_bytes"]
            lines = [("hashes (measured)", size["party_s"], n * size["server_s_per_party"], total)]
            for group, by_n in cast(
                "dict[str, dict[int, dict[str, float]]]", size["commitments"]
            ).items():
                c = by_n[n]
                lines += [
                    (f"bit proofs, {group}", c["or_party_s"], c["or_server_s"], c["or_bytes"]),
                    (
                        f"Bulletproofs, {group}",
                        c["bullet_party_s"],
                        c["bullet_server_s"],
                        c["bullet_bytes"],
                    ),
                ]
            s = cast("dict[int, dict[str, float]]", size["shared"])[n]
            lines += [
                ("shares to two servers (Prio)", s["party_s"], s["server_s"], s["leader_bytes"]),
                ("shares to every party", s["verifying_party_s"], 0.0, s["parties_bytes"]),
            ]
            for name, party, server, sent in lines:
                columns = "".join(f"{_amount(each):>10}" for each in (party, server, sent / 1e3))
                print(f"{start}{name:<44}{columns}")


if __name__ == "__main__":
    main()
