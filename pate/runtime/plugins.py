"""Plugins of other installed packages, found by entry points.

A plugin runs with all rights of the command, so it is loaded only if its name is asked for.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from pate.errors import UsageError

#: Kinds of teachers, for `pate-party start --model NAME`.
TEACHERS: Final = "federated_pate.teachers"
#: Trainers of students, for `pate-student train --model NAME`.
STUDENTS: Final = "federated_pate.students"


def plugin_names(group: str) -> tuple[str, ...]:
    """Return the names that installed packages declare in a group, sorted; nothing is loaded."""
    return tuple(sorted({point.name for point in entry_points(group=group)}))


def load_plugin(group: str, name: str) -> object:
    """Return the object of the entry point with that name."""
    found = tuple(entry_points(group=group, name=name))
    packages = ", ".join(sorted(point.dist.name if point.dist else "?" for point in found))
    if not found:
        raise UsageError(f"no installed package offers {name!r} in the group {group}")
    if len(found) > 1:
        raise UsageError(
            f"{name!r} is offered by several packages ({packages}): remove all but one"
        )
    try:
        return found[0].load()
    except Exception as error:  # foreign code may fail in any way
        raise UsageError(f"{name!r} of {packages} cannot be loaded: {error!r}") from error
