"""Where the files of deploy/ are, and how the tests read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"


def documents(text: str) -> list[dict[str, Any]]:
    """The YAML documents in a text, the empty ones left out."""
    return [each for each in yaml.safe_load_all(text) if each is not None]
