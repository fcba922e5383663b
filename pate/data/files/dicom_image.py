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

from pate.data.files.pictures import DEEP, grey_by, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_TAGS: Final = {
    "patient": 0x00100020, "study": 0x0020000D, "series": 0x0020000E, "image": 0x00080018,
    "samples": 0x00280002, "photometric": 0x00280004, "planar": 0x00280006, "frames": 0x00280008,
    "rows": 0x00280010, "columns": 0x00280011, "allocated": 0x00280100, "stored": 0x00280101,
    "high": 0x00280102, "signed": 0x00280103, "intercept": 0x00281052, "slope": 0x00281053,
    "lookup": 0x00283000,
}  # fmt: skip
_IDENTITIES: Final = ("patient", "study", "series", "image")
#: Whole numbers that a file must state, the least and the most.
_WHOLE: Final = {
    "frames": (1, _MOST_FRAMES), "rows": (1, 2**16), "columns": (1, 2**16), "allocated": (1, 64),
    "stored": (1, 64),
}  # fmt: skip
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
    """What is read of a file before its pixels; texts are "" if the file has none.

    ``words`` tells whether bytes are in words of 16 bits, ``start`` where the pixels begin in the file, and
    ``length`` their bytes, undefined of compressed ones.
    """

    patient: str
    study: str
    series: str
    image: str
    frames: int
    rows: int
    columns: int
    samples: int
    photometric: str
    planar: int
    allocated: int
    stored: int
    signed: bool
    slope: float
    intercept: float
    syntax: str
    words: bool
    start: int
    length: int

    @property
    def deep(self) -> bool:
        """Whether values are no grey values of 8 bits, so that a window is needed."""
        scaled = (self.slope, self.intercept) != (1.0, 0.0)
        return self.samples == 1 and (self.stored > 8 or self.signed or scaled)

    @property
    def frame_bytes(self) -> int:
        """Bytes of one uncompressed frame."""
        made = self.rows * self.columns * self.samples * self.allocated // 8
        return made // 3 * 2 if self.photometric == "YBR_FULL_422" and self.native else made

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
                counted, stop_when=lambda tag, *_: tag in _STOPS, specific_tags=list(_TAGS.values())
            )
            found = {name: _value(held, tag) for name, tag in _TAGS.items() if tag in held}
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
    if tag in _GROUPS or "lookup" in found:
        raise UnusableError(
            "the image has a lookup table, or frames with values of their own: save plain images"
        )
    if tag != _PIXELS or "rows" not in found:
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


def _value(held: Any, tag: int) -> object:
    """Return the value of an element; of the lookup table only that it is there."""
    return True if tag == _TAGS["lookup"] else held[tag].value


def _checked(found: dict[str, object], syntax: str, words: bool, start: int, length: int) -> Header:
    samples = _whole(found.get("samples"), 1, 3)
    photometric = _text(found.get("photometric"))
    if photometric not in (_GREY if samples == 1 else _COLOURS):
        kind = photometric if photometric in ("PALETTE COLOR", "YBR_PARTIAL_420") else "unknown"
        raise UnusableError(f"the image's colours ({kind}) are not read: save grey or RGB")
    if found.get("frames") in (None, ""):
        found["frames"] = 1
    told: dict[str, Any] = {name: _text(found.get(name)) for name in _IDENTITIES}
    told |= {name: _whole(found.get(name), *ends) for name, ends in _WHOLE.items()}
    header = Header(
        **told,
        samples=samples,
        photometric=photometric,
        planar=_whole(found.get("planar", 0), 0, 1) if samples == 3 else 0,
        signed=bool(_whole(found.get("signed", 0), 0, 1)),
        slope=_number(found.get("slope"), 1.0),
        intercept=_number(found.get("intercept"), 0.0),
        syntax=syntax,
        words=words,
        start=start,
        length=length,
    )
    if header.allocated not in (8, 16) or (
        samples == 3 and (header.allocated, header.stored, header.signed) != (8, 8, False)
    ):
        raise UnusableError("the image has neither 8 to 16 bits of grey nor 8 bits of each colour")
    high = _whole(found.get("high", header.stored - 1), 0, 63)
    if (
        header.stored > header.allocated
        or high != header.stored - 1
        or samples == 2
        or header.rows * header.columns * samples > _MOST_VALUES
        or (photometric == "YBR_FULL_422" and header.columns % 2)
        or not header.slope
    ):
        raise UnusableError(_LIES)
    return header


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
        if values.shape != (header.rows, header.columns, 3)[: 2 if header.samples == 1 else 3]:
            raise UnusableError(_LIES)
        yield _as_bytes(values, header, window)


