"""NumPy ``.npz`` archives of images, or of embeddings, never with pickled objects.

Keys: ``images``, ``x`` or ``data``, (n, height, width[, channels]), or ``embeddings`` with ``encoder`` and
``source`` as :mod:`pate.data.embeddings` describes them; ``labels`` or ``y``, (n,)
numbers or text, or (n, l) yes or no for l labels that ``classes`` names; optional ``classes``, (m,) text;
optional ``groups``, (n,) numbers or text.

A set that is saved in parts has ``train_images`` and ``train_labels`` (MedMNIST), or ``x_train`` and
``y_train`` (Keras), and the same with ``val`` and ``test``. Labelled records are those of ``train``, or those
whose labels the owner names.

If there are ``classes``, a label that is a whole number is an index into them, from 0, and any other is
a name. Each label and image is read by itself, independent of the array's type: one missing label, or
one pixel of more than 8 bits, changes the type of the whole array. So a party's whole
numbers are all read by the campaign's window, if it has one, also those that would fit in 8 bits. A
public set is no one's record: there the array's type says how deep it is.
"""

from __future__ import annotations

import re
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.cells import PLAIN, Reading, cell_text, clean_name, plain_name
from pate.data.embeddings import Embeddings
from pate.data.files.pictures import windowed
from pate.data.files.tables import LONGEST_TEXT, TextTable, is_utf8
from pate.data.limits import require_room
from pate.data.odd import OUTSIDE, WINDOW, DeepImagesError, UnusableRecordError, judged, usable
from pate.data.schema import Schema
from pate.data.values import Images
from pate.errors import DataError, SchemaError
from pate.foreign import npy_array, npy_header, zip_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from zipfile import ZipInfo

    from numpy.typing import NDArray

    from pate.data.odd import Odd
    from pate.data.values import Window

_IMAGES: Final = ("images", "x", "data")
_LABELS: Final = ("labels", "y")
#: The arrays of images and labels of each part of a set.
_PARTS: Final = tuple(
    (images.format(part), labels.format(part))
    for images, labels in (("{}_images", "{}_labels"), ("x_{}", "y_{}"), ("X_{}", "y_{}"))
    for part in ("train", "val", "test")
)
_WHOLE: Final = re.compile(r"-?[0-9]+", re.ASCII)


