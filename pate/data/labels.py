"""Names in cells: words for no value, canonical text per value, class order, and labels as indices.

A column of a file has one type, and a single cell can change it: one unknown makes text of truth values,
one missing number makes floats of whole ones. So a cell's name depends only on its value, not on its
type: true, 1, 1.0, "True" and "1" are equal.
"""

from __future__ import annotations

import math
import re
import unicodedata
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Final

from pate.errors import DataError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from pate.data.odd import Odd

#: Most characters of a class name.
LONGEST_CLASS: Final = 256
#: Most bytes of all class names together: each party's ledger has the class list of each campaign.
LONGEST_CLASS_LIST: Final = 65_536
#: Texts of truth values in a column that also has text, case-folded.
_TRUTHS: Final = {"true": "1", "false": "0"}
#: Words for no value in addition to an empty cell, case-folded: of numbers, categories, labels and groups.
_NOTHING: Final = frozenset({
    "?", ".", "-", "\N{EN DASH}", "\N{EM DASH}", "na", "n/a", "#n/a", "#na", "<na>", "null", "none", "nan",
    "+nan", "-nan", "nat",
})  # fmt: skip
#: What a cell of a column of a yes-or-no label says, case-folded, after :func:`plain_category`.
_YES_OR_NO: Final = {
    **dict.fromkeys(("1", "yes", "y", "true", "t"), True),
    **dict.fromkeys(("0", "no", "n", "false", "f"), False),
}
#: A date as written in a column of times.
_MIDNIGHT: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]00:00(?::00(?:\.0+)?)?", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*(?:[eE]\+?[0-9]+)?|[eE]\+[0-9]+)", re.ASCII)
#: Why a label that resembles no class is none.
NOT_LISTED: Final = "its label is not in the class list"
#: From here on, floats do not represent every whole number.
_EXACT: Final = 2**53


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
    if isinstance(value, Decimal):
        return "" if value.is_nan() else str(value)  # also a signalling one, or one with a number
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
    return unicodedata.normalize("NFC", text) if len(text) <= LONGEST_CLASS else text


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
    if len(name) > LONGEST_CLASS or not _FLOAT.fullmatch(name):
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
    if len(value) > LONGEST_CLASS:
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


def can_be_class(name: str) -> bool:
    """Return whether a label can name a class of a campaign: one line of text, not too long."""
    return 0 < len(name) <= LONGEST_CLASS and name.isprintable()


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names in class order: by value if all are numbers, else as people sort.

    >>> sorted_classes(["10", "9", "0"])
    ('0', '9', '10')
    >>> sorted_classes(["stage 10", "stage 2"])
    ('stage 2', 'stage 10')
    """
    distinct = set(names)
    numbers = {name: parse_number(name) for name in distinct}
    if all(number is not None and math.isfinite(number) for number in numbers.values()):
        return tuple(sorted(distinct, key=lambda name: (numbers[name], name)))
    return tuple(sorted(distinct, key=_natural))


def _natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    parts = re.findall(r"([0-9]+)|([^0-9]+)", name.casefold())
    # A number with more digits is larger; int() refuses thousands of digits.
    return [
        (1, 0, text) if text else (0, len(digits.lstrip("0")), digits.lstrip("0"))
        for digits, text in parts
    ], name


def look_alike(names: Collection[str]) -> list[list[str]]:
    """Return the names that differ from one another by case, spaces or punctuation only.

    >>> look_alike(["COVID-19", "covid 19", "<30", ">30", "1.5", "15"])
    [['COVID-19', 'covid 19']]
    """
    alike: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        alike.setdefault(_spelled_alike(name), []).append(name)
    return [some for some in alike.values() if len(some) > 1]


def yes_or_no(cell: str) -> bool | None:
    """Return what a cell says of a label, None if it says neither.

    >>> yes_or_no("1.0"), yes_or_no("No"), yes_or_no("maybe"), yes_or_no("")
    (True, False, None, None)
    """
    return _YES_OR_NO.get(plain_category(cell).casefold())


def not_classes(names: Iterable[str], classes: Sequence[str]) -> dict[str, str]:
    """Return why each of the names is no class, with the class that it equals but for its spelling.

    >>> not_classes(["Benign.", "other"], ["benign"])
    {'Benign.': "'Benign.' is not a class; 'benign' is", 'other': 'its label is not in the class list'}
    """
    alike = {_spelled_alike(name): name for name in reversed(classes)}
    found = {name: alike.get(_spelled_alike(name)) for name in names}
    return {
        name: NOT_LISTED if near is None else f"{name!r:.300} is not a class; {near!r} is"
        for name, near in found.items()
    }


def _spelled_alike(name: str) -> str:
    """Return a name without case, spaces and punctuation, which people write differently; a number as is."""
    if parse_number(name) is not None:
        return name
    kept = (sign for sign in name.casefold() if unicodedata.category(sign)[0] not in "PZ")
    return "".join(kept) or name


def encode_labels(
    names: Sequence[str],
    classes: Sequence[str] | None,
    *,
    path: Path,
    odd: Odd | None = None,
    place: Callable[[int], str] = lambda row: f"record {row + 1}",
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels as indices into the class list, and the list; without one, that of the occurring names.

    A name that is not in the list matches the class of the same value: the label 1 the class ``True``. With
    ``odd``, the index of an invalid label is -1.
    """
    if not names:
        raise DataError(f"{path} holds no records" + (f": {odd.none_left()}" if odd else ""))
    listed = () if classes is None else classes
    # A word for no value is a class only where the list says so.
    absent = set(filter(is_nothing, names)) - {*map(plain_name, listed), *listed}
    if absent and odd is None:
        row = next(row for row, name in enumerate(names) if name in absent)
        raise DataError(
            f"{path}: record {row + 1}: {_no_label(names[row])}; label it or take it out"
        )
    never: set[str] = set()
    if odd is not None and classes is None:
        never = {name for name in set(names) - absent if not can_be_class(name)}
    known = sorted_classes(set(names) - absent - never) if classes is None else tuple(classes)
    at = dict.fromkeys(absent | never, -1)
    at |= {plain: spot for spot, name in enumerate(known) if (plain := plain_name(name))}
    at |= {name: spot for spot, name in enumerate(known)}
    unknown = set(names) - at.keys()
    reasons = not_classes(unknown, known)
    if unknown and odd is None:
        near = [each for each in reasons.values() if each != NOT_LISTED][:1]
        raise SchemaError(
            f"{path} has labels that the class list has not: "
            f"{', '.join(map(repr, sorted_classes(unknown)[:5]))}; "
            + "; ".join([*near, f"the list is {', '.join(known)}"])
        )
    if odd is not None and (absent or never or unknown):
        for row, name in enumerate(names):
            if name in absent:
                odd.record(_no_label(name), place(row))
            elif name in never:
                odd.record("its label cannot be the name of a class", place(row))
            elif name in unknown:
                odd.record(reasons[name], place(row))
    import numpy as np  # not for the names of classes, which every command's options need

    return np.array([at.get(name, -1) for name in names], dtype=np.int64), known


def _no_label(name: str) -> str:
    if not name:
        return "it has no label"
    return f"its label is {name!r}, a word for no value: if it is a class, name it in --classes"
