"""The kinds of teachers by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from party.teachers.device import DEVICES, pick_device
from party.teachers.plugged import plugged
from pate.data.embeddings import Embeddings
from pate.data.values import Images
from pate.errors import UsageError
from pate.runtime.plugins import TEACHERS, plugin_names

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


def kind_for(model: str, inputs: Inputs, device: str = "auto") -> Kind:
    """Return the kind of teachers to train.

    ``auto`` is ``linear`` for images and embeddings. For tables each teacher chooses, on its own
    shard, between ``boosting``, ``logistic`` and ``forest``, or is ``prior`` if its shard is too small
    for that. This does not depend on the party's number of records: otherwise one record could change
    every teacher.

    Args:
        model: one of :data:`MODELS`, or the name of a plugin (:mod:`party.teachers.plugged`).
        inputs: the party's data; only their kind (images, embeddings or table) matters.
        device: ``auto``, ``cpu`` or ``cuda``; teachers of tables run on the CPU.

    Raises:
        UsageError: if there is no such kind, it does not take such inputs, or there is no such
            device.
    """
    what, own = _suited(inputs)
    if device not in DEVICES:
        raise UsageError(f"--device {device!r} is not one of {', '.join(DEVICES)}")
    if model not in MODELS:
        if model not in (others := plugin_names(TEACHERS)):
            known = ", ".join(("auto", *own, *others))
            raise UsageError(f"there is no model {model!r}; for {what} there are {known}")
        return plugged(model, device)
    if model == "auto":
        model = "chosen" if own == _OF_TABLES else own[0]
    elif model not in own:
        use = f"auto, {', '.join(own[:-1])} or {own[-1]}" if len(own) > 1 else f"auto or {own[0]}"
        raise UsageError(f"model {model} is not for {what}; use {use}")
    return _kind(model, device)


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
        from party.teachers.cnn import cnn_kind

        return cnn_kind(device)
    if name == "logistic":
        from party.teachers.logistic import Logistic

        return Logistic()
    if name == "chosen":
        from party.teachers.chosen import Chosen

        return Chosen()
    if name == "prior":
        from party.teachers.prior.teacher import Prior

        return Prior()
    from party.teachers.trees import Boosting, Forest

    return Forest() if name == "forest" else Boosting()