class Archive:
    """An open ``.npz`` file, each array checked before it is read.

    Of a ``public`` set the images are read, whatever labels may say of which arrays are meant.
    """

    def __init__(
        self,
        path: Path,
        odd: Odd | None = None,
        reading: Reading = PLAIN,
        *,
        label: str | None = None,
        public: bool = False,
    ) -> None:
        self._path = path
        self._odd = odd
        self._reading = reading.of_arrays
        self._label = label
        self._public = public
        self._members: dict[str, ZipInfo] = {}
        try:
            with zip_file(path) as file:
                members = file.infolist()
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is not an .npz archive or is truncated ({error})") from error
        for member in members:
            key = member.filename.removesuffix(".npy")
            if key in self._members:
                raise DataError(f"{path} has two members for the array {key!r}; save it again")
            self._members[key] = member
        require_room(path, sum(member.file_size for member in members))

    def one_by_one(
        self, window: Window | None
    ) -> tuple[tuple[int, ...], Callable[[], Iterator[NDArray[np.uint8] | None]]]:
        """Return the shape of all images, and what yields them in order, None for an unusable one.

        Each image of a party is read by its own pixels; all of a public set by the type of their array.
        """
        array = _as_images(self._one_of(self._keys[0]), self._path)
        of_type = array.dtype.kind in "iu" and array.dtype.itemsize > 1
        deep = of_type if self._public else window is not None
        _note_bytes(array, window, self._odd)
        return array.shape, lambda: _each(array, self._path, window, self._odd, deep=deep)

    def images(self, window: Window | None) -> tuple[Images, NDArray[np.bool_]]:
        """Return the images, and (n,) which of them are usable; errors as :meth:`one_by_one`."""
        shape, stream = self.one_by_one(window)
        return stacked(shape, stream(), window)

    @property
    def has_embeddings(self) -> bool:
        """Whether it has embeddings, not images."""
        return "embeddings" in self._members

    def embeddings(self) -> Embeddings | None:
        """Return the embeddings, None if the archive has images."""
        if not self.has_embeddings:
            return None
        values = self._read("embeddings")
        if values.dtype != np.int16:
            raise DataError(f"{self._path}: 'embeddings' are {values.dtype}, not int16")
        source, encoder = (
            str(self._read(self._named(key)).squeeze()) for key in ("source", "encoder")
        )
        try:
            made = Embeddings(np.ascontiguousarray(values, np.int16), source, encoder)
            Schema.parse(made.schema())
        except (DataError, SchemaError) as error:
            raise DataError(f"{self._path}: {error}") from error
        return made

    def _named(self, key: str) -> str:
        if key not in self._members:
            raise DataError(f"{self._path} has 'embeddings' and no array {key!r}; write it again")
        return key

    def labels(self) -> list[str]:
        """Return one class name per record."""
        array = _flat(self._one_of(self._keys[1]), "labels", self._path)
        names = self._names(array, "labels")
        listed = self.declared_classes()
        if listed is None:
            return names
        for at, name in enumerate(map(plain_name, listed)):
            if _WHOLE.fullmatch(name) and int(name) != at:
                raise DataError(
                    f"{self._path}: 'classes' has the number {listed[at]!r:.80} at place {at}, so a "
                    "label could be a name or a place; name it in words, such as 'grade 1', or leave "
                    "'classes' out and save each label by its name"
                )
        places = {name: int(name) for name in set(names) if _WHOLE.fullmatch(name)}
        outside = [at for at in places.values() if not 0 <= at < len(listed)]
        if outside and self._odd is None:
            raise DataError(
                f"{self._path}: label {outside[0]} lies outside its {len(listed)} classes"
            )
        found = {name: listed[at] if 0 <= at < len(listed) else "" for name, at in places.items()}
        for row, name in enumerate(names):
            if found.get(name) == "" and self._odd is not None:
                self._odd.cell(
                    "labels", "lies outside the classes of its file", f"record {row + 1}"
                )
        return [found.get(name, name) for name in names]

    def cells(self, key: str) -> list[str]:
        """Return the values of one array, or one column of ``labels`` that ``classes`` names, as text."""
        if key in self._members:
            return _as_texts(_flat(self._read(key), key, self._path), key, self._path, self._odd)
        listed = self.declared_classes() or []
        if key in listed:
            table = self._one_of(self._keys[1])
            if table.ndim == 2 and table.shape[1] == len(listed):
                return _as_texts(table[:, listed.index(key)], key, self._path, self._odd)
        raise DataError(
            f"{self._path} has no array {key!r}, nor labels of shape (n, {len(listed)}) with a class of "
            f"that name; it has: {', '.join(sorted(self._members))}"
        )

    def declared_classes(self) -> list[str] | None:
        """Return the class list of the archive, or None."""
        if "classes" not in self._members:
            return None
        array = _flat(self._read("classes"), "classes", self._path)
        return _as_texts(array, "classes", self._path, None)

    def groups(self, key: str | None) -> NDArray[np.str_] | None:
        """Return the group of each record, "" for none; None without ``key`` if there are no ``groups``."""
        if key is None and "groups" not in self._members:
            return None
        array = _flat(self._one_of((key or "groups",)), "groups", self._path)
        return np.array(self._names(array, "groups"), dtype=np.str_)

    def _names(self, array: NDArray[np.generic], what: str) -> list[str]:
        """Return each value's name; "" for an invalid one if problems are collected."""
        texts = _as_texts(array, what, self._path, self._odd)
        held = TextTable(self._path, {what: texts}, odd=self._odd, reading=self._reading)
        return held.column(what, what.removesuffix("s"))

    @cached_property
    def _keys(self) -> tuple[Sequence[str], Sequence[str]]:
        """Names of the array of images, and of that of labels: the first of each that is there.

        Several sets of images are refused if nothing says which one is meant. Only for a party's own records,
        where it is said on the screen, are those of ``train`` taken.
        """
        stated = None if self._label is None else (self._label,)
        parts = [each for each in _PARTS if each[0] in self._members]
        if not parts or any(key in self._members for key in _IMAGES):
            return _IMAGES, stated or _LABELS
        named = [each for each in parts if each[1] == self._label]
        images, labels = (named or parts)[0]
        others = [key for key, _ in parts if key != images]
        if others and not named and (self._odd is None or "train" not in images):
            to_do = f"name the labels of one, such as --label {parts[-1][1]}"
            if self._public:
                to_do = "save one to a file of its own, as an array called images"
            raise DataError(
                f"{self._path} has several sets of images ({', '.join(key for key, _ in parts)}): {to_do}"
            )
        if others and self._odd is not None:
            self._odd.of_file.append(
                f"the images are {images}, not {', '.join(others)}: --label names the labels of others"
            )
        return (images,), stated or (labels,)

    def _one_of(self, keys: Sequence[str]) -> NDArray[np.generic]:
        for key in keys:
            if key in self._members:
                return self._read(key)
        raise DataError(
            f"{self._path} has no array called {' or '.join(keys)}; "
            f"it has: {', '.join(sorted(self._members)) or 'none'}"
        )

    def _read(self, key: str) -> NDArray[np.generic]:
        """Return one array, from exactly the bytes that were checked."""
        member = self._members[key]
        try:
            with zip_file(self._path) as file, file.open(member) as content:
                # The header is checked against the member's length before anything is allocated.
                header = npy_header(content)
                if header.bytes > member.file_size and not header.dtype.hasobject:
                    raise DataError(f"{self._path}: array {key!r} is truncated; save it again")
                return npy_array(content, header)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{self._path}: array {key!r} cannot be read ({error}); save it again"
            ) from error


