"""Frozen values of whole numbers and fractions, as exact text and back: what ledgers and terms hold.

One value has one text, so that texts can be hashed. A reader takes exactly the fields of the value
that the text names, each as it was written.
"""

from __future__ import annotations

import re
from dataclasses import fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from pate.errors import AccountingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FRACTION = re.compile(r"(0|[1-9][0-9]{0,99})(/[1-9][0-9]{0,99})?", re.ASCII)


class _Named(Protocol):
    tag: ClassVar[str]
    name: ClassVar[str]


_T = TypeVar("_T", bound=_Named)


class TextForm:
    """A frozen dataclass, all fields of which are ``int`` or ``Fraction``.

    Attributes:
        tag: what such a value is called in its text: ``event`` or ``mechanism``.
        name: of its kind, among those with the same tag.
    """

    tag: ClassVar[str]
    name: ClassVar[str]

    def to_dict(self) -> dict[str, str | int]:
        """Return the exact text form, of :func:`read`: whole numbers as they are, fractions as text."""
        made: dict[str, str | int] = {self.tag: self.name}
        for field in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, field.name)
            made[field.name] = str(value) if isinstance(value, Fraction) else value
        return made


def read(kinds: Iterable[type[_T]], text: Mapping[str, str | int]) -> _T:
    """Return the value that :meth:`TextForm.to_dict` wrote.

    Args:
        kinds: of one tag, that it may be of.
        text: the fields.

    Raises:
        AccountingError: for an unknown kind, missing or additional fields, or another type of number.
        UsageError: for numbers that the kind refuses.
    """
    known = {kind.name: kind for kind in kinds}
    tag = next(iter(known.values())).tag
    name = text.get(tag)
    kind = known.get(name) if isinstance(name, str) else None
    if kind is None:
        raise AccountingError(f"unknown {tag} {name!r}: choose among {', '.join(sorted(known))}")
    # As they are written: modules import Fraction for their annotations alone.
    types = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    if set(text) != {tag, *types}:
        raise AccountingError(
            f"a {tag} {name!r} has the fields {sorted({tag, *types})}, got {sorted(text)}"
        )
    values: dict[str, Any] = {}
    for key, type_ in types.items():
        value = text[key]
        if type_ == "Fraction":
            values[key] = fraction_from_text(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            values[key] = value
        else:
            raise AccountingError(f"a {tag} {name!r}: {key} must be a whole number, got {value!r}")
    return kind(**values)


def fraction_from_text(text: str | int) -> Fraction:
    """Return the fraction that ``str(Fraction)`` wrote, in lowest terms and of sane length.

    Raises:
        AccountingError: for any other text.
    """
    if isinstance(text, str) and _FRACTION.fullmatch(text):
        value = Fraction(text)
        if str(value) == text:
            return value
    raise AccountingError(f"not a fraction in lowest terms: {str(text)[:60]!r}")
