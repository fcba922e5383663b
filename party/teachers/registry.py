"""The kinds of teachers by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pate.data.values import Images
from pate.errors import UsageError

if TYPE_CHECKING:
    from party.teachers.protocol import Kind
    from pate.data.values import Inputs

#: What ``--model`` takes.
MODELS: Final = ("auto", "linear", "cnn", "forest", "boosting")


def kind_for(model: str, inputs: Inputs, device: str = "auto") -> Kind:
    """Return the kind of teachers to train.

    ``auto`` is ``linear`` for images and ``forest`` for tables, whatever the number of records:
    a choice that looked at it would let one record change every teacher.

    Args:
        model: one of :data:`MODELS`.
        inputs: what the party's data is; only whether it is images or a table counts.
        device: ``auto``, ``cpu`` or ``cuda``, for ``cnn``; the others run on the CPU.

    Raises:
        UsageError: if there is no such kind, it does not take such inputs, or there is no such
            device.
    """
    images = isinstance(inputs, Images)
    if model not in MODELS:
        raise UsageError(f"there is no model {model!r}; it is one of {', '.join(MODELS)}")
    if device not in {"auto", "cpu", "cuda"}:
        raise UsageError(f"--device {device!r} is none of auto, cpu, cuda")
    if model == "auto":
        model = "linear" if images else "forest"
    if model == "cnn" and not images:
        raise UsageError("model cnn takes images, the data is a table; use forest or boosting")
    if model in {"forest", "boosting"} and images:
        raise UsageError(f"model {model} takes tables, the data is images; use linear or cnn")
    if model == "cnn":
        from party.teachers.cnn import Cnn

        return Cnn(device)
    if model == "linear":
        from party.teachers.linear import Linear

        return Linear()
    from party.teachers.trees import Boosting, Forest

    return Forest() if model == "forest" else Boosting()
