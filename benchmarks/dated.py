"""Results as dated JSON files: one of each name and day, of which the newest counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from pate.errors import DataError

if TYPE_CHECKING:
    import re
    from collections.abc import Callable
    from pathlib import Path


class Dated(Protocol):
    """A result, and the file that it is stored in."""

    @property
    def name(self) -> str:
        """What it is of."""

    @property
    def date(self) -> str:
        """Its day, as in ISO 8601."""

    @property
    def file(self) -> str:
        """The name of its file."""

    def to_json(self) -> str:
        """Return what is stored."""


Kind = TypeVar("Kind", bound=Dated)


def write(result: Dated, folder: Path) -> Path:
    """Write a result; one of the same name and day is replaced. Return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / result.file
    path.write_text(result.to_json(), encoding="utf-8")
    return path


def latest(
    folder: Path, read: Callable[[str], Kind], *, named: re.Pattern[str], form: str
) -> dict[str, Kind]:
    """Return the newest result of each name in a folder.

    Args:
        folder: of the files.
        read: makes a result of a file's text.
        named: the form of files' names.
        form: the same for people.

    Raises:
        DataError: naming the invalid file.
    """
    found: dict[str, Kind] = {}
    for path in sorted(folder.glob("*.json")):
        if named.fullmatch(path.name) is None:
            raise DataError(f"{path.name} is not named {form}")
        try:
            result = read(path.read_text(encoding="utf-8"))
        except DataError as error:
            raise DataError(f"{path.name}: {error}") from error
        if result.file != path.name:
            raise DataError(f"{path.name} holds {result.name} of {result.date}")
        before = found.get(result.name)
        if before is None or before.date < result.date:
            found[result.name] = result
    return found
