"""``python -m benchmarks``: benchmarks without options, one JSON object per line."""

from __future__ import annotations

import json

from benchmarks import accounting, masking, vote_proofs


def main() -> None:
    for bench in (accounting, masking, vote_proofs):
        print(json.dumps({"benchmark": bench.__name__.rpartition(".")[2], **bench.run()}))


if __name__ == "__main__":
    main()
