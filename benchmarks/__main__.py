"""``python -m benchmarks``: run all of them, one JSON object a line."""

from __future__ import annotations

import json

from benchmarks import accounting, heart, mnist


def main() -> None:
    for bench in (accounting, heart, mnist):
        print(json.dumps({"benchmark": bench.__name__.rpartition(".")[2], **bench.run()}))


if __name__ == "__main__":
    main()
