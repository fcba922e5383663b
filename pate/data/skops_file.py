"""Validation of a skops file, so that reading it takes bounded memory and time.

skops builds only objects of known types, after checking all type names. But before that check it
unpacks every array, allocates the size in an array's header, and follows each reference as often as it
occurs. So a file of a few hundred kilobytes could take gigabytes, or time without bound. Here sizes are
compared before anything is unpacked.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pate.errors import DataError
from pate.foreign import json_value, npy_header, zip_file

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

_Node: TypeAlias = dict[str, Any]
#: Largest file of a model, in bytes.
LARGEST: Final = 2**30
_SCHEMA: Final = "schema.json"
#: Its largest description: some two thousand trees. Parsed, it takes many times its length.
_LARGEST_SCHEMA: Final = 2**25
#: Most steps through a description, per object and in total; real ones need about one per object.
_WAYS_EACH, _WAYS_SPARE = 8, 1000


def check_skops(content: bytes, *, most: int | None = None) -> None:
    """Check that a skops file unpacks to at most ``most`` bytes, by default its own size."""
    if len(content) > LARGEST:
        raise DataError(f"{len(content)} bytes are too many for a model")
    try:
        with zip_file(io.BytesIO(content)) as file:
            members = {info.filename: info for info in file.infolist()}
            if len(members) != len(file.infolist()) or _SCHEMA not in members:
                raise DataError("it has no description, or two members of one name")
            if sum(info.file_size for info in members.values()) > (
                len(content) if most is None else most
            ):
                raise DataError("it unpacks to more than it may")
            if members[_SCHEMA].file_size > _LARGEST_SCHEMA:
                raise DataError("its description is too long; make a model of fewer trees")
            for info in members.values():
                if info.filename != _SCHEMA:
                    _check_array(file, info)
            _check_references(json_value(file.read(_SCHEMA)), members)
    except (OSError, ValueError) as error:
        raise DataError(f"it is no archive of skops: {error}") from error


def _check_array(file: ZipFile, info: ZipInfo) -> None:
    """Refuse a member that is not an array, or whose header states more than it has."""
    if not info.filename.endswith(".npy"):
        raise DataError(f"{info.filename!r:.80} is not an array")
    with file.open(info) as member:
        header = npy_header(member)
        length = info.file_size - member.tell()
    if header.dtype.hasobject:
        raise DataError("an array of objects")
    if header.bytes != length or max(header.shape, default=0) > info.file_size:
        raise DataError("an array whose header and length differ")


def _check_references(described: object, members: dict[str, ZipInfo]) -> None:
    """Refuse a description that reads one array twice, or reaches few objects on many paths.

    An object that occurs again, under the same number, is built once; but skops walks through its parts
    at each occurrence.
    """
    readers: dict[str, object] = {}
    occurrences: dict[int, list[_Node]] = {}
    count = 0
    pending = [described]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending.extend(each)
        if not isinstance(each, dict):
            continue
        count += 1
        pending.extend(each.values())
        own = each.get("__id__")
        if own is not None and type(own) is not int:
            raise DataError("a number of an object that is none")
        if own is not None:
            occurrences.setdefault(own, []).append(each)
        if (name := each.get("file")) is not None:
            if not isinstance(name, str) or name not in members:
                raise DataError("an array that it does not have")
            if name in readers and (own is None or readers[name] != own):
                raise DataError("an array that is read twice")
            readers[name] = own
        if each.get("__loader__") == "TreeNode" and _outputs(each) != "1":
            raise DataError("a tree of several outputs")
    _Ways(occurrences, _WAYS_EACH * count + _WAYS_SPARE).of(described)


class _Ways:
    """Counts the steps of a walk through an object and, at each occurrence, its parts; the longest counts."""

    def __init__(self, occurrences: dict[int, list[_Node]], most: int) -> None:
        self._occurrences = occurrences
        self._most = most
        self._known: dict[int, int | None] = {}

    def of(self, each: object) -> int:
        """Return the steps through one object."""
        if isinstance(each, list):
            return self._bounded(sum(map(self.of, each)))
        if not isinstance(each, dict):
            return 0
        own = each.get("__id__")
        if own is None:
            return self._bounded(1 + sum(map(self.of, each.values())))
        if own not in self._known:
            self._known[own] = None
            parts = (sum(map(self.of, other.values())) for other in self._occurrences[own])
            self._known[own] = self._bounded(1 + max(parts))
        found = self._known[own]
        if found is None:
            raise DataError("an object that is a part of itself")
        return found

    def _bounded(self, steps: int) -> int:
        if steps > self._most:
            raise DataError("objects that are reached on too many ways")
        return steps


def _outputs(tree: _Node) -> object:
    """Return the stated number of a tree's outputs, the count of numbers it reads from its arrays."""
    try:
        return tree["__reduce__"]["args"]["content"][2]["content"]
    except (TypeError, KeyError, IndexError):
        return None
