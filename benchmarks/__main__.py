"""``python -m benchmarks``: run all of them, one JSON object a line."""

from __future__ import annotations

import json

from benchmarks import accounting, heart, masking, mnist, observers, vote_proofs


def main() -> None:
    for bench in (accounting, masking, vote_proofs, heart, mnist, observers):
        print(json.dumps({"benchmark": bench.__name__.rpartition(".")[2], **bench.run()}))


if __name__ == "__main__":
    main()
