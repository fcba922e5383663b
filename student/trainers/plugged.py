"""Student trainers from other packages (plugins).

A package declares an entry point in the group ``federated_pate.students``. It refers to a
:class:`Plugin`: an object with three functions, possibly a module.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol, cast

from pate.errors import DataError, UsageError
from pate.runtime.plugins import STUDENTS, load_plugin, plugin_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from student.trainers.base import Effort, Lesson, Progress, Student

_FILE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\.[a-z0-9]{1,16}")
#: Files of a student's folder that a plugin must not write.
_OURS: Final = (
    "model.json", "privacy.json", "readme.md", "evaluation.json", "evaluation.png", "calibration.png",
)  # fmt: skip


class Plugin(Protocol):
    """The interface of an entry point."""

    def train(
        self,
        lesson: Lesson,
        *,
        seed: int,
        device: str,
        effort: Effort | None,
        progress: Progress,
    ) -> Student:
        """Return a student whose ``kind`` is the plugin's name.

        Args:
            lesson: what to learn from.
            seed: of every random choice.
            device: ``auto``, ``cpu`` or ``cuda``.
            effort: how long, None for what suits the inputs.
            progress: called as it goes.

        Raises:
            UsageError: for inputs that it does not take.
        """

    def store(self, student: Student) -> Mapping[str, bytes]:
        """Return the student as files, by name; never as a pickle."""

    def restore(self, files: Mapping[str, bytes], classes: tuple[str, ...], schema: str) -> Student:
        """Return the student that was stored.

        Raises:
            DataError: if the files are not one. They may come from anywhere.
        """


def is_plugged(kind: str) -> bool:
    """Return whether an installed package offers a trainer of that name."""
    return kind in plugin_names(STUDENTS)


def plugged(name: str) -> Plugin:
    """Return the plugin of that name.

    Raises:
        UsageError: if there is none, or it is not a trainer.
    """
    found = load_plugin(STUDENTS, name)
    for part in ("train", "store", "restore"):
        if not callable(getattr(found, part, None)):
            raise UsageError(f"plugin {name!r} has no function {part}()")
    return cast("Plugin", found)


def check_files(name: str, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return what a plugin's ``store`` returned if it may be written into a student's folder.

    Raises:
        DataError: otherwise.
    """
    for file, content in files.items():
        if not _FILE.fullmatch(file) or file in _OURS:
            raise DataError(f"plugin {name!r} stores a file called {file!r}: choose a plain name")
        if not isinstance(content, bytes):
            raise DataError(f"plugin {name!r} stores {type(content).__name__}, not bytes")
    return files
