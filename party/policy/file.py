"""Reading ``policy.toml``: every key is known, every value has its type, errors name file and key."""

from __future__ import annotations

import difflib
import re
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, cast

from party.policy.hours import WEEKDAYS, Hours
from party.policy.policy import POLICY_FILE, Allowed, Policy
from pate.campaign.offer import KEY_BYTES
from pate.errors import DataError, UsageError
from pate.foreign import shown, toml_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: The value that removes a bound of the defaults.
NONE: Final = "none"
_LARGEST_FILE: Final = 2**20
#: Whole numbers have 64 bits, as in TOML; Python would read far longer ones.
_LARGEST_WHOLE: Final = 2**63 - 1
_MOST_DIGITS: Final = 100
_LONGEST_KEY: Final = 60


def policy_of(home: Path, *, loopback: bool, file: Path | None = None) -> Policy:
    """Return the policy of a party: from its file, or the default.

    ``loopback``: whether this is a trial on one machine; ``file``: a named policy, which must
    exist; None: that of the home, if there is one.
    """
    if file is None and not (home / POLICY_FILE).exists():
        return Policy.default(loopback=loopback)
    return read_policy(file or home / POLICY_FILE, loopback=loopback)


def source_of(home: Path, file: Path | None) -> str:
    """Return where :func:`policy_of` finds the policy, in words; arguments as there."""
    path = file or home / POLICY_FILE
    return str(path) if path.exists() else "the default one"


def read_policy(path: Path, *, loopback: bool) -> Policy:
    """Return the policy in a file. Missing keys have their defaults."""
    try:
        with path.open("rb") as file:
            body = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise DataError(f"cannot read the policy {path}: {error.strerror}") from error
    if len(body) > _LARGEST_FILE:
        raise DataError(f"{path} is too large for a policy")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text: {error}") from error
    return parse_policy(text, source=str(path), loopback=loopback)


def parse_policy(text: str, *, source: str, loopback: bool) -> Policy:
    """Return the policy in ``text``; ``source`` names it in errors."""
    try:
        table = toml_table(text, parse_float=Decimal)
    except ValueError as error:
        raise DataError(f"{source} is not valid TOML: {error!s:.200}") from error
    _only_known(table, tuple(_READERS), source)
    values: dict[str, Any] = {}
    for key, given in table.items():
        try:
            values[key] = _READERS[key](given)
        except UsageError as error:
            raise UsageError(f"{source}: {key}: {error}") from error
    if {"hours", "weekdays"} & values.keys():
        span, days = values.pop("hours", "00:00-24:00"), values.pop("weekdays", WEEKDAYS)
        values["hours"] = Hours.parse(span, days)
    held = Policy.default(loopback=loopback)
    try:
        return Policy(**({name: getattr(held, name) for name in _FIELDS} | values))
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error


def _only_known(table: dict[str, Any], known: tuple[str, ...], source: str) -> None:
    for key in table:
        if key not in known:
            short = key[:_LONGEST_KEY]
            near = difflib.get_close_matches(short, known, n=1, cutoff=0.0)
            raise UsageError(f"{source}: unknown key {short!r}; did you mean {near[0]!r}?")


def _bound(read: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: None if value == NONE else read(value)


def _whole(value: object) -> int:
    if type(value) is not int:
        raise UsageError(f"a whole number or {NONE!r} is wanted, got {shown(value)}")
    if abs(value) > _LARGEST_WHOLE:
        raise UsageError(f"a whole number below 2^63 is wanted, got {shown(value)}")
    return value


def _exact(value: object) -> Fraction:
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() in range(-300, 300):
        if len(value.as_tuple().digits) > _MOST_DIGITS:
            raise UsageError(f"a number of at most {_MOST_DIGITS} digits is wanted")
        return Fraction(value)
    if type(value) is int and abs(value) <= _LARGEST_WHOLE:
        return Fraction(value)
    sane = " of sane size" if type(value) is int else ""
    raise UsageError(f"a number is wanted{sane}, got {shown(value)}")


def _float(value: object) -> float:
    return float(_exact(value))


def _word(value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"a text is wanted, got {shown(value)}")
    return value


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UsageError(f"a list of texts is wanted, got {shown(value)}")
    return tuple(value)


def _span(value: object) -> str:
    span = _word(value)
    if len(span) > _LONGEST_KEY:
        raise UsageError(f"hours are written as 08:00-18:00, got {shown(span)}")
    Hours.parse(span)
    return span


def _days(value: object) -> tuple[str, ...]:
    days = _words(value)
    Hours.parse(weekdays=days)
    return days


def _campaigns(value: object) -> str | tuple[Allowed, ...]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise UsageError(f"a word, or a list of {{ key = … }} is wanted, got {shown(value)}")
    return tuple(map(_allowed, cast("list[dict[str, Any]]", value)))


def _allowed(entry: dict[str, Any]) -> Allowed:
    _only_known(entry, ("key", "id"), "an entry")
    key, name = entry.get("key"), entry.get("id")
    if not isinstance(key, str) or not re.fullmatch(f"[0-9a-f]{{{2 * KEY_BYTES}}}", key):
        raise UsageError(f"key is the campaign's key as 64 hexadecimal digits, got {shown(key)}")
    if name is not None and not (isinstance(name, str) and re.fullmatch("([0-9a-f]{2})+", name)):
        raise UsageError(f"id is the campaign's id, hexadecimal, got {shown(name)}")
    return Allowed(bytes.fromhex(key), name)


def _parties(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not value:
        raise UsageError(f"a table of names and identity keys is wanted, got {shown(value)}")
    for name, key in value.items():
        if not isinstance(key, str) or not re.fullmatch(f"[0-9a-f]{{{2 * KEY_BYTES}}}", key):
            raise UsageError(
                f"{shown(name)}: an identity key of 64 hexadecimal digits is wanted, got {shown(key)}"
            )
    return dict(value)


_READERS: Final[dict[str, Callable[[object], Any]]] = {
    "campaigns": _campaigns,
    "max_queries": _bound(_whole),
    "max_queries_in_all": _bound(_whole),
    "least_sigma": _bound(_exact),
    "least_noise_multiplier": _bound(_exact),
    "least_roster": _bound(_whole),
    "least_survivors": _whole,
    "least_colluders": _whole,
    "parties": _parties,
    "aggregation": _words,
    "noise": _words,
    "largest_epsilon": _bound(_float),
    "delta": _float,
    "failing_share": _exact,
    "units": _words,
    "codes": _words,
    "answers": _words,
    "encoders": lambda value: None if value == "any" else _words(value),
    "hours": _span,
    "weekdays": _days,
    "repeat_queries": _word,
}
_FIELDS: Final = tuple(name for name in _READERS if name != "weekdays")
