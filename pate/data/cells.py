"""Reading one cell of a table: its owner's words for no value, and number formats.

Each cell is read by itself, by facts known before the file is opened: the kind of its column, from the
campaign's signed schema, and the file's format, from its owner. A campaign may not choose the format:
the difference of the sums of two campaigns that read one file in two ways would reveal which votes
depend on the affected cells. Words for no value of all files are in :mod:`pate.data.labels`.

A separator is judged by its place. A cell that could be thousands as well as decimals is no number until
the owner says which.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from pate.data.labels import is_nothing, parse_number, plain_category, plain_identity
from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

#: Decimal separators.
Decimal: TypeAlias = Literal["point", "comma"]
#: Separators of thousands. None of this type: the owner has not said; then points and commas that could be
#: either are neither.
Thousands: TypeAlias = Literal["none", "point", "comma", "space", "apostrophe"]

_SIGNS: Final[dict[Thousands, str]] = {
    "point": r"\.", "comma": ",", "space": "[ \N{NO-BREAK SPACE}\N{THIN SPACE}\N{NARROW NO-BREAK SPACE}]",
    "apostrophe": "['\N{RIGHT SINGLE QUOTATION MARK}]",
}  # fmt: skip
#: Numbers in groups of three digits, by what is between the groups and whether decimals have a comma.
_GROUPS: Final = {
    (name, comma): re.compile(
        rf"[+-]?[1-9][0-9]{{0,2}}(?:{sign}[0-9]{{3}})+(?:{',' if comma else r'[.]'}[0-9]*)?",
        re.ASCII,
    )
    for name, sign in _SIGNS.items()
    for comma in (False, True)
    if name != ("comma" if comma else "point")
}
_WITH_COMMA: Final = re.compile(r"[+-]?(?:[0-9]+,[0-9]*|,[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
#: Cells of a file with decimal commas that could be thousands.
_EITHER: Final = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3}|(?:\.[0-9]{3})+)", re.ASCII)
#: Why a cell is no number that is one in some format.
SEPARATED: Final = (
    "has a separator of decimals or thousands: say which with --decimal and --thousands"
)


@dataclass(frozen=True)
class Reading:
    """The format of a file's cells."""

    # whether the decimal separator is a comma. A point is accepted as well where it cannot be of
    # thousands.
    comma: bool = False
    # missing-value words in any column of this file, case-folded; 999 includes 999.0, which programs
    # write if another cell of the column is missing
    missing: frozenset[str] = frozenset()
    # what separates groups of three digits, None if the owner has not said
    thousands: Thousands | None = None

    @classmethod
    def of(
        cls, decimal: Decimal, missing: Collection[str] | None, thousands: Thousands | None = None
    ) -> Self:
        """Return the reading that options state; ``missing`` as typed."""
        if thousands == decimal:
            other = "comma" if decimal == "point" else "point"
            raise UsageError(
                f"--thousands {thousands} goes with --decimal {other}: one sign is not both"
            )
        plain = cls(decimal == "comma", frozenset(), thousands)
        words = frozenset(plain._folded(word.strip()) for word in missing or ())
        return cls(plain.comma, words, thousands)

    @property
    def of_arrays(self) -> Self:
        """This reading for numbers that a file has as such: its words for no value, and no separators."""
        return type(self)(missing=self.missing)

    def is_missing(self, cell: str) -> bool:
        """Return whether a cell of any column is empty or one of the file's own missing-value words."""
        return not cell or (bool(self.missing) and self._folded(cell) in self.missing)

    def is_nothing(self, cell: str) -> bool:
        """Return whether a cell of any column has no value, by the file's own words or by usual ones."""
        return is_nothing(cell) or self.is_missing(cell)

    def number(self, cell: str) -> float | None:
        """Return the number in a cell, NaN for a word for no value, None if it is not a number.

        >>> Reading().number("12.5"), Reading().number("n/a"), Reading().number("12,5")
        (12.5, nan, None)
        >>> Reading(comma=True).number("12,5"), Reading(comma=True).number("1.234,5")
        (12.5, None)
        >>> Reading(thousands="comma").number("1,250.5"), Reading(comma=True).number("1,250")
        (1250.5, None)
        """
        if self.is_nothing(cell):
            return math.nan
        text = self._with_point(cell)
        return None if text is None else parse_number(text)

    def why_not(self, cell: str) -> str:
        """Return why a cell is no finite number, without its content."""
        if self.number(cell) is not None:
            return "is no finite number"
        return SEPARATED if may_be_number(cell) else "is no number"

    def identities(self, cells: Iterable[str], *, labels: bool) -> dict[str, str]:
        """Return the names of labels or groups by their cells, "" for none.

        With ``labels`` a usual word for no value stays: a class list may name it.
        """
        nothing = self.is_missing if labels else self.is_nothing
        return {
            cell: "" if nothing(cell) else plain_identity(cell) for cell in dict.fromkeys(cells)
        }

    def _folded(self, cell: str) -> str:
        """Return the canonical text of a value, independent of its column's type."""
        return (plain_category(self._with_point(cell) or cell) or cell).casefold()

    def _with_point(self, cell: str) -> str | None:
        """Return a number with a decimal point only, other text as it is; None if it could be two numbers."""
        groups = _GROUPS.get((self.thousands, self.comma)) if self.thousands else None
        if groups is not None and self.thousands is not None and groups.fullmatch(cell):
            return re.sub(_SIGNS[self.thousands], "", cell).replace(",", ".")
        if not self.comma:
            return cell
        if self.thousands == "point" and "." in cell:
            return None
        if self.thousands is None and _EITHER.fullmatch(cell):
            return None
        return cell.replace(",", ".") if _WITH_COMMA.fullmatch(cell) else cell


#: The default format: numbers with a point, no missing-value words of its own.
PLAIN: Final = Reading()
_FORMATS: Final = (
    PLAIN,
    *(Reading(comma, frozenset(), name) for name, comma in _GROUPS),
    Reading(comma=True, thousands="none"),
)
_OF_POINTS: Final = Reading(comma=True, thousands="point")


def may_be_number(cell: str) -> bool:
    """Return whether a cell is a number, or no value, in some format.

    >>> [may_be_number(cell) for cell in ("1.234,5", "1'250", "1,25", "12,34,56", "a")]
    [True, True, True, False, False]
    """
    return any(reading.number(cell) is not None for reading in _FORMATS)


def may_be_thousands(cells: Collection[str]) -> frozenset[str]:
    """Return the cells of a column that are read as decimals, if all of its points could be of thousands.

    >>> sorted(may_be_thousands({"850", "1.234", "1.234.567"})), sorted(may_be_thousands({"1.234", "0.5"}))
    (['1.234'], [])
    """
    pointed = [cell for cell in cells if "." in cell]
    if any(_OF_POINTS.number(cell) is None for cell in pointed):
        return frozenset()
    return frozenset(cell for cell in pointed if math.isfinite(PLAIN.number(cell) or math.nan))