def pixels_of(array: NDArray[np.generic], path: Path) -> Images:
    """Return an array of images that have 8 bits, all of which must be usable."""
    array = _as_images(array, path)
    return stacked(array.shape, _each(array, path, None, None, deep=False), None)[0]


def stacked(
    shape: tuple[int, ...], stream: Iterator[NDArray[np.uint8] | None], window: Window | None
) -> tuple[Images, NDArray[np.bool_]]:
    """Return images of one size, and (n,) which of them are usable; others are zero."""
    good = np.zeros(shape[0], dtype=np.bool_)
    made = np.zeros(shape, dtype=np.uint8)
    for at, picture in enumerate(stream):
        if picture is not None:
            good[at], made[at] = True, picture
    return Images(made, window), good


def _as_images(array: NDArray[np.generic], path: Path) -> NDArray[np.generic]:
    """Return images as (n, height, width, channels)."""
    if array.ndim == 3:
        array = array[..., np.newaxis]
    if array.ndim != 4 or array.shape[3] not in (1, 3):
        raise DataError(
            f"{path}: images have shape {array.shape}; "
            "they must be (n, height, width) or (n, height, width, 1 or 3)"
        )
    if array.dtype.kind not in "iuf":
        raise DataError(
            f"{path}: images are {array.dtype}; they must be uint8, or floats in [0, 1]"
        )
    return array


def _each(
    array: NDArray[np.generic], path: Path, window: Window | None, odd: Odd | None, *, deep: bool
) -> Iterator[NDArray[np.uint8] | None]:
    """Yield each image in 8 bits; None for an unusable one, which is noted."""
    for at, picture in enumerate(array):
        found = judged(partial(_in_bytes, picture, window, deep, path))
        yield usable(found, odd, f"record {at + 1}")


def _note_bytes(array: NDArray[np.generic], window: Window | None, odd: Odd | None) -> None:
    """Note images that probably have 8 bits, where a window is for deep ones."""
    if odd is not None and window is not None and array.dtype == np.uint8:
        for at in range(len(array)):
            odd.note(
                "each has 8 bits, and the campaign's window {} to {} is for all whole numbers of an "
                ".npz: save it as an image file, which is read as it is".format(*window),
                f"record {at + 1}",
            )


def _in_bytes(
    picture: NDArray[np.generic], window: Window | None, is_deep: bool, path: Path
) -> NDArray[np.uint8]:
    """Return the pixels of a record as 0 to 255.

    Of deep images whole numbers are read by the window. Otherwise values within [0, 1] are scaled, whole
    numbers within 0 to 255 are bytes, and other whole numbers are read by the window. None of this
    depends on the array's type.
    """
    if not picture.size:
        return picture.astype(np.uint8)
    low, high = float(picture.min()), float(picture.max())
    is_float = picture.dtype.kind == "f"
    if is_float and np.isnan(picture).any():
        raise _unusable(path, "images hold NaN", "take those records out")
    whole = not is_float or bool(
        np.isfinite(picture).all() and (picture == np.floor(picture)).all()
    )
    if not (is_deep and whole):
        if low >= 0 and high <= 1:
            return np.rint(picture.astype(np.float64) * 255).astype(np.uint8)
        if not whole:
            raise _unusable(path, "pixels lie outside 0 to 1", "scale them to [0, 1] or uint8")
        if low >= 0 and high <= 255:
            return picture.astype(np.uint8)
    if window is None:
        raise DeepImagesError(f"{path}: {OUTSIDE}; {WINDOW}", OUTSIDE)
    inside = np.clip(picture.astype(np.float64), *window)
    return windowed(inside.astype(np.int64), window)


def _unusable(path: Path, why: str, what_helps: str) -> UnusableRecordError:
    return UnusableRecordError(f"{path}: {why}; {what_helps}", why)


def _flat(array: NDArray[np.generic], what: str, path: Path) -> NDArray[np.generic]:
    if array.ndim == 2 and array.shape[1] == 1:  # (n, 1), as MedMNIST has its labels
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{path}: {what} have shape {array.shape}; they must be one a record")
    return array


def _as_texts(array: NDArray[np.generic], what: str, path: Path, odd: Odd | None) -> list[str]:
    """Return each value as text; "" for an invalid one if problems are collected."""
    kind = array.dtype.kind
    if kind == "f" and odd is None and not np.isfinite(array).all():
        raise DataError(f"{path}: {what} hold NaN or infinity; take those records out")
    if kind in "biuf":
        return [cell_text(value) or "" for value in array]
    if kind == "S":
        return [_text(value.decode(errors="replace"), odd) for value in array.tolist()]
    if kind == "U":
        # A file may have invalid code points in its text, which cannot be encoded.
        return [_text(value, odd) for value in array.tolist()]
    raise DataError(f"{path}: {what} are {array.dtype}; save them as numbers or text")


def _text(value: object, odd: Odd | None) -> str:
    text = clean_name(str(value))
    if odd is not None and (len(text) > LONGEST_TEXT or not is_utf8(text)):
        return ""
    return text
