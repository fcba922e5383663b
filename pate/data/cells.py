"""Reading one cell of a table: missing-value words and number formats.

Each cell is read by itself, by facts known before the file is opened: the kind of its column, from the
campaign's signed schema, and the file's format, from its owner. A campaign may not choose the format:
the difference of the sums of two campaigns that read one file in two ways would reveal which votes
depend on the affected cells.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from pate.data.labels import parse_number, plain_category

if TYPE_CHECKING:
    from collections.abc import Collection

#: Decimal separators.
Decimal: TypeAlias = Literal["point", "comma"]

#: Words for a missing number, in addition to an empty cell and ``?``, case-folded.
NO_WORDS: Final = frozenset({"na", "n/a", "#n/a", "null", "-", "\N{EN DASH}", "."})
_WITH_COMMA: Final = re.compile(r"[+-]?(?:[0-9]+,[0-9]*|,[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)


@dataclass(frozen=True)
class Reading:
    """The format of a file's cells.

    Attributes:
        comma: whether the decimal separator is a comma. A point is accepted as well; thousands
            separators never are.
        missing: missing-value words in any column of this file, case-folded; 999 includes 999.0, which
            programs write if another cell of the column is missing.
    """

    comma: bool = False
    missing: frozenset[str] = frozenset()

    @classmethod
    def of(cls, decimal: Decimal, missing: Collection[str] | None) -> Self:
        """Return the reading that options state; ``missing`` as typed."""
        comma = decimal == "comma"
        return cls(comma, frozenset(_folded(word.strip(), comma) for word in missing or ()))

    def is_missing(self, cell: str) -> bool:
        """Return whether a cell of any column is empty or one of the file's own missing-value words."""
        return not cell or (bool(self.missing) and _folded(cell, self.comma) in self.missing)

    def number(self, cell: str) -> float | None:
        """Return the number in a cell, NaN for a missing-value word, None if it is not a number.

        >>> Reading().number("12.5"), Reading().number("n/a"), Reading().number("12,5")
        (12.5, nan, None)
        >>> Reading(comma=True).number("12,5"), Reading(comma=True).number("1.234,5")
        (12.5, None)
        """
        if self.is_missing(cell) or cell.casefold() in NO_WORDS:
            return math.nan
        return parse_number(_with_point(cell) if self.comma else cell)


def _folded(cell: str, comma: bool) -> str:
    """Return the canonical text of a value, independent of its column's type."""
    return (plain_category(_with_point(cell) if comma else cell) or cell).casefold()


def _with_point(cell: str) -> str:
    return cell.replace(",", ".") if _WITH_COMMA.fullmatch(cell) else cell


#: The default format: numbers with a point, no missing-value words of its own.
PLAIN: Final = Reading()
COMMAS: Final = Reading(comma=True)
