"""Exact JSON forms of frozen dataclasses, for ledgers, terms and files.

One value has one text, so that texts can be hashed and signed. The form of a field follows from its
annotation:

=========================  ==========================================================
``int``, ``bool``, ``str`` as they are; ``true`` is not a whole number
``float``                   a finite number that is written with a point or an exponent
``Fraction``                text, ``p`` or ``p/q`` in lowest terms
``bytes``                   text, lower-case hexadecimal
``Literal``                 one of its values
``NDArray[np.int64]``       a list of whole numbers, or of one text a row, with spaces between numbers
``tuple[X, ...]``           a list; ``tuple[X, Y]`` one of that length
``Mapping[str, X]``         an object
a dataclass                 an object with exactly its fields; with its tag, if it has one; as
                            :func:`in_text` says its fields stand in the outer object
``X | None``, ``X | Y`` the one that fits the JSON value; dataclasses by their tag
=========================  ==========================================================

:func:`in_text` is for exceptions. A reader follows the annotations and not the text, so no text
makes it recurse deeper than the type does, and all work is linear in the text's size.

Why not pydantic, a dependency of Flower: even in strict mode it accepts ``1`` for a float, and
``"2/4"`` and ``0.1`` for a fraction, so a value would have several texts; and each exact form would
need its own reader and writer as well.
"""

from __future__ import annotations

import math
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from fractions import Fraction
from functools import cache
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pate.errors import AccountingError, PateError
from pate.foreign import json_value, shown

#: Of each digits enough for the sum of two costs.
_FRACTION: Final = re.compile(r"(0|[1-9][0-9]{0,249})(/[1-9][0-9]{0,249})?", re.ASCII)
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*", re.ASCII)
_NUMBER: Final = r"(?:0|-?[1-9][0-9]{0,14})"
_ROW: Final = re.compile(rf"{_NUMBER}(?: {_NUMBER})*", re.ASCII)
#: Names that modules may import for their annotations only.
_FOR_ANNOTATIONS: Final = {"Fraction": Fraction, "Mapping": Mapping}
_RULE: Final = "pate.exact"
_MOST_NAMES: Final = 5

_T = TypeVar("_T")
_Reader = Callable[[Any, str], Any]


class TextForm:
    """A frozen dataclass whose text states its kind."""

    tag: ClassVar[str]  # field of the text that names the kind: ``event`` or ``mechanism``
    name: ClassVar[str]

    def to_dict(self) -> dict[str, str | int]:
        """Return the exact text form, of :func:`read`."""
        made: dict[str, str | int] = write(self)
        return made


@dataclass(frozen=True)
class _Rule:
    name: str | None = None
    omitted: bool = False
    absent: bool = False
    kinds: tuple[type, ...] = ()
    flat: str | Mapping[str, str] | None = None


_AS_IT_STANDS: Final = _Rule()


def in_text(
    *,
    name: str | None = None,  # of the field in the text; None: as the attribute
    omitted: bool = False,  # the text omits the field at its default
    absent: bool = False,  # no text contains it; it has a default
    kinds: Iterable[type] = (),  # the dataclasses behind a protocol in the annotation, of one tag
    # the fields of this inner dataclass stand in the outer object, all null where it is None: a
    # prefix of their names, or other names of some. Its tag is left out
    flat: str | Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return the ``metadata`` of a dataclass field whose text departs from its annotation."""
    return {_RULE: _Rule(name, omitted, absent, tuple(kinds), flat)}


class _UnfitError(Exception):
    """A text that does not have the form of the type; ``path`` is empty for the whole."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path} {problem}" if path else problem)


def read(
    kind: type[_T] | tuple[type[_T], ...],  # a dataclass, or several with different tags
    text: object,
    *,
    error: type[PateError],
    what: str,
) -> _T:
    """Return the value that :func:`write` wrote."""
    wanted: Any = kind
    reader = _tagged(wanted) if isinstance(kind, tuple) else _reader(wanted)
    try:
        made: _T = reader(text, "")
    except _UnfitError as unfit:
        raise error(f"{what}: {unfit}") from unfit.__cause__
    return made


