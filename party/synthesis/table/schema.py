"""The schema file: the public domain of a table as JSON, and its signature.

::

    {"format": "pate-synthesis-schema/1", "min_rows": 200, "label": "income", "columns": [
      {"name": "age", "kind": "number", "integer": true, "edges": [17, 25, 45, 65, 100]},
      {"name": "sex", "kind": "category", "codes": ["Female", "Male"], "missing": true,
       "buckets": [0, 0, 1]}]}

``missing`` admits empty cells; they become the last code. ``buckets`` has a number per code, empty
cells included; codes with the same number are merged when the column is another's parent; without
it each code is its own bucket. A number between two edges belongs to the bin that begins with the
lower one, and the last bin has its upper edge, too.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from party.synthesis.table.domain import MAX_CODES, MISSING, Attribute, Domain
from pate.data.labels import plain_names
from pate.errors import SchemaError
from pate.formats.synthesis_schema import MAX_SCHEMA, SCHEMA_FORMAT, SUFFIX, TODO, parse, verify

if TYPE_CHECKING:
    from pathlib import Path

_KINDS: Final = {
    "number": {"name", "kind", "missing", "buckets", "edges", "integer"},
    "category": {"name", "kind", "missing", "buckets", "codes"},
}
#: Texts that readers of tables treat as missing.
_EMPTY: Final = frozenset({"", "?", "nan"})


def read(path: Path) -> Domain:
    """Return the domain of an unsigned schema file.

    Raises:
        SchemaError: if it cannot be read, or is not a schema.
    """
    return _named(path, _content(path))


def read_signed(path: Path, key: bytes) -> Domain:
    """Return the domain of a schema file that a coordinator signed.

    Args:
        path: the schema.
        key: the campaign's Ed25519 public key, 32 bytes.

    Raises:
        SchemaError: if a file cannot be read, the signature is not by this key, or the file is not
            a schema.
    """
    content = _content(path)
    beside = path.with_name(path.name + SUFFIX)
    if not beside.is_file():
        raise SchemaError(
            f"{path} is not signed: {beside} is missing; ask the coordinator, who creates it "
            "with `pate-server sign-schema`"
        )
    try:
        verify(content, _content(beside), key)
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error
    return _named(path, content)


def from_json(content: bytes) -> Domain:
    """Return the domain that a schema file describes.

    Raises:
        SchemaError: if it is not a schema: another format, an unknown or missing field, a bad
            value.
    """
    fields = parse(content)
    _fields(fields, {"min_rows", "label", "columns"}, {"min_rows", "columns"}, "it")
    columns, label = fields["columns"], fields.get("label")
    if not isinstance(columns, list):
        raise SchemaError("its columns are not a list")
    if label is not None and not isinstance(label, str):
        raise SchemaError("its label is not a column name")
    return Domain(
        tuple(_attribute(at, column) for at, column in enumerate(columns)),
        _whole(fields["min_rows"], "min_rows"),
        label,
    )


def to_json(domain: Domain) -> bytes:
    """Return the schema file of a domain; :func:`from_json` gives the same domain back."""
    columns: list[dict[str, object]] = []
    for attribute in domain.attributes:
        column: dict[str, object] = {"name": attribute.name}
        if attribute.edges is None:
            column |= {"kind": "category", "codes": [c for c in attribute.codes if c != MISSING]}
        else:
            edges = [int(e) if float(e).is_integer() else e for e in attribute.edges]
            column |= {"kind": "number", "integer": attribute.integer, "edges": edges}
        if attribute.missing is not None:
            column["missing"] = True
        if attribute.buckets != tuple(range(len(attribute.codes))):
            column["buckets"] = attribute.buckets
        columns.append(column)
    lines = ",\n".join(f"  {json.dumps(column)}" for column in columns)
    head = {"format": SCHEMA_FORMAT, "min_rows": domain.min_rows, "label": domain.label}
    return f'{json.dumps(head)[:-1]}, "columns": [\n{lines}\n]}}\n'.encode()


def warnings(domain: Domain) -> list[str]:
    """Return lines about valid but probably unintended values."""
    return [
        f"column {attribute.name!r} has one code: it carries no information"
        for attribute in domain.attributes
        if len(attribute.codes) == 1
    ]


def bin_names(edges: tuple[float, ...]) -> tuple[str, ...]:
    """Return the names of the bins between edges.

    >>> bin_names((0, 1, 2.5))
    ('[0, 1)', '[1, 2.5]')
    """
    names = [f"[{_short(low)}, {_short(high)})" for low, high in pairwise(edges)]
    return (*names[:-1], f"{names[-1][:-1]}]")


def _short(edge: float) -> str:
    return str(int(edge)) if float(edge).is_integer() else repr(edge)


def _attribute(at: int, column: object) -> Attribute:
    if not isinstance(column, dict) or not isinstance(column.get("name"), str):
        raise SchemaError(f"its column {at + 1} has no name")
    name, kind = column["name"], column.get("kind")
    where = f"column {name!r:.80}"
    if not isinstance(kind, str) or kind not in _KINDS:
        raise SchemaError(f"{where} has the kind {kind!r:.80}; allowed are {' and '.join(_KINDS)}")
    needed = {"name", "kind", "edges" if kind == "number" else "codes"}
    _fields(column, _KINDS[kind], needed, where)
    missing = (MISSING,) if _flag(column, "missing", where) else ()
    edges = None
    if kind == "number":
        edges = _edges(column["edges"], where)
        codes = (*bin_names(edges), *missing)
    else:
        codes = (*_codes(column["codes"], where), *missing)
    buckets: Any = column.get("buckets", list(range(len(codes))))
    if not isinstance(buckets, list) or not 0 < len(buckets) <= MAX_CODES + 1:
        raise SchemaError(f"{where}: its buckets must be a list of one number per code")
    return Attribute(
        name,
        codes,
        tuple(_whole(bucket, f"{where}: a bucket") for bucket in buckets),
        edges,
        kind == "number" and _flag(column, "integer", where),
    )


def _no_draft(found: object, where: str) -> None:
    if isinstance(found, str) and found.startswith(TODO):
        raise SchemaError(f"{where} is not filled in yet: {found[:80]}")


def _edges(found: object, where: str) -> tuple[float, ...]:
    _no_draft(found, where)
    if not isinstance(found, list) or not 2 <= len(found) <= MAX_CODES:
        raise SchemaError(f"{where}: its edges must be a list of at least two numbers")
    if not all(type(edge) in (int, float) and abs(edge) < 2**53 for edge in found):
        raise SchemaError(f"{where}: an edge must be a number below 2^53")
    edges = tuple(float(edge) for edge in found)
    if len(set(edges)) != len(edges):
        raise SchemaError(f"{where}: two edges are the same")
    return edges


def _codes(found: object, where: str) -> tuple[str, ...]:
    _no_draft(found, where)
    if not isinstance(found, list) or not 0 < len(found) <= MAX_CODES:
        raise SchemaError(f"{where}: its codes must be a list of 1 to {MAX_CODES} names")
    if not all(isinstance(code, str) for code in found):
        raise SchemaError(f"{where}: a code must be text; write numbers in quotes, too")
    for code, plain in zip(found, plain_names(found), strict=True):
        if code.casefold() in _EMPTY or code != code.strip():
            raise SchemaError(
                f'{where}: {code!r:.80} reads as an empty cell; write "missing": true instead'
                if code.strip().casefold() in _EMPTY
                else f"{where}: the code {code!r:.80} begins or ends with a space"
            )
        if code != plain:
            raise SchemaError(f"{where}: write the code {code!r:.80} as {plain!r:.80}")
    return tuple(found)


def _fields(found: dict[str, Any], known: set[str], needed: set[str], where: str) -> None:
    for name in sorted(found.keys() - known):
        raise SchemaError(f"{where} has an unknown field {name!r:.80}")
    for name in sorted(needed - found.keys()):
        raise SchemaError(f"{where} has no field {name!r}")


def _flag(column: dict[str, Any], name: str, where: str) -> bool:
    value = column.get(name, False)
    if not isinstance(value, bool):
        raise SchemaError(f"{where}: {name} is neither true nor false")
    return value


def _whole(value: object, what: str) -> int:
    _no_draft(value, what)
    if type(value) is not int or not 0 <= value < 2**53:
        raise SchemaError(f"{what} must be a whole number of at least 0, got {value!r:.80}")
    return value


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_SCHEMA + 1)
    except OSError as error:
        raise SchemaError(f"cannot read {path}: {error.strerror or error}") from error


def _named(path: Path, content: bytes) -> Domain:
    try:
        return from_json(content)
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error
