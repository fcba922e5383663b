"""Flat text of nested values: ledgers and messages have one name per field."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from pate.text_form import write

if TYPE_CHECKING:
    from pate.errors import PateError
    from pate.storage.hash_chain import Json

#: Maps a field of the text to the attribute of the inner value and its field there.
Places = Mapping[str, tuple[str, str]]


def write_flat(value: object, places: Places, omitted: Collection[str] = ()) -> dict[str, Json]:
    """Return the text of a frozen dataclass together with the fields of its inner values.

    A field of an inner value that is None is None, and one of ``omitted`` is left out.
    """
    text = write(value)
    inner = {place: text.pop(place) for place in {place for place, _ in places.values()}}
    for name, (place, field) in places.items():
        if name not in omitted or field in (inner[place] or ()):
            text[name] = None if inner[place] is None else inner[place][field]
    made: dict[str, Json] = text
    return made


def nested(
    text: Mapping[str, Json],
    places: Places,
    omitted: Collection[str] = (),
    *,
    error: type[PateError],
) -> dict[str, Any]:
    """Return a flat text as :func:`~pate.text_form.read` takes it.

    Args:
        text: as :func:`write_flat` wrote it.
        places: where its fields belong.
        omitted: fields of inner values that it may lack, being at their default.
        error: what to raise.

    Raises:
        PateError: of the kind ``error``, if a field of an inner value is missing.
    """
    if missing := sorted(places.keys() - text.keys() - set(omitted)):
        raise error(f"these fields are missing: {', '.join(missing)}")
    made: dict[str, Any] = {name: value for name, value in text.items() if name not in places}
    for name, (place, field) in places.items():
        if name in text:
            made.setdefault(place, {})[field] = text[name]
    return made
