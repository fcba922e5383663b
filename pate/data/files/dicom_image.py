"""The image of one DICOM file: the few values of its header that are needed, and its frames in 8 bits.

A file may lie. Its header is read within bounds, its sizes are compared with each other and with the
length of its pixels before anything is allocated, no decoder is given more room than the header states,
and each error names a kind of fault, never a value.
"""

from __future__ import annotations

import io
import itertools
import logging
import math
import os
import re
import struct
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
from PIL import Image

from pate.data.files.pictures import grey_by, opened
from pate.data.odd import DEEP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from pate.data.values import Window

#: Most values of one frame: a mammogram has 25 million.
_MOST_VALUES: Final = 2**25
#: Most frames of one file.
_MOST_FRAMES: Final = 100_000
#: Most bytes of a header that are read, and in how many reads; unwanted values are skipped.
_HEADER_BYTES: Final = 1 << 20
_HEADER_READS: Final = 20_000
#: Most characters of a UID or a patient's identifier.
_LONGEST: Final = 256

_PIXELS: Final = 0x7FE00010
_UNDEFINED: Final = 0xFFFFFFFF
#: Of patient, study, series and image.
_IDENTITIES: Final = (0x00100020, 0x0020000D, 0x0020000E, 0x00080018)
#: Whole numbers by the names of pydicom's decoders: the tag, the least, the most, and what counts if a file
#: does not state one.
_WHOLE: Final[dict[str, tuple[int, int, int, int | None]]] = {
    "number_of_frames": (0x00280008, 1, _MOST_FRAMES, 1), "rows": (0x00280010, 1, 2**16, None),
    "columns": (0x00280011, 1, 2**16, None), "samples_per_pixel": (0x00280002, 1, 3, None),
    "bits_allocated": (0x00280100, 1, 64, None), "bits_stored": (0x00280101, 1, 64, None),
    "pixel_representation": (0x00280103, 0, 1, 0),
}  # fmt: skip
_PHOTOMETRIC, _PLANAR, _HIGH, _INTERCEPT, _SLOPE, _LOOKUP = (
    0x00280004, 0x00280006, 0x00280102, 0x00281052, 0x00281053, 0x00283000,
)  # fmt: skip
_TAGS: Final = (
    *_IDENTITIES, *(tag for tag, *_ in _WHOLE.values()), _PHOTOMETRIC, _PLANAR, _HIGH, _INTERCEPT,
    _SLOPE, _LOOKUP,
)  # fmt: skip
#: Where reading a header stops: at the groups of frames that have values of their own, or at the pixels.
_GROUPS: Final = (0x52009229, 0x52009230)
_STOPS: Final = (*_GROUPS, 0x7FE00008, 0x7FE00009, _PIXELS)
_LITTLE_ENDIAN: Final = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1")
_BIG_ENDIAN: Final = "1.2.840.10008.1.2.2"
_RLE: Final = "1.2.840.10008.1.2.5"
_JPEG: Final = ("1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51")
_JPEG_2000: Final = ("1.2.840.10008.1.2.4.90", "1.2.840.10008.1.2.4.91")
_GREY: Final = ("MONOCHROME1", "MONOCHROME2")
_COLOURS: Final = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
_DAMAGED: Final = "the file is damaged, or no DICOM file"
_LIES: Final = "the image's sizes do not fit each other or its pixels"


class UnusableError(Exception):
    """A file or frame that cannot be used; its text is the reason, and has no value of the file."""


@dataclass(frozen=True)
class Header:
    """What is read of a file before its pixels; texts are "" if the file has none."""

    patient: str
    study: str
    series: str
    image: str
    options: Mapping[str, Any]  # what pydicom's decoders take, checked
    slope: float
    intercept: float
    syntax: str
    start: int  # where the pixels begin in the file
    length: int  # their bytes, undefined of compressed ones

    @property
    def frames(self) -> int:
        """How many images the file has."""
        return int(self.options["number_of_frames"])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a frame's values: rows and columns, and three colours if it has them."""
        size = self.options["rows"], self.options["columns"]
        return size if self.options["samples_per_pixel"] == 1 else (*size, 3)

    @property
    def deep(self) -> bool:
        """Whether values are no grey values of 8 bits, so that a window is needed."""
        scaled = (self.slope, self.intercept) != (1.0, 0.0)
        signed = self.options["pixel_representation"] == 1
        return len(self.shape) == 2 and (self.options["bits_stored"] > 8 or signed or scaled)

    @property
    def unpacked_bytes(self) -> int:
        """Bytes of one frame's values."""
        return math.prod(self.shape) * int(self.options["bits_allocated"]) // 8

    @property
    def frame_bytes(self) -> int:
        """Bytes of one uncompressed frame in its file."""
        halved = self.options["photometric_interpretation"] == "YBR_FULL_422" and self.native
        return self.unpacked_bytes // 3 * 2 if halved else self.unpacked_bytes

    @property
    def native(self) -> bool:
        """Whether its pixels are not compressed."""
        return self.syntax in (*_LITTLE_ENDIAN, _BIG_ENDIAN)


