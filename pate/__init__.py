"""Labels and classifiers from private votes: the public interface of the library.

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
    from simulation.classifier import PateClassifier
    from simulation.library import SimulatedCampaign, simulate
    from simulation.published import PublishedStudent, load_student

__all__ = [
    "Answers",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "LabelSource",
    "Neighbour",
    "PateClassifier",
    "PublishedStudent",
    "SimulatedCampaign",
    "load_student",
    "simulate",
]

# The last five are built of all roles, which are above this package. A user looks for them here, so
# this module, and no other of pate/, names what is above: as text, which is imported only when it is used.
_ROOMS = {
    "Answers": "pate.label_source",
    "ConfidentGNMax": "pate.mechanisms",
    "GNMax": "pate.mechanisms",
    "InteractiveGNMax": "pate.mechanisms",
    "LNMax": "pate.mechanisms",
    "LabelSource": "pate.label_source",
    "Neighbour": "pate.mechanisms",
    "PateClassifier": "simulation.classifier",
    "PublishedStudent": "simulation.published",
    "SimulatedCampaign": "simulation.library",
    "load_student": "simulation.published",
    "simulate": "simulation.library",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module 'pate' has no attribute {name!r}")
    return getattr(importlib.import_module(_ROOMS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
