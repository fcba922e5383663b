"""Secrets, in every form in which they could be printed or stored, and the search for them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: A decimal fraction, and nothing that is part of a version, a time or a name.
_FRACTION = re.compile(rb"(?<![\w.:])-?(\d+)\.(\d+)(?:[eE]([-+]?\d+))?(?![\w:]|\.\d)")
#: What a system says of a process has any digits.
_OF_PROCESS = re.compile(rb"^process_.*$", re.MULTILINE)
_BETWEEN = rb"[\s,;|\[\]()\"']{1,8}"
#: A row of counts of which no more are above 0 may be anything.
_TELLING = 3
#: Fewer digits of a fraction are anything.
_DIGITS = 5


@dataclass(frozen=True)
class Secret:
    """Something that only its owner may have."""

    what: str  # in words, for the failure
    owner: str  # who may have it in its home: ``server``, or a party
    is_in: Callable[[bytes], bool]  # tells whether some bytes hold it, in any form


def number(what: str, owner: str, value: int) -> Secret:
    """Return a number that stands for itself, such as 104729, 104,729, 104729.0 or 1.04729e+05."""
    digits = str(value)
    grouped = f"{value:,}"
    power = f"{digits[0]}.{digits[1:].rstrip('0')}[eE][+]?0?{len(digits) - 1}"
    forms = "|".join([digits, grouped, grouped.replace(",", "[ _']"), power])
    return Secret(what, owner, _matches(rf"(?<![\w.])(?:{forms})(?:\.0+)?(?!\w|\.\d)".encode()))


def rows(what: str, owner: str, counts: NDArray[np.int64]) -> Secret:
    """Return rows of counts, each with little between its numbers; only those that tell enough."""
    telling = [one for one in counts.tolist() if np.count_nonzero(one) > _TELLING]
    assert telling, "no row has enough counts to be told from others"
    forms = [_BETWEEN.join(b"%d(?:\\.0+)?" % count for count in one) for one in telling]
    pattern = rb"(?<![\w.])(?:" + b"|".join(forms) + rb")(?!\w|\.\d)"
    return Secret(what, owner, _matches(pattern))


def matrix(what: str, owner: str, counts: NDArray[np.int64]) -> Secret:
    """Return a matrix of counts as bytes, of any width, in either order."""
    forms = [
        np.ascontiguousarray(one).astype(kind).tobytes()
        for one in (counts, counts.T)
        for kind in ("u1", "<u2", ">u2", "<u4", ">u4", "<u8", ">u8", "<f4", "<f8")
    ]
    return Secret(what, owner, _holds(forms))


def text(what: str, owner: str, value: str) -> Secret:
    """Return words, or a token."""
    return Secret(what, owner, _holds([value.encode()]))


def key(what: str, owner: str, value: bytes) -> Secret:
    """Return a key: raw, hexadecimal, base64, as Python prints bytes, or as a list of numbers."""
    plain = base64.b64encode(value).rstrip(b"=")
    # All but the last character, which holds what would follow if it were part of something longer.
    forms = [value, value.hex().encode(), value.hex().upper().encode(), plain[:-1]]
    forms += [plain[:-1].replace(b"+", b"-").replace(b"/", b"_"), repr(value)[2:-1].encode()]
    forms += [b", ".join(b"%d" % byte for byte in value), b",".join(b"%d" % byte for byte in value)]
    return Secret(what, owner, _holds(forms))


def figures(what: str, owner: str, values: Iterable[float]) -> Secret:
    """Return figures, also rounded, to five digits or more."""
    sought = [float(value) for value in values]

    def is_in(said: bytes) -> bool:
        return any(abs(one - value) <= by for one, by in _fractions(said) for value in sought)

    return Secret(what, owner, is_in)


def found(secrets: Iterable[Secret], places: dict[str, bytes]) -> list[str]:
    """Return what is where it must not be."""
    return [
        f"{secret.what} is in {place}"
        for secret in secrets
        for place, said in places.items()
        if secret.is_in(said)
    ]


def files_of(home: Path, name: str) -> dict[str, bytes]:
    """Return the files in a home, and their names."""
    held = {path.relative_to(home): path for path in sorted(home.rglob("*")) if path.is_file()}
    names = "\n".join(map(str, held)).encode()
    return {
        f"{name}'s file names": names,
        **{f"{name}'s {relative}": path.read_bytes() for relative, path in held.items()},
    }


def _matches(pattern: bytes) -> Callable[[bytes], bool]:
    compiled = re.compile(pattern)
    return lambda said: compiled.search(said) is not None


def _holds(forms: Sequence[bytes]) -> Callable[[bytes], bool]:
    assert all(len(form) >= 12 for form in forms), "so short a secret is found by accident"
    return lambda said: any(form in said for form in forms)


@cache
def _fractions(said: bytes) -> frozenset[tuple[float, float]]:
    """Return every fraction of five digits or more, and half a unit of its last digit."""
    held = set()
    for match in _FRACTION.finditer(_OF_PROCESS.sub(b"", said)):
        whole, part, power = match[1], match[2], int(match[3] or 0)
        if len((whole + part).lstrip(b"0")) >= _DIGITS:
            held.add((float(match[0]), 0.5000001 * 10.0 ** (power - len(part))))
    return frozenset(held)
