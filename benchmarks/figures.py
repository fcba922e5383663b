"""The result of a benchmark: printed as JSON, and optionally stored with its pictures."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def add_out(parser: argparse.ArgumentParser) -> None:
    """Add ``--out``."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for figures and pictures")


def options(about: str | None, quick: str) -> argparse.Namespace:
    """Return ``out`` and ``quick`` of the command line.

    Args:
        about: the benchmark's description.
        quick: what a quick run does.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_out(parser)
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser.parse_args()


def publish(
    found: Mapping[str, Any],
    out: Path | None,
    name: str,
    draw: Callable[[Path], None] = lambda _: None,
) -> None:
    """Print the figures, and store them in a folder.

    Args:
        found: the figures; ``checks``, if any, state by name whether each ``holds``.
        out: the folder; None: they are printed only.
        name: of the file.
        draw: adds pictures to the folder.

    Raises:
        SystemExit: if a check fails.
    """
    text = json.dumps(found, indent=2)
    print(text)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        draw(out)
    if any(check["holds"] is False for check in found.get("checks", {}).values()):
        sys.exit("a check failed: see `checks`")
