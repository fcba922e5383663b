"""``encoder.json``: what an encoder is, who trained it on what, and how an input is brought to it.

The digest of the description is the digest of the encoder: the description has the SHA-256 of each file, and
each step before and after the graph.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import Final, Literal

from pate.data.embeddings import WIDEST
from pate.errors import DataError
from pate.exact import parse, read, write

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
    """A file of an encoder's folder.

    Attributes:
        file: its name, without a folder.
        sha256: of its content.
        size: bytes.
    """

    file: str
    sha256: bytes
    size: int

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
    """From an image to the graph's input.

    Attributes:
        height: pixels that the graph takes.
        width: pixels that the graph takes.
        channels: 1 (grey) or 3 (red, green, blue).
        fit: how an image of other proportions is scaled.
        crop: for the fit "crop": the share of the largest fitting part that is kept, in its middle.
        resample: the filter of Pillow.
        mean: by channel, subtracted from values that go from 0 to 1.
        spread: by channel, by which they are divided then.
        layout: order of the graph's input: channels, height, width ("first"), or channels "last".
    """

    height: int
    width: int
    channels: Literal[1, 3]
    fit: Fit
    crop: float
    resample: Resample
    mean: tuple[float, ...]
    spread: tuple[float, ...]
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
    """From a text to the graph's input.

    Attributes:
        tokenizer: a file of the package ``tokenizers``.
        longest: tokens of a text, its marks included; the rest of a longer text is not used.
    """

    tokenizer: FileOf
    longest: int

    def __post_init__(self) -> None:
        if not 0 < self.longest <= MOST_TOKENS:
            raise DataError(f"the longest text has {self.longest} tokens: 1 to {MOST_TOKENS}")
        if self.tokenizer.size > MOST_TOKENIZER:
            raise DataError(f"{self.tokenizer.file} is larger than {MOST_TOKENIZER >> 20} MiB")


@dataclass(frozen=True)
class Description:
    """What ``encoder.json`` says.

    Attributes:
        name: of the encoder.
        trained: by whom it was trained, on what.
        licence: of its weights.
        model: the ONNX file.
        output: of the graph, the one that is used.
        pooling: from this output to one row.
        width: coordinates of an embedding.
        images: the steps before the graph, or None if it takes texts.
        texts: the steps before the graph, or None if it takes images.
    """

    name: str
    trained: str
    licence: str
    model: FileOf
    output: str
    pooling: Pooling
    width: int
    images: ImageSteps | None
    texts: TextSteps | None

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
        """Parse the content of ``encoder.json``.

        Raises:
            DataError: if it is not a description of an encoder; it names the field.
        """
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
