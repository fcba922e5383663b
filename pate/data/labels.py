"""Class names: what a label is called, in which order classes come, and labels as indices."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from pate.errors import DataError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


def parse_number(text: str) -> float | None:
    """Return the number that ``text`` writes, or None.

    NaN and infinity count as numbers here; what to do about them is the caller's.
    """
    if "_" in text:  # Python reads 1_000 as a number; no data file means it so
        return None
    try:
        return float(text)
    except ValueError:
        return None


def plain_names(values: Sequence[str]) -> list[str]:
    """Return the names of labels or groups: one text for one number, other text as it is.

    Each name depends on its own cell alone. Were it otherwise, one patient's odd identifier could
    rename all others, and so deal them to other teachers.

    >>> plain_names(["0.0", "10.0", "3", "007", "benign"])
    ['0', '10', '3', '7', 'benign']
    """
    plain = {value: _plain_name(value) for value in set(values)}
    return [plain[value] for value in values]


def _plain_name(value: str) -> str:
    if re.fullmatch(r"[+-]?[0-9]+", value):
        return str(int(value))  # exact, however long an identifier is
    number = parse_number(value)
    if number is None or not math.isfinite(number) or abs(number) >= 2**53:
        return value
    return str(int(number)) if number.is_integer() else f"{number:.15g}"


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
    # A longer number is a larger one; int() would refuse to read one of thousands of digits.
    return [
        (1, 0, text) if text else (0, len(digits.lstrip("0")), digits.lstrip("0"))
        for digits, text in parts
    ], name


def encode_labels(
    names: Sequence[str], classes: Sequence[str] | None, *, path: Path
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels as indices into the class list, and the list.

    Args:
        names: one class name per record.
        classes: the campaign's class list, or None to take the names that occur.
        path: where the names come from, for messages.

    Raises:
        DataError: if there are no records, or a label is missing.
        SchemaError: if a label is not in ``classes``.
    """
    if not names:
        raise DataError(f"{path} holds no records")
    for row, name in enumerate(names):
        if name in {"", "?"} or name.casefold() == "nan":
            raise DataError(f"{path}: record {row + 1} has no label; label it or take it out")
    known = sorted_classes(names) if classes is None else tuple(classes)
    place = {name: at for at, name in enumerate(known)}
    unknown = sorted_classes(name for name in set(names) if name not in place)
    if unknown:
        raise SchemaError(
            f"{path} has labels that the class list has not: {', '.join(map(repr, unknown[:5]))}; "
            f"the list is {', '.join(known)}"
        )
    return np.array([place[name] for name in names], dtype=np.int64), known
