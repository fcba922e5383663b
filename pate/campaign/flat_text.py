"""Flat text of nested values: ledgers and messages have one name per field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pate.text_form import write

if TYPE_CHECKING:
    from pate.errors import PateError
    from pate.storage.hash_chain import Json

#: Maps a field of the text to the attribute of the inner value and its field there.
Places = Mapping[str, tuple[str, str]]


def write_flat(value: object, places: Places) -> dict[str, Json]:
    """Return the text of a frozen dataclass together with the fields of its inner values.

    A field of an inner value that is None is None.
    """
    text = write(value)
    inner = {place: text.pop(place) for place in {place for place, _ in places.values()}}
    for name, (place, field) in places.items():
        text[name] = None if inner[place] is None else inner[place][field]
    made: dict[str, Json] = text
    return made


def nested(text: Mapping[str, Json], places: Places, *, error: type[PateError]) -> dict[str, Any]:
    """Return a flat text as :func:`~pate.text_form.read` takes it.

    Raises:
        PateError: of the kind ``error``, if a field of an inner value is missing.
    """
    if missing := sorted(places.keys() - text.keys()):
        raise error(f"these fields are missing: {', '.join(missing)}")
    made: dict[str, Any] = {name: value for name, value in text.items() if name not in places}
    for name, (place, field) in places.items():
        made.setdefault(place, {})[field] = text[name]
    return made
