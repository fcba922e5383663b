"""How one cell of a table is read: what stands for no value, and how a number is written.

Each cell is read by itself, by what is known before the file is opened: what its column holds, which
the campaign's signed schema says, and how the file writes it, which its owner says. How a file is
written is not the campaign's to choose: two campaigns that read the same file in two ways would show,
in the difference of their sums, which votes hang on the cells in question.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from pate.data.labels import parse_number, plain_category

if TYPE_CHECKING:
    from collections.abc import Collection

#: What stands before the decimals of a file's numbers.
Decimal: TypeAlias = Literal["point", "comma"]

#: What people and programs write where there is no number, apart from nothing and ``?``: folded.
NO_WORDS: Final = frozenset({"na", "n/a", "#n/a", "null", "-", "\N{EN DASH}", "."})
_WITH_COMMA: Final = re.compile(r"[+-]?(?:[0-9]+,[0-9]*|,[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)


@dataclass(frozen=True)
class Reading:
    """How a file writes its cells.

    Attributes:
        comma: whether a comma stands before decimals. A point is read as well; separators of
            thousands never are.
        missing: words that stand for no value in any column of this file, folded; 999 is 999.0 as well,
            which a program writes once another cell of the column is missing.
    """

    comma: bool = False
    missing: frozenset[str] = frozenset()

    @classmethod
    def of(cls, decimal: Decimal, missing: Collection[str] | None) -> Self:
        """Return what options say; ``missing`` as people write it."""
        comma = decimal == "comma"
        return cls(comma, frozenset(_folded(word.strip(), comma) for word in missing or ()))

    def is_missing(self, cell: str) -> bool:
        """Tell whether a cell of any column is one of the file's own words for no value, or empty."""
        return not cell or (bool(self.missing) and _folded(cell, self.comma) in self.missing)

    def number(self, cell: str) -> float | None:
        """Return the number that a cell writes, NaN where it says that there is none, else None.

        >>> Reading().number("12.5"), Reading().number("n/a"), Reading().number("12,5")
        (12.5, nan, None)
        >>> Reading(comma=True).number("12,5"), Reading(comma=True).number("1.234,5")
        (12.5, None)
        """
        if self.is_missing(cell) or cell.casefold() in NO_WORDS:
            return math.nan
        return parse_number(_with_point(cell) if self.comma else cell)


def _folded(cell: str, comma: bool) -> str:
    """Return the one text of a value, whatever type its column was written as."""
    return (plain_category(_with_point(cell) if comma else cell) or cell).casefold()


def _with_point(cell: str) -> str:
    return cell.replace(",", ".") if _WITH_COMMA.fullmatch(cell) else cell


#: A file of which nothing else is said: numbers with a point, no words of its own.
PLAIN: Final = Reading()
COMMAS: Final = Reading(comma=True)