class _Counted(io.RawIOBase):
    """A file from which a bounded number of bytes can be read, in a bounded number of reads."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes, self._reads = _HEADER_BYTES, _HEADER_READS

    def read(self, size: int = -1) -> bytes:
        if size < 0:  # only done to unpack a deflated file as a whole
            raise UnusableError(_unread("Deflated Explicit VR Little Endian"))
        self._bytes -= size
        self._reads -= 1
        if self._bytes < 0 or self._reads < 0:
            raise UnusableError("the file's header is too long, or its lengths are wrong")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def is_dicom(content: bytes) -> bool:
    """Return whether a file with these first 132 bytes says that it is a DICOM file."""
    return content[128:132] == b"DICM"


def read_header(file: BinaryIO) -> Header:
    """Return the header of a file that is open for reading."""
    from pydicom.filereader import read_partial

    # Its messages quote values of the file.
    logging.getLogger("pydicom").disabled = True
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    counted: Any = _Counted(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = read_partial(
                counted, stop_when=lambda tag, *_: tag in _STOPS, specific_tags=list(_TAGS)
            )
            # Of the lookup table only that it is there.
            found = {tag: tag == _LOOKUP or held[tag].value for tag in _TAGS if tag in held}
            syntax = str(held.file_meta.get("TransferSyntaxUID", ""))
            implicit, little = held.original_encoding
    except UnusableError:
        raise
    except Exception:  # noqa: BLE001 - what it raises for damaged files has no common base
        raise UnusableError(_DAMAGED) from None
    if not little and syntax != _BIG_ENDIAN:
        raise UnusableError(_DAMAGED)
    _require_readable(syntax)
    tag, words, length = _element(file, implicit=bool(implicit), little=bool(little))
    if tag in _GROUPS or _LOOKUP in found:
        raise UnusableError(
            "the image has a lookup table, or frames with values of their own: save plain images"
        )
    if tag != _PIXELS or _WHOLE["rows"][0] not in found:
        raise UnusableError("the file has no pixels, or not as whole numbers")
    header = _checked(found, syntax, words, file.tell(), length)
    if header.native:
        wanted = header.frame_bytes * header.frames
        left = length - wanted
        if not 0 <= left < max(header.frame_bytes, 2) or header.start + length > size:
            raise UnusableError(_LIES)
        # Behind the byte that makes an odd length even, what is left over is 0; else it could be pixels
        # of another size than is stated.
        file.seek(header.start + wanted)
        if file.read(left)[wanted % 2 :].strip(b"\0") or (not little and words and length % 2):
            raise UnusableError(_LIES)
    elif length != _UNDEFINED:
        raise UnusableError(_LIES)
    return header


def _checked(found: dict[int, object], syntax: str, words: bool, start: int, length: int) -> Header:
    options: dict[str, Any] = {}
    for name, (tag, least, most, other) in _WHOLE.items():
        value = found.get(tag, other)
        if name == "number_of_frames" and value in (None, ""):
            value = other
        options[name] = _whole(value, least, most)
    samples, allocated = options["samples_per_pixel"], options["bits_allocated"]
    stored, photometric = options["bits_stored"], _text(found.get(_PHOTOMETRIC))
    if photometric not in (_GREY if samples == 1 else _COLOURS):
        kind = photometric if photometric in ("PALETTE COLOR", "YBR_PARTIAL_420") else "unknown"
        raise UnusableError(f"the image's colours ({kind}) are not read: save grey or RGB")
    options |= {
        "photometric_interpretation": photometric,
        "planar_configuration": _whole(found.get(_PLANAR, 0), 0, 1) if samples == 3 else 0,
        "pixel_keyword": "PixelData",
        "pixel_vr": "OW" if words else "OB",
    }
    slope, intercept = _number(found.get(_SLOPE), 1.0), _number(found.get(_INTERCEPT), 0.0)
    if allocated not in (8, 16) or (
        samples == 3 and (allocated, stored, options["pixel_representation"]) != (8, 8, 0)
    ):
        raise UnusableError("the image has neither 8 to 16 bits of grey nor 8 bits of each colour")
    if (
        stored > allocated
        or _whole(found.get(_HIGH, stored - 1), 0, 63) != stored - 1
        or samples == 2
        or options["rows"] * options["columns"] * samples > _MOST_VALUES
        or (photometric == "YBR_FULL_422" and options["columns"] % 2)
        or not slope
    ):
        raise UnusableError(_LIES)
    patient, study, series, image = (_text(found.get(tag)) for tag in _IDENTITIES)
    return Header(patient, study, series, image, options, slope, intercept, syntax, start, length)


def _text(value: object) -> str:
    text = value.strip("\0 ") if isinstance(value, str) else ""
    return text if len(text) <= _LONGEST else ""


def _whole(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise UnusableError(_LIES)
    return int(value)


def _number(value: object, other: float) -> float:
    if value is None or value == "":
        return other
    try:
        number = float(value)  # type: ignore[arg-type] # what is none raises
    except (TypeError, ValueError, OverflowError):
        raise UnusableError(_LIES) from None
    if not math.isfinite(number) or abs(number) > 2**31:
        raise UnusableError(_LIES)
    return number


def _unread(name: str) -> str:
    """Return the reason why pixels of a transfer syntax are not read."""
    return f"the file's transfer syntax ({name}) is not read: save it uncompressed"


def _require_readable(syntax: str) -> None:
    if syntax in (*_LITTLE_ENDIAN, _BIG_ENDIAN, _RLE, *_JPEG, *_JPEG_2000):
        return
    from pydicom.config import IGNORE
    from pydicom.uid import UID

    # An unknown one is its own name, and could be any text; so would be a warning of it.
    plain = re.fullmatch(r"[0-9.]{1,64}", syntax)
    name = UID(syntax, validation_mode=IGNORE).name if plain else syntax
    raise UnusableError(_unread("unknown" if name == syntax else name))


def _element(file: BinaryIO, *, implicit: bool, little: bool) -> tuple[int, bool, int]:
    """Return tag, whether it has words of 16 bits, and length of the element at the file's position."""
    order = "<" if little else ">"
    head = file.read(8)
    try:
        if implicit:
            group, element, length = struct.unpack(f"{order}HHL", head)
            return group << 16 | element, True, length
        group, element, kind = struct.unpack(f"{order}HH2s", head[:6])
        (length,) = struct.unpack(f"{order}L", file.read(4))
    except struct.error:
        return 0, False, 0
    return group << 16 | element, kind == b"OW", length


