"""``python -m tests.pate.masking.make_vectors``: regenerate the vectors from fixed inputs.

Only for a change of the protocol's version: the vectors are there to notice any other change.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from pate.masking import shamir
from pate.masking.ring import ChaChaStream, Ring
from tests.support.masking.bad_vectors import bad_messages, of_context
from tests.support.masking.vector_run import SURVIVORS, Run, fixed, iter_of

PLACE = Path(__file__).parent / "vectors"


def of_shamir() -> dict[str, object]:
    """Shares of three secrets, and shares that give none."""
    cases = []
    for label, secret, threshold, points in (
        ("three of five", fixed("a secret"), 3, [1, 2, 3, 4, 5]),
        ("two of two, far apart", b"\xff" * 32, 2, [1, 2**32 - 1]),
        ("one is enough", bytes(31) + b"\1", 1, [7]),
    ):
        raw = fixed(label, 48 * (threshold - 1))
        shares = shamir.split(secret, threshold, points, iter_of([raw]))
        cases.append({
            "name": label, "secret": secret.hex(), "threshold": threshold, "drawn": raw.hex(),
            "shares": {str(at): shamir.to_bytes(share).hex() for at, share in shares.items()},
        })  # fmt: skip
    return {
        "prime": str(shamir.PRIME),
        "cases": cases,
        "bad": [
            {"name": "the prime itself", "share": shamir.PRIME.to_bytes(33, "little").hex(),
             "error": "ProtocolError", "says": "no element"},
            {"name": "all ones", "share": "ff" * 33, "error": "ProtocolError",
             "says": "no element"},
            {"name": "a short share", "share": "00" * 32, "error": "ProtocolError",
             "says": "33 bytes"},
            {"name": "a long share", "share": "00" * 34, "error": "ProtocolError",
             "says": "33 bytes"},
        ],
    }  # fmt: skip


#: RFC 8439, appendix A.1, test vector 1: key, nonce and counter of zeros.
RFC_8439 = (
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
)


def of_stream() -> list[dict[str, object]]:
    return [
        {
            "name": "RFC 8439, A.1, 1", "bits": 8, "key": "00" * 32,
            "mask": list(bytes.fromhex(RFC_8439)),
        },
    ] + [
        {
            "name": f"{bits} bits", "bits": bits, "key": fixed("a mask key").hex(),
            "mask": ChaChaStream(Ring(bits))(fixed("a mask key"), 20).tolist(),
        }
        for bits in (8, 16, 32)
    ]  # fmt: skip


def write(name: str, content: object) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (PLACE / name).write_text(text + "\n", encoding="utf-8")


def main() -> None:
    run = Run()
    expected = sum(run.votes[name] for name in SURVIVORS) % 2**16
    np.testing.assert_array_equal(run.sum, expected)
    PLACE.mkdir(exist_ok=True)
    write("run.json", run.as_json())
    write("bad_messages.json", bad_messages(run))
    write("bad_contexts.json", of_context(run))
    write("shares.json", of_shamir())
    write("masks.json", of_stream())


if __name__ == "__main__":
    main()
