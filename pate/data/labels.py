"""Labels: which texts can be classes, their order, and labels as indices of classes."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TYPE_CHECKING, Final

from pate.data.cells import LONGEST_NAME, is_nothing, parse_number, plain_category, plain_name
from pate.errors import DataError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from pate.data.odd import Odd

#: Most bytes of all class names together: each party's ledger has the class list of each campaign.
LONGEST_CLASS_LIST: Final = 65_536
#: What a cell of a column of a yes-or-no label says, case-folded, after :func:`plain_category`.
_YES_OR_NO: Final = {
    **dict.fromkeys(("1", "yes", "y", "true", "t"), True),
    **dict.fromkeys(("0", "no", "n", "false", "f"), False),
}
#: Why a label that resembles no class is none.
NOT_LISTED: Final = "its label is not in the class list"


def can_be_class(name: str) -> bool:
    """Return whether a label can name a class of a campaign: one line of text, not too long."""
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()


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
        why = "" if odd is None else odd.none_left()
        raise DataError(f"{path} holds no records{': ' if why else ''}{why}")
    listed = () if classes is None else classes
    # A word for no value is a class only where the list says so.
    absent = set(filter(is_nothing, names)) - {*map(plain_name, listed), *listed}
    if absent and odd is None:
        row = next(row for row, name in enumerate(names) if name in absent)
        raise DataError(f"{path}: {place(row)}: {_no_label(names[row])}; label it or take it out")
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
                if reasons[name] == NOT_LISTED:
                    odd.not_listed[name] += 1
    import numpy as np  # not for the names of classes, which every command's options need

    return np.array([at.get(name, -1) for name in names], dtype=np.int64), known


def _no_label(name: str) -> str:
    if not name:
        return "it has no label"
    return f"its label is {name!r}, a word for no value: if it is a class, name it in --classes"