def write(value: object) -> Any:
    """Return the JSON values of a frozen dataclass, or of one of its fields."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} has no exact text")
        return float(value)
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {key: write(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [write(each) for each in value]
    if _is_array(type(value)):
        rows = value.tolist()  # type: ignore[attr-defined] # an array has it
        return [" ".join(map(str, row)) if isinstance(row, list) else row for row in rows]
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"a {type(value).__name__} has no text form")
    made: dict[str, Any] = {value.tag: value.name} if isinstance(value, TextForm) else {}
    for name, rule, default in _written(type(value)):
        inner = getattr(value, name)
        if rule.flat is not None and inner is not None:
            text = write(inner)
            if isinstance(inner, TextForm):
                del text[inner.tag]
            made |= {_outer(rule.flat, part): each for part, each in text.items()}
        elif rule.flat is not None:
            places = _shape(type(value))[1][name].fields
            made |= dict.fromkeys(part for part, each in places.items() if not each.omitted)
        elif not rule.absent and not (rule.omitted and inner == default):
            made[rule.name or name] = write(inner)
    return made


def parse(
    content: bytes | str,
    *,
    most: int,  # bytes, or characters of a text
    error: type[PateError],
    what: str,
    # required value of its field ``format``, which is then removed; None: none required
    form: str | int | None = None,
) -> dict[str, Any]:
    """Return the fields of a JSON object from a file or a message."""
    if len(content) > most:
        raise error(f"{what}: {len(content)} bytes, at most {most} are read")
    try:
        text = content.decode() if isinstance(content, bytes) else content
        found = json_value(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except ValueError as problem:
        raise error(f"{what}: not JSON: {problem!s:.200}") from problem
    if not isinstance(found, dict):
        raise error(f"{what}: must be a JSON object, got {shown(found)}")
    if form is not None and (
        type(given := found.pop("format", None)) is not type(form) or given != form
    ):
        raise error(
            f"{what}: its format is {shown(given)}, not {form}; was it made by another version?"
        )
    return found


def fraction_from_text(text: object) -> Fraction:
    """Return the fraction that ``str(Fraction)`` wrote, in lowest terms and of sane length."""
    if isinstance(text, str) and _FRACTION.fullmatch(text):
        value = Fraction(text)
        if str(value) == text:
            return value
    raise AccountingError(f"not a fraction in lowest terms: {shown(text)}")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is repeated")
    return found


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not a JSON number")


@cache
def _written(kind: Any) -> tuple[tuple[str, _Rule, object], ...]:
    """Return of each field of a dataclass its name, its rule and its default."""
    return tuple((each.name, _rule_of(each.metadata), each.default) for each in fields(kind))


def _rule_of(metadata: Mapping[Any, Any]) -> _Rule:
    rule: _Rule = metadata.get(_RULE, _AS_IT_STANDS)
    return rule


def _as_it_is(kind: type, wanted: str) -> _Reader:
    def reader(value: object, path: str) -> object:
        if type(value) is not kind:
            raise _UnfitError(path, f"must be {wanted}, got {shown(value)}")
        return value

    return reader


def _float(value: object, path: str) -> float:
    if type(value) is not float or not math.isfinite(value):
        raise _UnfitError(path, f"must be a finite number with a point, got {shown(value)}")
    return value


def _str(value: object, path: str) -> str:
    if type(value) is not str:
        raise _UnfitError(path, f"must be text, got {shown(value)}")
    try:
        value.encode()  # JSON can encode a lone surrogate, which no file or screen accepts
    except UnicodeEncodeError as error:
        raise _UnfitError(path, "must be text, got a lone surrogate") from error
    return value


def _bytes(value: object, path: str) -> bytes:
    if type(value) is not str or not _HEX.fullmatch(value):
        raise _UnfitError(path, f"must be lower-case hexadecimal, got {shown(value)}")
    return bytes.fromhex(value)


def _fraction(value: object, path: str) -> Fraction:
    try:
        return fraction_from_text(value)
    except AccountingError as error:
        raise _UnfitError(path, f"is {error}") from error


def _is_array(kind: Any) -> bool:
    # ``NDArray`` is a class of arrays, or from numpy 2.5 on an alias of that name.
    return getattr(kind, "__name__", "") in ("ndarray", "NDArray") and (
        getattr(kind, "__module__", "").startswith("numpy")
    )


def _array(value: object, path: str) -> object:
    import numpy as np  # whoever annotates a field as an array has imported it

    of_rows = isinstance(value, list) and any(type(each) is str for each in value)
    wanted = "texts of whole numbers with spaces between them" if of_rows else "whole numbers"
    fits = isinstance(value, list) and all(
        type(each) is str and _ROW.fullmatch(each) if of_rows else type(each) is int
        for each in value
    )
    if not fits:
        raise _UnfitError(path, f"must be a list of {wanted}, got {shown(value)}")
    rows: Any = [[int(each) for each in row.split(" ")] for row in value] if of_rows else value  # type: ignore[attr-defined] # a list of texts
    try:
        return np.array(rows, dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise _UnfitError(path, "has rows that differ in length, or too large a number") from error


#: By annotation: its reader, and its JSON type.
_PLAIN: Final[dict[object, tuple[_Reader, type]]] = {
    int: (_as_it_is(int, "a whole number"), int),
    bool: (_as_it_is(bool, "true or false"), bool),
    types.NoneType: (_as_it_is(types.NoneType, "null"), types.NoneType),
    float: (_float, float),
    str: (_str, str),
    bytes: (_bytes, str),
    Fraction: (_fraction, str),
}


@cache
def _reader(kind: Any, kinds: tuple[type, ...] = ()) -> _Reader:
    """Return the reader of an annotation; ``kinds`` as of :func:`in_text`."""
    if kind in _PLAIN:
        return _PLAIN[kind][0]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union(arguments, kinds)
    if origin is Literal:
        return _one_of(arguments)
    if origin is tuple:
        return _tuple(arguments, kinds)
    if _is_array(origin) and "int64" in str(arguments[-1]):
        return _array
    if isinstance(origin, type) and issubclass(origin, Mapping) and arguments[0] is str:
        return _mapping(_reader(arguments[1], kinds))
    if isinstance(kind, type) and is_dataclass(kind):
        return _tagged((kind,)) if issubclass(kind, TextForm) else _object(kind)
    if kinds:
        return _tagged(kinds)
    raise TypeError(f"{kind} has no text form")


def _one_of(values: tuple[object, ...]) -> _Reader:
    def reader(value: object, path: str) -> object:
        # True equals 1, but their texts differ.
        if not any(type(value) is type(each) and value == each for each in values):
            known = ", ".join(map(str, values))
            raise _UnfitError(path, f"is {shown(value)}, possible are {known}")
        return value

    return reader


def _tuple(arguments: tuple[Any, ...], kinds: tuple[type, ...]) -> _Reader:
    endless = len(arguments) == 2 and arguments[1] is ...
    readers = [_reader(each, kinds) for each in (arguments[:1] if endless else arguments)]

    def reader(value: object, path: str) -> tuple[object, ...]:
        if not isinstance(value, list | tuple):
            raise _UnfitError(path, f"must be a list, got {shown(value)}")
        if not endless and len(value) != len(readers):
            raise _UnfitError(path, f"must have {len(readers)} entries, got {len(value)}")
        by = readers * len(value) if endless else readers
        return tuple(
            read_one(each, f"{path}[{at}]")
            for at, (each, read_one) in enumerate(zip(value, by, strict=True))
        )

    return reader


def _mapping(of_values: _Reader) -> _Reader:
    def reader(value: object, path: str) -> dict[str, object]:
        if not isinstance(value, Mapping):
            raise _UnfitError(path, f"must be an object, got {shown(value)}")
        return {
            _str(key, f"a name in {path}"): of_values(each, f"{path}[{shown(key)}]")
            for key, each in value.items()
        }

    return reader


def _union(arguments: tuple[Any, ...], kinds: tuple[type, ...]) -> _Reader:
    tagged = tuple(
        each for each in arguments if isinstance(each, type) and issubclass(each, TextForm)
    )
    readers = {_json_type(each): _reader(each, kinds) for each in arguments if each not in tagged}
    expected = len(arguments) - len(tagged)
    if tagged:
        readers[dict] = _tagged(tagged)
        expected += 1
    if len(readers) != expected:
        raise TypeError(f"{arguments}: their texts cannot be distinguished")
    # None is tried last, so that a message names the expected type.
    other = next(each for shape, each in readers.items() if shape is not types.NoneType)

    def reader(value: object, path: str) -> object:
        shape = list if isinstance(value, tuple) else dict if isinstance(value, Mapping) else None
        return readers.get(shape or type(value), other)(value, path)

    return reader


def _json_type(kind: Any) -> type:
    if kind in _PLAIN:
        return _PLAIN[kind][1]
    if get_origin(kind) is Literal:
        return type(get_args(kind)[0])
    return list if get_origin(kind) is tuple or _is_array(get_origin(kind)) else dict


def _tagged(kinds: tuple[type, ...]) -> _Reader:
    known: dict[str, Any] = {kind.name: kind for kind in kinds if issubclass(kind, TextForm)}
    tags = {kind.tag for kind in known.values()}
    if len(tags) != 1 or len(known) != len(kinds):
        raise TypeError(f"{kinds}: they have no common tag")
    (tag,) = tags

    def reader(value: object, path: str) -> object:
        if not isinstance(value, Mapping):
            raise _UnfitError(path, f"must be an object, got {shown(value)}")
        name = value.get(tag)
        kind = known.get(name) if isinstance(name, str) else None
        if kind is None:
            choices = ", ".join(sorted(known))
            raise _UnfitError(path, f"unknown {tag} {shown(name)}: choose among {choices}")
        return _object(kind)({key: each for key, each in value.items() if key != tag}, path)

    return reader


@dataclass(frozen=True)
class _Field:
    """A field of a text: its reader, and whether it is omitted at its default."""

    attribute: str
    reader: _Reader
    omitted: bool
    default: object

    def read(self, text: Mapping[str, Any], name: str, path: str) -> object:
        if name not in text:
            return self.default
        place = f"{path}.{name}" if path else name
        found = self.reader(text[name], place)
        if self.omitted and found == self.default:
            raise _UnfitError(place, "must be omitted at its default")
        return found


@dataclass(frozen=True)
class _Flat:
    """An inner dataclass whose fields stand in the outer text."""

    kind: Any
    optional: bool
    fields: Mapping[str, _Field]

    def read(self, text: Mapping[str, Any], path: str) -> object:
        stated = [name for name, each in self.fields.items() if not each.omitted]
        null = [name for name in stated if text[name] is None]
        if self.optional and null == stated:
            for name in self.fields.keys() & text.keys():
                if text[name] is not None:
                    raise _UnfitError(name, f"must be omitted, got {shown(text[name])}")
            return None
        if self.optional and null:
            raise _UnfitError(path, f"{', '.join(stated)}: all or none are null")
        return _made(
            self.kind,
            {each.attribute: each.read(text, name, path) for name, each in self.fields.items()},
            path,
        )


@cache
def _shape(kind: Any) -> tuple[dict[str, _Field], dict[str, _Flat]]:
    """Return the fields of a dataclass's text by their names, and its inner ones by attribute."""
    names: dict[str, Any] = dict(_FOR_ANNOTATIONS)
    if "numpy" in sys.modules:
        from numpy.typing import NDArray

        names["NDArray"] = NDArray
    hints = get_type_hints(kind, localns=names)
    plain: dict[str, _Field] = {}
    flat: dict[str, _Flat] = {}
    for field in fields(kind):
        rule = _rule_of(field.metadata)
        if rule.absent:
            continue
        hint = hints[field.name]
        if rule.flat is None:
            if rule.omitted and field.default is MISSING:
                raise TypeError(f"{kind.__name__}.{field.name} is omitted, and has no default")
            plain[rule.name or field.name] = _Field(
                field.name, _reader(hint, rule.kinds), rule.omitted, field.default
            )
            continue
        inner: Any = next(each for each in (*get_args(hint), hint) if is_dataclass(each))
        found, none = _shape(inner)
        if none:
            raise TypeError(f"{inner.__name__} has itself fields that stand in the outer text")
        flat[field.name] = _Flat(
            inner,
            inner is not hint,
            {_outer(rule.flat, name): each for name, each in found.items()},
        )
    return plain, flat


