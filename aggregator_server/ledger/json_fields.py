"""Typed reading of JSON objects from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pate.errors import AccountingError, LedgerError
from pate.exact import fraction_from_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from pate.storage.hash_chain import Json


class Fields:
    """The fields of one object, read with their types.

    Raises:
        LedgerError: if the names are not exactly ``names``, and from each reader for a value of
            another type.
    """

    def __init__(self, body: Json, names: str) -> None:
        if not isinstance(body, dict) or set(body) != set(names.split()):
            found = sorted(body) if isinstance(body, dict) else body
            raise LedgerError(f"expected the fields {names}, found {found}")
        self._body: Mapping[str, Json] = body

    def text(self, name: str) -> str:
        """Return a string."""
        value = self._body[name]
        if not isinstance(value, str):
            raise LedgerError(f"{name} is not text: {value!r}")
        return value

    def integer(self, name: str, least: int = 0) -> int:
        """Return an integer of at least ``least``."""
        value = self._body[name]
        # bool is an int in Python.
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise LedgerError(f"{name} is not an integer of at least {least}: {value!r}")
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean."""
        value = self._body[name]
        if not isinstance(value, bool):
            raise LedgerError(f"{name} is neither true nor false: {value!r}")
        return value

    def many(self, name: str) -> list[Json]:
        """Return a list."""
        value = self._body[name]
        if not isinstance(value, list):
            raise LedgerError(f"{name} is not a list: {value!r}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings."""
        values = tuple(v for v in self.many(name) if isinstance(v, str))
        if len(values) != len(self.many(name)):
            raise LedgerError(f"{name} has a value that is not text")
        return values

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of integers that are not negative."""
        values = tuple(
            v for v in self.many(name) if isinstance(v, int) and not isinstance(v, bool) and v >= 0
        )
        if len(values) != len(self.many(name)):
            raise LedgerError(f"{name} has a value that is not the number of a query")
        return values

    def object(self, name: str) -> dict[str, Json]:
        """Return an object."""
        value = self._body[name]
        if not isinstance(value, dict):
            raise LedgerError(f"{name} is not an object: {value!r}")
        return value

    def fraction(self, name: str) -> Fraction:
        """Return an exact number, written as ``p/q`` in lowest terms."""
        try:
            return fraction_from_text(self.text(name))
        except AccountingError as error:
            raise LedgerError(f"{name}: {error}") from error
