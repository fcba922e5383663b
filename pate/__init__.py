"""Private aggregation of teachers' votes: the public interface of the library.

>>> import pate
>>> sorted(pate.__all__)[:3]
['Answers', 'ConfidentGNMax', 'GNMax']

Names are imported on first use, so that commands start quickly.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # commands begin with `pate.start`: nothing is imported before it
if TYPE_CHECKING:
    from pate.label_source import Answers, LabelSource
    from pate.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Neighbour

__all__ = [
    "Answers",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "LabelSource",
    "Neighbour",
]

_ROOMS = {
    "Answers": "pate.label_source",
    "ConfidentGNMax": "pate.mechanisms",
    "GNMax": "pate.mechanisms",
    "InteractiveGNMax": "pate.mechanisms",
    "LNMax": "pate.mechanisms",
    "LabelSource": "pate.label_source",
    "Neighbour": "pate.mechanisms",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module 'pate' has no attribute {name!r}")
    return getattr(importlib.import_module(_ROOMS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
