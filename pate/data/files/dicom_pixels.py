"""The frames of a DICOM file as pixels of 8 bits, one at a time.

No decoder is given more room than the header states, which was checked against the file.
"""

from __future__ import annotations

import io
import itertools
import os
import struct
import warnings
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from PIL import Image

from pate.data.files.dicom_header import (
    BIG_ENDIAN,
    JPEG,
    JPEG_2000,
    LIES,
    LITTLE_ENDIAN,
    MOST_FRAMES,
    RLE,
    UnusableError,
    unread,
)
from pate.data.files.pictures import DEEP, grey_by, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pate.data.files.dicom_header import Header
    from pate.data.values import Window


def frames(file: BinaryIO, header: Header, window: Window | None) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames of a file, (height, width, 1 or 3) each, one at a time.

    Args:
        file: open for reading.
        header: of it.
        window: the values that become black and white, after the file's own slope and intercept; not used
            for grey values of 8 bits, nor for colours.

    Raises:
        UnusableError: if there is no window for deep values, or a frame cannot be read.
    """
    if header.deep and window is None:
        raise UnusableError(f"the image {DEEP}")
    parts = [] if header.native else _parts(file, header)
    for at in range(header.frames):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if not header.native:
                    content = b"".join(_read(file, *part) for part in parts[at])
                else:
                    content = _plain(file, header, at)
                values = _decoded(content, header)
        except UnusableError:
            raise
        except Exception:  # noqa: BLE001 - as above
            raise UnusableError("the image's pixels are damaged") from None
        wanted = (header.rows, header.columns, 3)[: 2 if header.samples == 1 else 3]
        if values.shape != wanted:
            raise UnusableError(LIES)
        yield _as_bytes(values, header, window)


def _read(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    content = file.read(length)
    if len(content) != length:
        raise UnusableError(LIES)
    return content


def _plain(file: BinaryIO, header: Header, at: int) -> bytes:
    """Return an uncompressed frame, little endian."""
    start, end = at * header.frame_bytes, (at + 1) * header.frame_bytes
    if header.syntax != BIG_ENDIAN or not (header.allocated == 16 or header.words):
        return _read(file, header.start + start, header.frame_bytes)
    # Bytes are in words over all frames: one of an odd length begins or ends within a word.
    before = start % 2
    whole = _read(file, header.start + start - before, before + end - start + end % 2)
    swapped = np.frombuffer(whole, ">u2").astype("<u2").tobytes()
    return swapped[before : before + end - start]


def _parts(file: BinaryIO, header: Header) -> list[list[tuple[int, int]]]:
    """Return, for each compressed frame, where in the file its parts lie, and their lengths.

    Raises:
        UnusableError: if they cannot be told apart, or are too long for the frame.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(header.start)
    found: list[tuple[int, int]] = []
    while True:
        head = file.read(8)
        if len(head) < 8:
            raise UnusableError(LIES)
        tag, length = struct.unpack("<2sxxL", head)[0] + head[2:4], struct.unpack("<4xL", head)[0]
        if tag == b"\xfe\xff\xdd\xe0":
            break
        at = file.tell()
        if tag != b"\xfe\xff\x00\xe0" or at + length > size or len(found) > 2 * MOST_FRAMES:
            raise UnusableError(LIES)
        found.append((at, length))
        file.seek(at + length)
    table, *parts = found or [(0, 0)]
    if header.frames == 1:
        grouped = [parts]
    elif len(parts) == header.frames:
        grouped = [[part] for part in parts]
    else:
        if table[1] != 4 * header.frames:
            raise UnusableError(LIES)
        told = struct.unpack(f"<{header.frames}L", _read(file, *table))
        first = table[0] + table[1]
        starts = [first + each for each in told]
        # The first part of each frame, in order, and nothing before it.
        index = {at - 8: number for number, (at, _) in enumerate(parts)}
        marks = [index.get(each, -1) for each in starts]
        if marks[:1] != [0] or any(a >= b for a, b in itertools.pairwise(marks)):
            raise UnusableError(LIES)
        ends = [*marks[1:], len(parts)]
        grouped = [parts[a:b] for a, b in zip(marks, ends, strict=True)]
    most = 2 * header.rows * header.columns * header.samples * header.allocated // 8 + 2**16
    if any(not each or sum(length for _, length in each) > most for each in grouped):
        raise UnusableError(LIES)
    return grouped


def _decoded(content: bytes, header: Header) -> NDArray[np.integer]:
    """Return the values of a frame, (rows, columns) or (rows, columns, 3)."""
    from pydicom.encaps import encapsulate
    from pydicom.pixels.decoders.base import get_decoder

    syntax, planar = LITTLE_ENDIAN[1], header.planar
    plugin = ""
    if header.syntax == RLE:
        content, planar = _unpacked(content, header), 1
    elif header.syntax in (*JPEG, *JPEG_2000):
        _require_size(content, header)
        content, syntax, plugin = encapsulate([content]), header.syntax, "pillow"
    about: Any = {
        "rows": header.rows,
        "columns": header.columns,
        "number_of_frames": 1,
        "samples_per_pixel": header.samples,
        "bits_allocated": header.allocated,
        "bits_stored": header.stored,
        "pixel_representation": int(header.signed),
        "photometric_interpretation": header.photometric,
        "planar_configuration": planar,
        "pixel_keyword": "PixelData",
        "pixel_vr": "OW",
    }
    values: NDArray[np.integer]
    values, _ = get_decoder(syntax).as_array(content, index=0, decoding_plugin=plugin, **about)
    return values


def _unpacked(content: bytes, header: Header) -> bytes:
    """Return a run-length coded frame as plain little-endian planes.

    DICOM PS3.5, annex G: a table of segments, one for each byte of a value from the highest on. Pillow
    unpacks each into exactly as many bytes as the frame has pixels, whatever it says.
    """
    width, pixels = header.allocated // 8, header.rows * header.columns
    table = struct.unpack("<16L", content[:64])
    number = header.samples * width
    if table[0] != number or 64 * len(content) < number * pixels:  # two bytes make 128 at most
        raise UnusableError(LIES)
    ends = [*table[2 : number + 1], len(content)]
    made = np.empty((header.samples, pixels, width), dtype=np.uint8)
    for at, (start, end) in enumerate(zip(table[1 : number + 1], ends, strict=True)):
        if not 64 <= start < end <= len(content):
            raise UnusableError(LIES)
        # One long line, as runs may go on from one row of the image to the next.
        plane = Image.frombytes("L", (pixels, 1), content[start:end], "packbits", "L")
        made[at // width, :, width - 1 - at % width] = np.asarray(plane)[0]
    return made.tobytes()


def _require_size(content: bytes, header: Header) -> None:
    """Check that a JPEG has the size and the colours that the file states, before it is decoded."""
    if header.syntax in JPEG and header.stored != 8:
        raise UnusableError(unread("JPEG of more than 8 bits"))
    # A bare codestream: of a JPEG 2000 file with boxes another size could be decoded than is stated.
    start = b"\xff\xd8" if header.syntax in JPEG else b"\xff\x4f\xff\x51"
    modes = ("L", "I;16") if header.samples == 1 else ("RGB", "YCbCr")
    with opened(io.BytesIO(content), ("JPEG", "JPEG2000")) as image:
        told = image.size == (header.columns, header.rows) and image.mode in modes
    if not told or not content.startswith(start):
        raise UnusableError(LIES)


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