def frames(file: BinaryIO, header: Header, window: Window | None) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames of a file, (height, width, 1 or 3) each; the window is of scaled deep values."""
    if header.deep and window is None:
        raise UnusableError(f"the image {DEEP}")
    parts = [] if header.native else _parts(file, header)
    for at in range(header.frames):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values = _decoded(file, header, at, parts[at] if parts else [])
        except UnusableError:
            raise
        except Exception:  # noqa: BLE001 - as above
            raise UnusableError("the image's pixels are damaged") from None
        if values.shape != header.shape:
            raise UnusableError(_LIES)
        yield _as_bytes(values, header, window)


def _decoded(
    file: BinaryIO, header: Header, at: int, parts: list[tuple[int, int]]
) -> NDArray[np.integer]:
    """Return the values of a frame, (rows, columns) or (rows, columns, 3), by pydicom's decoders."""
    from pydicom.encaps import encapsulate
    from pydicom.pixels.decoders.base import get_decoder

    source: Any = file
    syntax, options, plugin = header.syntax, dict(header.options), ""
    if header.native:
        file.seek(header.start)
    else:
        content = b"".join(_read(file, *part) for part in parts)
        options["number_of_frames"], at = 1, 0
        if syntax == _RLE:
            source, syntax = _unpacked(content, header), _LITTLE_ENDIAN[1]
            options["planar_configuration"] = 1
        else:
            _require_size(content, header)
            source, plugin = encapsulate([content]), "pillow"
    values: NDArray[np.integer]
    values, _ = get_decoder(syntax).as_array(source, index=at, decoding_plugin=plugin, **options)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    content = file.read(length)
    if len(content) != length:
        raise UnusableError(_LIES)
    return content


