"""The kinds of teachers by name, the device they run on, and kinds from other packages (plugins).

A package declares an entry point in the group ``federated_pate.teachers``. It refers to a callable
that takes a device (``auto``, ``cpu`` or ``cuda``) and returns a
:class:`~party.teachers.protocol.Kind`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from pate.data.embeddings import Embeddings
from pate.data.values import Images
from pate.errors import UsageError
from pate.runtime.plugins import TEACHERS, load_plugin, plugin_names

if TYPE_CHECKING:
    from party.teachers.protocol import Kind
    from pate.data.values import Inputs

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
        from party.teachers.nearest import Nearest

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
