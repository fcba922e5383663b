"""The commit that a result is of."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

#: Of the repository.
ROOT: Final = Path(__file__).resolve().parents[1]


def commit(*written: str) -> str | None:
    """Return the commit of this repository, with a + if files have changed since; None without one.

    Args:
        written: what the benchmark itself writes, relative to the repository: it influences no figure.
    """
    # In this form: git takes the slash of ":!/" for a sign, not for a path's first letter.
    ours = (f":(exclude){each}" for each in written)

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", ".", *ours)
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
