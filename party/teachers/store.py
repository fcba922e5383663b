"""Storage of teachers on disk, each atomic.

A teacher is two files, ``NNNNN.json`` and the model in its own format. The JSON file is written
last and has the digest of the model, so it marks the pair as complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Final

from party.teachers.constant import Constant
from party.teachers.protocol import DamagedTeacherError, Stored
from pate.errors import DiskError
from pate.foreign import json_value
from pate.runtime.home import write_file

if TYPE_CHECKING:
    from pathlib import Path

    from party.teachers.protocol import Kind, Teacher

_FORMAT: Final = 1


def save_teacher(folder: Path, number: int, kind: Kind, teacher: Teacher) -> None:
    """Store a teacher durably.

    Raises:
        DiskError: if the disk is full or not writable; nothing is left behind.
    """
    stored = teacher.store()
    facts = {
        "format": _FORMAT,
        "kind": kind.name,
        "version": kind.version,
        "sha256": hashlib.sha256(stored.model).hexdigest(),
        "facts": stored.facts,
    }
    model, marker = _files(folder, number, kind)
    try:
        write_file(model, stored.model)
        write_file(marker, json.dumps(facts).encode())
    except DiskError:
        for path in (marker, model):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise


def load_teacher(folder: Path, number: int, kind: Kind) -> Teacher | None:
    """Return a stored teacher, or None if it is incomplete and must be trained again."""
    model, marker = _files(folder, number, kind)
    try:
        facts = json_value(marker.read_bytes())
        content = model.read_bytes()
    except (OSError, ValueError):
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("facts"), dict):
        return None
    expected = (_FORMAT, kind.name, kind.version, hashlib.sha256(content).hexdigest())
    if tuple(facts.get(name) for name in ("format", "kind", "version", "sha256")) != expected:
        return None
    inner: dict[str, object] = facts["facts"]
    label = inner.get("constant")
    if isinstance(label, int):
        return Constant(label)
    try:
        return kind.restore(Stored(inner, content))
    except DamagedTeacherError:
        return None


def _files(folder: Path, number: int, kind: Kind) -> tuple[Path, Path]:
    stem = f"{number:05d}"
    return folder / f"{stem}.{kind.suffix}", folder / f"{stem}.json"
