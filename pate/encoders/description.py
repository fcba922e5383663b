"""``encoder.json``: what an encoder is, who trained it on what, and how an input is brought to it.

The digest of the description is the digest of the encoder: the description has the SHA-256 of each file, and
each step before and after the graph.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pate.data.embeddings import WIDEST
from pate.errors import DataError
from pate.exact import parse, read, write

if TYPE_CHECKING:
    from pathlib import Path

FORMAT: Final = "pate-encoder/1"
#: The description's name in an encoder's folder.
FILE: Final = "encoder.json"
#: Prefix in a draft where a person has to decide.
TODO: Final = "TODO"
#: Largest description, in bytes.
MOST_BYTES: Final = 1 << 16
#: Largest graph, in bytes. A protobuf message cannot be larger than 2 GiB.
MOST_MODEL: Final = 1 << 30
#: Largest tokenizer, in bytes.
MOST_TOKENIZER: Final = 64 << 20
#: Most pixels a side, and most tokens of a text, that a graph takes.
MOST_SIDE: Final = 2048
MOST_TOKENS: Final = 8192

#: How an image is scaled: the names of Pillow's filters.
Resample = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
#: Scale the middle part; scale all of it, in its proportions, with black around it; or scale each side.
Fit = Literal["crop", "pad", "stretch"]
#: From a graph's output to one row: it is one already, the mean of the rows, or the first row.
Pooling = Literal["none", "mean", "first"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_LONGEST_NAME, _LONGEST_TEXT = 100, 500


@dataclass(frozen=True)
class FileOf:
    """A file of an encoder's folder."""

    file: str  # its name, without a folder
    sha256: bytes  # of its content
    size: int  # bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.file) or self.file == FILE:
            raise DataError(f"{self.file!r:.120} is no name of a file in the encoder's folder")
        if len(self.sha256) != 32 or self.size < 1:
            raise DataError(f"{self.file} needs a SHA-256 of 64 digits and a size in bytes")

    @classmethod
    def of(cls, file: str, content: bytes) -> FileOf:
        """Return the entry of a file with this content."""
        return cls(file, hashlib.sha256(content).digest(), len(content))


@dataclass(frozen=True)
class ImageSteps:
    """From an image to the graph's input."""

    height: int  # pixels that the graph takes
    width: int  # pixels that the graph takes
    channels: Literal[1, 3]  # 1 (grey) or 3 (red, green, blue)
    fit: Fit  # how an image of other proportions is scaled
    # for the fit "crop": the share of the largest fitting part that is kept, in its middle
    crop: float
    resample: Resample  # the filter of Pillow
    mean: tuple[float, ...]  # by channel, subtracted from values that go from 0 to 1
    spread: tuple[float, ...]  # by channel, by which they are divided then
    # order of the graph's input: channels, height, width ("first"), or channels "last"
    layout: Literal["first", "last"]

    def __post_init__(self) -> None:
        if not (0 < self.height <= MOST_SIDE and 0 < self.width <= MOST_SIDE):
            raise DataError(f"images of {self.height}x{self.width} pixels: 1 to {MOST_SIDE} a side")
        if len(self.mean) != self.channels or len(self.spread) != self.channels:
            raise DataError("mean and spread have one number a channel")
        if not all(math.isfinite(each) for each in self.mean) or not all(
            1e-6 <= each < math.inf for each in self.spread
        ):
            raise DataError("mean must be finite, and spread 1e-6 or more")
        if not 0 < self.crop <= 1 or (self.crop != 1 and self.fit != "crop"):
            raise DataError('crop is a share above 0 up to 1; it is 1.0 unless fit is "crop"')


@dataclass(frozen=True)
class TextSteps:
    """From a text to the graph's input."""

    tokenizer: FileOf  # a file of the package ``tokenizers``
    longest: int  # tokens of a text, its marks included; the rest of a longer text is not used

    def __post_init__(self) -> None:
        if not 0 < self.longest <= MOST_TOKENS:
            raise DataError(f"the longest text has {self.longest} tokens: 1 to {MOST_TOKENS}")
        if self.tokenizer.size > MOST_TOKENIZER:
            raise DataError(f"{self.tokenizer.file} is larger than {MOST_TOKENIZER >> 20} MiB")


@dataclass(frozen=True)
class Description:
    """What ``encoder.json`` says."""

    name: str  # of the encoder
    trained: str  # by whom it was trained, on what
    licence: str  # of its weights
    model: FileOf  # the ONNX file
    output: str  # of the graph, the one that is used
    pooling: Pooling  # from this output to one row
    width: int  # coordinates of an embedding
    images: ImageSteps | None  # the steps before the graph, or None if it takes texts
    texts: TextSteps | None  # the steps before the graph, or None if it takes images

    def __post_init__(self) -> None:
        for what, longest in (
            ("name", _LONGEST_NAME), ("trained", _LONGEST_TEXT), ("licence", _LONGEST_NAME),
            ("output", _LONGEST_TEXT),
        ):  # fmt: skip
            said = getattr(self, what)
            if not 0 < len(said) <= longest or not said.isprintable() or said != said.strip():
                raise DataError(f"{what} must be one line of 1 to {longest} characters")
            if said.startswith(TODO):
                raise DataError(f"{what} is still to be filled in by a person: {said!r:.80}")
        if not 0 < self.width <= WIDEST:
            raise DataError(f"width is {self.width}: 1 to {WIDEST} coordinates")
        if self.model.size > MOST_MODEL:
            raise DataError(f"{self.model.file} is larger than {MOST_MODEL >> 30} GiB")
        if (self.images is None) == (self.texts is None):
            raise DataError("an encoder takes images or texts: one of the two is null")
        if self.texts is not None and self.texts.tokenizer.file == self.model.file:
            raise DataError("the graph and the tokenizer are two files")

    @property
    def source(self) -> Literal["images", "texts"]:
        """What the encoder takes."""
        return "images" if self.texts is None else "texts"

    @property
    def files(self) -> tuple[FileOf, ...]:
        """The files beside the description."""
        return (self.model,) if self.texts is None else (self.model, self.texts.tokenizer)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical text, 64 hexadecimal digits: the encoder's identity."""
        fields = {"format": FORMAT, **write(self)}
        return hashlib.sha256(
            json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the content of ``encoder.json``; its spaces do not change the digest."""
        return json.dumps({"format": FORMAT, **write(self)}, indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes, what: str = FILE) -> Description:
        """Parse the content of ``encoder.json``."""
        fields = parse(content, most=MOST_BYTES, error=DataError, what=what, form=FORMAT)
        return read(cls, fields, error=DataError, what=what)

    def in_words(self) -> str:
        """Return name and beginning of the digest, for a line."""
        return f"{self.name} ({self.digest[:8]})"

    def statement(self) -> str:
        """Return what a campaign's terms and screens say of it."""
        return (
            f"{self.name}, SHA-256 {self.digest}, licence {self.licence}; the encoder is public; trained "
            f"by: {self.trained}; nothing here protects the records that it was trained on"
        )


def read_at_most(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes; a larger one is not read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(handle, "rb") as file:  # noqa: PTH123  (of a descriptor)
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise DataError(f"{path} is no file")
            if found.st_size > most:
                raise DataError(f"{path} has {found.st_size} bytes, at most {most} are read")
            return file.read(most + 1)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
