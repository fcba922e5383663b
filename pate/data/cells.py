"""What a cell of a table says: words for no value, canonical text of its value, number formats.

Each cell is read by itself, by facts known before the file is opened: the kind of its column, from the
campaign's signed schema, and the file's format, from its owner. A campaign may not choose the format:
the difference of the sums of two campaigns that read one file in two ways would reveal which votes
depend on the affected cells.

A column of a file has one type, and a single cell can change it: one unknown makes text of truth values,
one missing number makes floats of whole ones. So a cell's name depends only on its value, not on its
type: true, 1, 1.0, "True" and "1" are equal.

A separator is judged by its place. A cell that could be thousands as well as decimals is no number until
the owner says which.
"""

from __future__ import annotations

import decimal
import math
import re
import unicodedata
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import numpy as np

#: Decimal separators.
Decimal: TypeAlias = Literal["point", "comma"]
#: Separators of thousands. None of this type: the owner has not said; then points and commas that could be
#: either are neither.
Thousands: TypeAlias = Literal["none", "point", "comma", "space", "apostrophe"]

#: Most characters of the name of a class, group or column.
LONGEST_NAME: Final = 256
#: Texts of truth values in a column that also has text, case-folded.
_TRUTHS: Final = {"true": "1", "false": "0"}
#: Words for no value in addition to an empty cell, case-folded: of numbers, categories, labels and groups.
_NOTHING: Final = frozenset({
    "?", ".", "-", "\N{EN DASH}", "\N{EM DASH}", "na", "n/a", "#n/a", "#na", "<na>", "null", "none", "nan",
    "+nan", "-nan", "nat",
})  # fmt: skip
#: A date as written in a column of times.
_MIDNIGHT: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]00:00(?::00(?:\.0+)?)?", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*(?:[eE]\+?[0-9]+)?|[eE]\+[0-9]+)", re.ASCII)
#: From here on, floats do not represent every whole number.
_EXACT: Final = 2**53
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
SEPARATOR: Final = "has a separator of decimals or thousands"
SEPARATED: Final = f"{SEPARATOR}: say which with --decimal and --thousands"


def parse_number(text: str) -> float | None:
    """Return the number in ``text``, NaN and infinity too, or None."""
    if "_" in text:  # Python parses 1_000 as a number; data files do not use underscores so
        return None
    try:
        return float(text)
    except ValueError:
        return None


def float_text(number: float | np.floating) -> str:
    """Return a number's text, "" for NaN; of a whole number without a point, as in a column of integers.

    It is the shortest that reads back as the same number of its type.

    >>> import numpy as np
    >>> float_text(np.float32(0.1)), float_text(7.0), float_text(1e16)
    ('0.1', '7', '1e+16')
    """
    value = float(str(number))
    if math.isnan(value):
        return ""
    return str(int(value)) if abs(value) < _EXACT and value.is_integer() else repr(value)


