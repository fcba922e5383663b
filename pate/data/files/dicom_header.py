"""The few values of a DICOM file's header that are needed.

A file may lie. Its header is read within bounds, its sizes are compared with each other and with the
length of its pixels before anything is allocated, and each error names a kind of fault, never a value.
"""

from __future__ import annotations

import io
import logging
import math
import os
import re
import struct
import warnings
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

#: Most values of one frame: a mammogram has 25 million.
MOST_VALUES: Final = 2**25
#: Most frames of one file.
MOST_FRAMES: Final = 100_000
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
#: Where reading a header stops: at the groups of frames that have values of their own, or at the pixels.
_GROUPS: Final = (0x52009229, 0x52009230)
_STOPS: Final = (*_GROUPS, 0x7FE00008, 0x7FE00009, _PIXELS)
LITTLE_ENDIAN: Final = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1")
BIG_ENDIAN: Final = "1.2.840.10008.1.2.2"
RLE: Final = "1.2.840.10008.1.2.5"
JPEG: Final = ("1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51")
JPEG_2000: Final = ("1.2.840.10008.1.2.4.90", "1.2.840.10008.1.2.4.91")
_GREY: Final = ("MONOCHROME1", "MONOCHROME2")
_COLOURS: Final = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
_DAMAGED: Final = "the file is damaged, or no DICOM file"
LIES: Final = "the image's sizes do not fit each other or its pixels"


class UnusableError(Exception):
    """A file or frame that cannot be used; its text is the reason, and has no value of the file."""


@dataclass(frozen=True)
class Header:
    """What is read of a file before its pixels; texts are "" if the file has none.

    Attributes:
        patient: PatientID.
        study: StudyInstanceUID.
        series: SeriesInstanceUID.
        image: SOPInstanceUID.
        frames: number of frames.
        rows: their height.
        columns: their width.
        samples: 1 for grey, 3 for colours.
        photometric: interpretation of the samples.
        planar: 1 if each colour has a plane of its own.
        allocated: bits of a value in the file, 8 or 16.
        stored: bits of it that are used.
        signed: whether values are signed.
        slope: what each value is multiplied by.
        intercept: what is added then.
        syntax: transfer syntax.
        words: whether bytes are in words of 16 bits.
        start: where the pixels begin in the file, in bytes.
        length: bytes of the pixels; of compressed ones undefined.
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
        return self.syntax in (*LITTLE_ENDIAN, BIG_ENDIAN)


class _Counted(io.RawIOBase):
    """A file from which a bounded number of bytes can be read, in a bounded number of reads."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes, self._reads = _HEADER_BYTES, _HEADER_READS

    def read(self, size: int = -1) -> bytes:
        if size < 0:  # only done to unpack a deflated file as a whole
            raise UnusableError(unread("Deflated Explicit VR Little Endian"))
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
    """Return the header of a file that is open for reading.

    Raises:
        UnusableError: if it has no image, or one that cannot be read.
    """
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
                counted,
                stop_when=lambda tag, *_: tag in _STOPS,
                specific_tags=list(_TAGS.values()),
            )
            found = {name: _value(held, tag) for name, tag in _TAGS.items() if tag in held}
            syntax = str(held.file_meta.get("TransferSyntaxUID", ""))
            implicit, little = held.original_encoding
    except UnusableError:
        raise
    except Exception:  # noqa: BLE001 - what it raises for damaged files has no common base
        raise UnusableError(_DAMAGED) from None
    if not little and syntax != BIG_ENDIAN:
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
            raise UnusableError(LIES)
        # Behind the byte that makes an odd length even, what is left over is 0; else it could be pixels
        # of another size than is stated.
        file.seek(header.start + wanted)
        if file.read(left)[wanted % 2 :].strip(b"\0") or (not little and words and length % 2):
            raise UnusableError(LIES)
    elif length != _UNDEFINED:
        raise UnusableError(LIES)
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
    told = found.get("frames")
    header = Header(
        patient=_text(found.get("patient")),
        study=_text(found.get("study")),
        series=_text(found.get("series")),
        image=_text(found.get("image")),
        frames=1 if told in (None, "") else _whole(told, 1, MOST_FRAMES),
        rows=_whole(found.get("rows"), 1, 2**16),
        columns=_whole(found.get("columns"), 1, 2**16),
        samples=samples,
        photometric=photometric,
        planar=_whole(found.get("planar", 0), 0, 1) if samples == 3 else 0,
        allocated=_whole(found.get("allocated"), 1, 64),
        stored=_whole(found.get("stored"), 1, 64),
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
        or header.rows * header.columns * samples > MOST_VALUES
        or (photometric == "YBR_FULL_422" and header.columns % 2)
        or not header.slope
    ):
        raise UnusableError(LIES)
    return header


def _text(value: object) -> str:
    text = value.strip("\0 ") if isinstance(value, str) else ""
    return text if len(text) <= _LONGEST else ""


def _whole(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise UnusableError(LIES)
    return int(value)


def _number(value: object, other: float) -> float:
    if value is None or value == "":
        return other
    try:
        number = float(value)  # type: ignore[arg-type] # what is none raises
    except (TypeError, ValueError, OverflowError):
        raise UnusableError(LIES) from None
    if not math.isfinite(number) or abs(number) > 2**31:
        raise UnusableError(LIES)
    return number


def unread(name: str) -> str:
    """Return the reason why pixels of a transfer syntax are not read."""
    return f"the file's transfer syntax ({name}) is not read: save it uncompressed"


def _require_readable(syntax: str) -> None:
    if syntax in (*LITTLE_ENDIAN, BIG_ENDIAN, RLE, *JPEG, *JPEG_2000):
        return
    from pydicom.config import IGNORE
    from pydicom.uid import UID

    # An unknown one is its own name, and could be any text; so would be a warning of it.
    plain = re.fullmatch(r"[0-9.]{1,64}", syntax)
    name = UID(syntax, validation_mode=IGNORE).name if plain else syntax
    raise UnusableError(unread("unknown" if name == syntax else name))


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