def _decoded(
    file: BinaryIO, header: Header, at: int, parts: list[tuple[int, int]]
) -> NDArray[np.integer]:
    """Return the values of a frame, (rows, columns) or (rows, columns, 3), by pydicom's decoders."""
    from pydicom.encaps import encapsulate
    from pydicom.pixels.decoders.base import get_decoder

    source: Any = file
    number, syntax, planar, plugin = header.frames, header.syntax, header.planar, ""
    if header.native:
        file.seek(header.start)
    else:
        content = b"".join(_read(file, *part) for part in parts)
        number, at = 1, 0
        if syntax == _RLE:
            source, syntax, planar = _unpacked(content, header), _LITTLE_ENDIAN[1], 1
        else:
            _require_size(content, header)
            source, plugin = encapsulate([content]), "pillow"
    about: Any = {
        "rows": header.rows,
        "columns": header.columns,
        "number_of_frames": number,
        "samples_per_pixel": header.samples,
        "bits_allocated": header.allocated,
        "bits_stored": header.stored,
        "pixel_representation": int(header.signed),
        "photometric_interpretation": header.photometric,
        "planar_configuration": planar,
        "pixel_keyword": "PixelData",
        "pixel_vr": "OW" if header.words else "OB",
    }
    values: NDArray[np.integer]
    values, _ = get_decoder(syntax).as_array(source, index=at, decoding_plugin=plugin, **about)
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
    most = 2 * header.rows * header.columns * header.samples * header.allocated // 8 + 2**16
    if any(not each or sum(length for _, length in each) > most for each in grouped):
        raise UnusableError(_LIES)
    return grouped


def _unpacked(content: bytes, header: Header) -> bytes:
    """Return a run-length coded frame as plain little-endian planes.

    DICOM PS3.5, annex G: a table of segments, one for each byte of a value from the highest on. Pillow
    unpacks each into exactly as many bytes as the frame has pixels, whatever it says.
    """
    width, pixels = header.allocated // 8, header.rows * header.columns
    table = struct.unpack("<16L", content[:64])
    number = header.samples * width
    if table[0] != number or 64 * len(content) < number * pixels:  # two bytes make 128 at most
        raise UnusableError(_LIES)
    ends = [*table[2 : number + 1], len(content)]
    made = np.empty((header.samples, pixels, width), dtype=np.uint8)
    for at, (start, end) in enumerate(zip(table[1 : number + 1], ends, strict=True)):
        if not 64 <= start < end <= len(content):
            raise UnusableError(_LIES)
        # One long line, as runs may go on from one row of the image to the next.
        plane = Image.frombytes("L", (pixels, 1), content[start:end], "packbits", "L")
        made[at // width, :, width - 1 - at % width] = np.asarray(plane)[0]
    return made.tobytes()


def _require_size(content: bytes, header: Header) -> None:
    """Check that a JPEG has the size and the colours that the file states, before it is decoded."""
    if header.syntax in _JPEG and header.stored != 8:
        raise UnusableError(_unread("JPEG of more than 8 bits"))
    # A bare codestream: of a JPEG 2000 file with boxes another size could be decoded than is stated.
    start = b"\xff\xd8" if header.syntax in _JPEG else b"\xff\x4f\xff\x51"
    modes = ("L", "I;16") if header.samples == 1 else ("RGB", "YCbCr")
    with opened(io.BytesIO(content), ("JPEG", "JPEG2000")) as image:
        told = image.size == (header.columns, header.rows) and image.mode in modes
    if not told or not content.startswith(start):
        raise UnusableError(_LIES)


def _as_bytes(
    values: NDArray[np.integer], header: Header, window: Window | None
) -> NDArray[np.uint8]:
    """Return a frame in 8 bits, black as 0."""
    if header.samples == 3:
        return np.ascontiguousarray(values, dtype=np.uint8)
    if not header.deep:
        window = (0, 2**header.stored - 1)
    assert window is not None  # noqa: S101 - checked
    return grey_by(
        values,
        window,
        slope=header.slope,
        intercept=header.intercept,
        inverted=header.photometric == "MONOCHROME1",
    )