def cell_text(value: object) -> str | None:
    """Return a value as a CSV file of the same table has it, "" for none; None if it is no cell's value.

    >>> cell_text(True), cell_text(2.0), cell_text(None), cell_text([1])
    ('1', '2', '', None)
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(value, str):
        return value
    if type(value).__name__ in ("bool", "bool_") or isinstance(value, Integral):
        return str(int(value))  # type: ignore[call-overload] # of numpy as well, which is not imported
    if isinstance(value, float) or (isinstance(value, Real) and hasattr(value, "dtype")):
        return float_text(value)  # type: ignore[arg-type] # as above
    if isinstance(value, decimal.Decimal):
        text = "" if value.is_nan() else str(value)  # also a signalling one, or one with a number
        # A column has as many decimals as its longest cell.
        return text.rstrip("0").rstrip(".") if "." in text and "E" not in text else text
    return str(value) if hasattr(value, "isoformat") else None


def plain_truth(cell: str) -> str:
    """Return 1 or 0 for the text of a truth value, other text as it is.

    >>> plain_truth("True"), plain_truth("FALSE"), plain_truth("yes")
    ('1', '0', 'yes')
    """
    return _TRUTHS.get(cell.casefold(), cell) if len(cell) <= len("false") else cell


def is_nothing(cell: str) -> bool:
    """Return whether a cell is empty, or a word that people and programs write for no value.

    >>> is_nothing("N/A"), is_nothing("?"), is_nothing("no")
    (True, True, False)
    """
    return not cell or cell.casefold() in _NOTHING


def clean_name(text: str) -> str:
    """Return the name of a column, class or group, or a cell, as all readers take it.

    It has no spaces around it, and its letters are composed unless it is longer than a class may be: an
    accent is no character of its own, whichever system the name was typed on.

    >>> clean_name(" Gru\N{COMBINING DIAERESIS}n ") == "Gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n"
    True
    """
    text = text.strip()
    # Accents are put in order one by one: among 100,000 of them that takes half a minute.
    return unicodedata.normalize("NFC", text) if len(text) <= LONGEST_NAME else text


def plain_categories(cells: Iterable[str]) -> dict[str, str]:
    """Return the canonical text of each cell's value, "" for a word for no value.

    >>> plain_categories(["True", "7.0", "7", "x", "NaN", "2020-01-01 00:00:00"])
    {'True': '1', '7.0': '7', '7': '7', 'x': 'x', 'NaN': '', '2020-01-01 00:00:00': '2020-01-01'}
    """
    return {cell: plain_category(cell) for cell in dict.fromkeys(cells)}


def plain_category(cell: str) -> str:
    """Return the canonical text of a cell's value, "" for a word for no value."""
    return "" if is_nothing(cell) else plain_name(cell)


def plain_name(cell: str) -> str:
    """Return the canonical text of a label's value, whichever container it is from.

    >>> plain_name(" 01"), plain_name("True"), plain_name("NA")
    ('1', '1', 'NA')
    """
    return _plain_name(plain_truth(_plain_day(clean_name(cell))))


def plain_identity(cell: str) -> str:
    """Return :func:`plain_name` of a label or group, "" for a large number that may lack digits.

    A float from 2^53 on may be any of several whole numbers, so it is no identifier: two patients may
    have become one. Text that no program writes for a float, such as 12e45, is an ordinary name.

    >>> [plain_identity(cell) for cell in ("7.0", "10000000000000001", "1e+16", "12e45")]
    ['7', '10000000000000001', '', '12e45']
    """
    name = plain_name(cell)
    return "" if _may_lack_digits(name) else name


def _plain_day(cell: str) -> str:
    day = _MIDNIGHT.fullmatch(cell)
    return cell if day is None else day[1]


def _may_lack_digits(name: str) -> bool:
    if len(name) > LONGEST_NAME or not _FLOAT.fullmatch(name):
        return False
    return _EXACT <= abs(float(name)) < math.inf


def plain_names(values: Sequence[str]) -> list[str]:
    """Return the names of labels or groups: canonical text for numbers, other text unchanged.

    Each name depends only on its own cell. Otherwise one patient's unusual identifier could rename all
    others, and so assign them to other teachers.

    >>> plain_names(["0.0", "10.0", "3", "007", "benign"])
    ['0', '10', '3', '7', 'benign']
    """
    plain = {value: _plain_name(value) for value in set(values)}
    return [plain[value] for value in values]


def _plain_name(value: str) -> str:
    if len(value) > LONGEST_NAME:
        return value
    if _WHOLE.fullmatch(value):
        return str(int(value))  # exact, however long an identifier is
    number = parse_number(value)
    if number is None or not math.isfinite(number) or abs(number) >= _EXACT:
        return value
    if number.is_integer():
        return str(int(number))
    import numpy as np  # not for the names of classes, which every command's options need

    # 0.1 of 32 bits has the same name if one record made 64 of them.
    short = np.float32(number)
    return f"{float(str(short)) if short == number else number:.15g}"


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