def _outer(flat: str | Mapping[str, str], name: str) -> str:
    return flat + name if isinstance(flat, str) else flat.get(name, name)


@cache
def _object(kind: Any) -> _Reader:
    plain, flat = _shape(kind)
    every = dict(plain)
    for each in flat.values():
        if every.keys() & each.fields.keys():
            raise TypeError(f"{kind.__name__}: two fields of its text have one name")
        every |= each.fields
    needed = {name for name, each in every.items() if not each.omitted}

    def reader(value: object, path: str) -> object:
        if not isinstance(value, Mapping):
            raise _UnfitError(path, f"must be an object, got {shown(value)}")
        lacking, unknown = needed - value.keys(), value.keys() - every.keys()
        if lacking or unknown:
            parts = ((lacking, "lacks"), (unknown, "has unknown"))
            raise _UnfitError(
                path, " and ".join(f"{verb} fields: {_names(each)}" for each, verb in parts if each)
            )
        values = {each.attribute: each.read(value, name, path) for name, each in plain.items()}
        values |= {attribute: each.read(value, path) for attribute, each in flat.items()}
        return _made(kind, values, path)

    return reader


def _made(kind: Any, values: dict[str, object], path: str) -> object:
    try:
        return kind(**values)
    except PateError as error:
        raise _UnfitError(f"{path}:" if path else "", str(error)) from error


def _names(found: Iterable[Any]) -> str:
    every = sorted(map(str, found))
    first = ", ".join(map(shown, every[:_MOST_NAMES]))
    return first if len(every) <= _MOST_NAMES else f"{first} and {len(every) - _MOST_NAMES} more"
