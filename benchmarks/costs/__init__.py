"""What campaigns cost in processor time, memory and bytes: each module prints one JSON object.

python -m benchmarks.costs.masking [--out DIR] [--quick]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def add_out(parser: argparse.ArgumentParser) -> None:
    """Add ``--out``."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the figures")


def publish(found: Mapping[str, Any], out: Path | None, name: str) -> None:
    """Print the figures, and store them in a folder if there is one.

    Raises:
        SystemExit: if one of ``checks`` does not hold.
    """
    text = json.dumps(found, indent=2)
    print(text)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    if any(check["holds"] is False for check in found.get("checks", {}).values()):
        sys.exit("a check failed: see `checks`")


def main_of(about: str | None, name: str, run: Callable[..., Mapping[str, Any]]) -> None:
    """Run the command line of a module: ``run(quick=...)``, printed and stored."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_out(parser)
    parser.add_argument("--quick", action="store_true", help="a few small sizes, to try")
    asked = parser.parse_args()
    publish(run(quick=asked.quick), asked.out, name)
