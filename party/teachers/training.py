"""Training of a party's teachers: their kinds by name, and each stored as soon as it is trained.

A kind from another package (a plugin) is an entry point in the group ``federated_pate.teachers``. It refers
to a callable that takes a device (``auto``, ``cpu`` or ``cuda``) and returns a
:class:`~party.teachers.protocol.Kind`.

A teacher is two files, ``NNNNN.json`` and the model in its own format. The JSON file is written
last and has the digest of the model, so it marks the pair as complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from party.teachers.ensemble import Ensemble, fingerprint_of, seed_of, split
from party.teachers.protocol import (
    NO_OPINION,
    Constant,
    DamagedTeacherError,
    FitsTogether,
    Stored,
    restored,
)
from party.teachers.schema import schema_of
from party.teachers.several import Several
from pate.answers import CLASS, LABELS
from pate.data.embeddings import Embeddings
from pate.data.records import require_teachable, require_trainable
from pate.data.values import Images
from pate.errors import DiskError, UsageError
from pate.foreign import json_value
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory, write_file
from pate.runtime.plugins import TEACHERS, load_plugin, plugin_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from party.teachers.protocol import Kind, Shard, Teacher
    from pate.data.values import Dataset, Inputs

#: Values of ``--model``.
MODELS: Final = (
    "auto", "linear", "nearest", "cnn", "forest", "boosting", "logistic", "prior",
)  # fmt: skip
_OF_IMAGES: Final = ("linear", "nearest", "cnn")
_OF_TABLES: Final = ("linear", "forest", "boosting", "logistic", "prior")
_OF_EMBEDDINGS: Final = ("linear",)
#: Values of ``--device``.
DEVICES: Final = ("auto", "cpu", "cuda")
#: One of these exists if there is an NVIDIA driver: on Linux, and in WSL.
_DRIVER: Final = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
#: Characters allowed in a file's name.
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def kind_for(model: str, inputs: Inputs, device: str = "auto") -> Kind:
    """Return the kind of teachers to train, by the name of one of :data:`MODELS` or of a plugin.

    ``auto`` is ``linear`` for images and embeddings. For tables each teacher chooses, on its own
    shard, between ``boosting``, ``logistic`` and ``forest``, or is ``prior`` if its shard is too
    small for that. This does not depend on the party's number of records: otherwise one record
    could change every teacher.
    """
    what, own = _suited(inputs)
    if device not in DEVICES:
        raise UsageError(f"--device {device!r} is not one of {', '.join(DEVICES)}")
    if model not in MODELS:
        if model not in (others := plugin_names(TEACHERS)):
            known = ", ".join(("auto", *own, *others))
            raise UsageError(f"there is no model {model!r}; for {what} there are {known}")
        return _plugged(model, device)
    if model != "auto" and model not in own:
        use = f"auto, {', '.join(own[:-1])} or {own[-1]}" if len(own) > 1 else f"auto or {own[0]}"
        raise UsageError(f"model {model} is not for {what}; use {use}")
    return _kind(own[0] if model == "auto" and own != _OF_TABLES else model, device)


def _suited(inputs: Inputs) -> tuple[str, tuple[str, ...]]:
    """Return the kind of inputs in words, and the models that take them."""
    if isinstance(inputs, Embeddings):
        return "embeddings", _OF_EMBEDDINGS
    return ("images", _OF_IMAGES) if isinstance(inputs, Images) else ("a table", _OF_TABLES)


def _kind(name: str, device: str) -> Kind:
    """Return a kind by name, imported on demand, since some load PyTorch."""
    if name == "linear":
        from party.teachers.linear import Linear

        return Linear(pick_device(device))
    if name == "nearest":
        from party.teachers.by_records import Nearest

        return Nearest()
    if name == "cnn":
        from party.teachers.networks import Cnn, CnnTogether

        found = pick_device(device)
        return Cnn(found) if found == "cpu" else CnnTogether(found)
    from party.teachers.tables import KINDS

    return KINDS[name]


def pick_device(wanted: str) -> str:
    """Return ``cpu`` or ``cuda``; PyTorch, which loads for seconds, is asked only if there may be a GPU."""
    if wanted not in DEVICES:
        raise UsageError(f"--device {wanted!r} is not one of {', '.join(DEVICES)}")
    if wanted == "cpu" or (wanted == "auto" and not any(path.exists() for path in _DRIVER)):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        raise UsageError("--device cuda, but PyTorch finds no CUDA device; use auto or cpu")
    return "cpu"


def _plugged(name: str, device: str) -> Kind:
    """Return the kind of teachers that an installed package offers under a name."""
    make = load_plugin(TEACHERS, name)
    if not callable(make):
        raise UsageError(f"plugin {name!r} is not callable: it is called with a device")
    kind = make(device)
    for part in ("fit", "restore"):
        if not callable(getattr(kind, part, None)):
            raise UsageError(f"plugin {name!r} returned a {type(kind).__name__} without {part}()")
    if getattr(kind, "name", None) != name:
        raise UsageError(f"plugin {name!r} returned a kind that calls itself {kind.name!r}")
    if not _PLAIN.fullmatch(str(getattr(kind, "suffix", ""))):
        raise UsageError(f"plugin {name!r}: its suffix is no plain file suffix")
    if not isinstance(getattr(kind, "version", None), str):
        raise UsageError(f"plugin {name!r}: its version is no text")
    return cast("Kind", kind)


_FORMAT: Final = 1


def train_ensemble(
    dataset: Dataset,
    *,
    teachers: int,
    model: str,
    device: str,
    home: Path,
    key: bytes,
    progress: Callable[[int, int], None],
    few_fit: bool = False,
) -> Ensemble:
    """Return the party's teachers, training those that are not stored yet.

    A teacher is stored as soon as it is trained, so that a killed process continues with the rest.
    Stored teachers are used again as long as data and settings are the same; teachers of other data
    or settings are removed. A teacher depends only on its shard's records and its number, not on
    their order in the file. ``few_fit``: whether fewer records than teachers, or one class only,
    are no error: a shard without records, or of one class, has a teacher all the same.
    """
    (require_teachable if few_fit else require_trainable)(dataset, teachers)
    kind = kind_for(model, dataset.inputs, device)
    if dataset.kind == LABELS:
        kind = Several(kind)
    hashes = dataset.row_hashes()
    fingerprint = fingerprint_of(dataset, hashes, teachers, kind, key)
    folder = _current_folder(home / "teachers", fingerprint)
    loaded = ((number, load_teacher(folder, number, kind)) for number in range(teachers))
    members = {number: teacher for number, teacher in loaded if teacher is not None}
    progress(len(members), teachers)  # stored teachers are no measure of training speed
    missing = {
        number: (rows, seed_of(key, number))
        for number, rows in enumerate(split(dataset, hashes, teachers, key))
        if number not in members
    }
    for number, teacher in _fit(kind, dataset, missing):
        reach("teacher-trained")
        save_teacher(folder, number, kind, teacher)
        members[number] = teacher
        progress(len(members), teachers)
    return Ensemble(
        members=tuple(members[number] for number in range(teachers)),
        classes=dataset.classes,
        unit="record" if dataset.groups is None else "patient",
        schema=dataset.inputs.schema(),
        fingerprint=fingerprint,
        answer=dataset.kind,
        _takes=schema_of(dataset.inputs),
        _key=key,
        _kind=kind,
    )


def _fit(kind: Kind, dataset: Dataset, shards: dict[int, Shard]) -> Iterator[tuple[int, Teacher]]:
    """Yield the number and teacher of each shard, in order."""
    if dataset.kind == LABELS:
        for number, (rows, seed) in shards.items():
            yield number, kind.fit(dataset.take(rows), seed)
        return
    if dataset.kind == CLASS and len(np.unique(dataset.labels)) < 2:
        # Nothing to learn from, in any shard.
        made: Iterator[Teacher] = iter([Constant(NO_OPINION)] * len(shards))
    elif isinstance(kind, FitsTogether):
        made = kind.fit_many(dataset, list(shards.values()))
    else:
        for number, (rows, seed) in shards.items():
            yield number, Constant.of(dataset.labels[rows]) or kind.fit(dataset.take(rows), seed)
        return
    for (number, (rows, _)), teacher in zip(shards.items(), made, strict=True):
        yield number, Constant.of(dataset.labels[rows]) or teacher


def _current_folder(home: Path, fingerprint: bytes) -> Path:
    """Return the folder of these teachers, and remove other or incomplete ones."""
    folder = private_directory(home / fingerprint.hex()[:32])
    for other in home.iterdir():
        if other != folder and re.fullmatch("[0-9a-f]{32}", other.name):
            shutil.rmtree(other, ignore_errors=True)
    for unfinished in folder.glob(".*"):
        with contextlib.suppress(OSError):
            unfinished.unlink()
    return folder


def save_teacher(folder: Path, number: int, kind: Kind, teacher: Teacher) -> None:
    """Store a teacher durably."""
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
    with contextlib.suppress(DamagedTeacherError):
        return restored(kind, Stored(facts["facts"], content))
    return None


def _files(folder: Path, number: int, kind: Kind) -> tuple[Path, Path]:
    stem = f"{number:05d}"
    return folder / f"{stem}.{kind.suffix}", folder / f"{stem}.json"