def _parts(file: BinaryIO, header: Header) -> list[list[tuple[int, int]]]:
    """Return, for each compressed frame, where in the file its parts lie, and their lengths."""
    size = file.seek(0, os.SEEK_END)
    file.seek(header.start)
    found: list[tuple[int, int]] = []
    while True:
        head = file.read(8)
        if len(head) < 8:
            raise UnusableError(_LIES)
        tag, length = struct.unpack("<4sL", head)
        if tag == b"\xfe\xff\xdd\xe0":
            break
        at = file.tell()
        if tag != b"\xfe\xff\x00\xe0" or at + length > size or len(found) > 2 * _MOST_FRAMES:
            raise UnusableError(_LIES)
        found.append((at, length))
        file.seek(at + length)
    table, *parts = found or [(0, 0)]
    if header.frames == 1:
        grouped = [parts]
    elif len(parts) == header.frames:
        grouped = [[part] for part in parts]
    else:
        if table[1] != 4 * header.frames:
            raise UnusableError(_LIES)
        told = struct.unpack(f"<{header.frames}L", _read(file, *table))
        first = table[0] + table[1]
        starts = [first + each for each in told]
        # The first part of each frame, in order, and nothing before it.
        index = {at - 8: number for number, (at, _) in enumerate(parts)}
        marks = [index.get(each, -1) for each in starts]
        if marks[:1] != [0] or any(a >= b for a, b in itertools.pairwise(marks)):
            raise UnusableError(_LIES)
        ends = [*marks[1:], len(parts)]
        grouped = [parts[a:b] for a, b in zip(marks, ends, strict=True)]
    most = 2 * header.unpacked_bytes + 2**16
    if any(not each or sum(length for _, length in each) > most for each in grouped):
        raise UnusableError(_LIES)
    return grouped


def _unpacked(content: bytes, header: Header) -> bytes:
    """Return a run-length coded frame as plain little-endian planes.

    DICOM PS3.5, annex G: a table of segments, one for each byte of a value from the highest on. Pillow
    unpacks each into exactly as many bytes as the frame has pixels, whatever it says.
    """
    width, pixels = header.options["bits_allocated"] // 8, math.prod(header.shape[:2])
    samples = header.options["samples_per_pixel"]
    table = struct.unpack("<16L", content[:64])
    number = samples * width
    if table[0] != number or 64 * len(content) < number * pixels:  # two bytes make 128 at most
        raise UnusableError(_LIES)
    ends = [*table[2 : number + 1], len(content)]
    made = np.empty((samples, pixels, width), dtype=np.uint8)
    for at, (start, end) in enumerate(zip(table[1 : number + 1], ends, strict=True)):
        if not 64 <= start < end <= len(content):
            raise UnusableError(_LIES)
        # One long line, as runs may go on from one row of the image to the next.
        plane = Image.frombytes("L", (pixels, 1), content[start:end], "packbits", "L")
        made[at // width, :, width - 1 - at % width] = np.asarray(plane)[0]
    return made.tobytes()


def _require_size(content: bytes, header: Header) -> None:
    """Check that a JPEG has the size and the colours that the file states, before it is decoded."""
    if header.syntax in _JPEG and header.options["bits_stored"] != 8:
        raise UnusableError(_unread("JPEG of more than 8 bits"))
    # A bare codestream: of a JPEG 2000 file with boxes another size could be decoded than is stated.
    start = b"\xff\xd8" if header.syntax in _JPEG else b"\xff\x4f\xff\x51"
    modes = ("L", "I;16") if len(header.shape) == 2 else ("RGB", "YCbCr")
    with opened(io.BytesIO(content), ("JPEG", "JPEG2000")) as image:
        told = image.size == header.shape[1::-1] and image.mode in modes
    if not told or not content.startswith(start):
        raise UnusableError(_LIES)


def _as_bytes(
    values: NDArray[np.integer], header: Header, window: Window | None
) -> NDArray[np.uint8]:
    """Return a frame in 8 bits, black as 0."""
    if len(header.shape) == 3:
        return np.ascontiguousarray(values, dtype=np.uint8)
    if not header.deep:
        window = (0, 2 ** header.options["bits_stored"] - 1)
    assert window is not None  # noqa: S101 - checked
    return grey_by(
        values,
        window,
        slope=header.slope,
        intercept=header.intercept,
        inverted=header.options["photometric_interpretation"] == "MONOCHROME1",
    )
