"""A picture's file as pixels of 8 bits: the one place where it is opened, and where what it says is applied.

A folder of pictures is hostile. Left to itself Pillow tries each of its decoders on the first bytes of a
file, whatever its name, and one of them starts Ghostscript.

A file says more than its pixels: which side is up, that 0 is white, that parts are transparent, how many
bits a value has. Each reader gets the same pixels and the same notes, so that party, server and student
agree.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from pate.data.odd import DEEP, WINDOW, DeepImagesError
from pate.errors import DataError, PateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from numpy.typing import NDArray

    from pate.data.values import Window

#: Height, width, channels.
Size: TypeAlias = tuple[int, int, int]

#: What is read of files, by content. A camera's MPO, a JPEG with previews behind it, is opened as JPEG.
FORMATS: Final = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
#: Most characters of Pillow's reason in a message.
_LONGEST: Final = 120
#: Pillow's modes of grey values: up to 8 bits, more than 8, and 32.
_GREY_MODES: Final = frozenset({"1", "L", "LA", "La"})
_DEEP_MODES: Final = frozenset({"I;16", "I;16B", "I;16L", "I;16N"})
_WIDE_MODES: Final = frozenset({"I", "F"})
#: Its modes of colours whose red, green and blue are in the file.
_SCREEN_MODES: Final = frozenset({"RGB", "RGBA", "RGBX", "RGBa", "P", "PA"})
#: What a file is decoded from, where Pillow would only keep the upper byte of each value. A BMP's "BGR;16"
#: is none: it has 5, 6 and 5 bits.
_CUT: Final = re.compile(r";16[BLN]")
#: What Pillow multiplies grey values of 2 and 4 bits by, but not the one that is transparent.
_SCALES: Final = {"L;2": 85, "L;4": 17}
#: Fields of a TIFF's header, and the values that matter.
_PHOTOMETRIC: Final = 262
_BITS: Final = 258
_SAMPLE_FORMAT: Final = 339
_SIGNED: Final = (2,)

#: Notes of what is lost in reading a picture.
FRAMES: Final = "each has several frames: only the first one is read"
CLEAR: Final = "each has transparent parts: they are read as black"
TURNED: Final = "each has EXIF data that cannot be read: it is not turned"


class Picture(NamedTuple):
    """What is read of a file."""

    pixels: NDArray[np.uint8]  # (height, width, 1 or 3) uint8, upright, black as 0
    notes: tuple[str, ...]  # what is lost in reading it


@contextlib.contextmanager
def opened(file: Path | BinaryIO, formats: tuple[str, ...] = FORMATS) -> Iterator[Image.Image]:
    """Open a picture, and let any failure until it is closed be one error, with one line.

    Pillow decodes when pixels are asked for, so what is done with them belongs into the ``with``. Pillow's
    bound is 89 million pixels. Errors of this project that are raised within pass.
    """
    name = str(file) if isinstance(file, Path) else "the image"
    try:
        with warnings.catch_warnings():
            # Of odd details that change no pixel; but a decompression bomb is only warned of.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            # By its bytes: a file that Pillow opens by its name is mapped into memory, where it can shrink,
            # and a TIFF that lies on its side is then cut into rows of a wrong length.
            held = file.open("rb") if isinstance(file, Path) else contextlib.nullcontext(file)
            with held as content, Image.open(content, formats=formats) as image:
                yield image
    except PateError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"{name} is not an image that can be read") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError, MemoryError) as error:
        raise DataError(f"{name} has too many pixels; scale it down") from error
    except Exception as error:  # what decoders raise for damaged files has no common base
        reason = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
        raise DataError(f"{name} is damaged or truncated ({reason}); copy it again") from error


def read_picture(path: Path, window: Window | None) -> Picture:
    """Return the picture in a file, by all that the file says of it.

    It stands upright by its EXIF, XMP or TIFF orientation; transparent parts lie on black; where a TIFF
    says that 0 is white it is inverted, after the window, as in DICOM. Colour profiles are not applied.
    Grey files of 9 to 16 bits or with a sign are read by the window; without one they are refused.
    """
    with opened(path) as image:
        notes = []
        # A camera's MPO is a photograph with previews.
        if image.format != "MPO" and getattr(image, "is_animated", False):
            notes.append(FRAMES)
        if image.mode not in _SCREEN_MODES | _GREY_MODES | _DEEP_MODES | _WIDE_MODES:
            notes.append(f"each has the colours {image.mode}: red, green and blue are approximate")
        read_values = _deep_values(image, path)
        if read_values is None:
            pixels, clear = _shallow_pixels(image)
        elif window is None:
            raise DeepImagesError(f"{path} {DEEP}; {WINDOW}")
        else:
            # 0 is white where a TIFF does not say otherwise, as for Pillow of 8 bits.
            inverted = isinstance(image, TiffImageFile) and not image.tag_v2.get(_PHOTOMETRIC)
            values = read_values()
            pixels = grey_by(values, window, inverted=inverted)
            gone = values == image.info.get("transparency", -1)
            pixels[gone] = 0
            clear = bool(gone.any())
        if clear:
            notes.append(CLEAR)
        try:
            up = _side_up(image)
        except Exception:  # noqa: BLE001 - a damaged note of a camera; the pixels were read
            notes.append(TURNED)
        else:
            pixels = _upright(pixels, up)
        return Picture(pixels, tuple(notes))


def told_size(path: Path, *, upright: bool = True) -> Size | None:
    """Return height, width and channels by a file's header, None if it cannot be read."""
    try:
        with opened(path) as image:
            width, height = image.size
            grey = image.mode in _GREY_MODES | _DEEP_MODES | _WIDE_MODES
            # Pillow tells the size of an upright TIFF.
            if upright and width != height and image.format != "TIFF":
                with contextlib.suppress(Exception):  # as when it is read
                    if _side_up(image, decoded=False) in (5, 6, 7, 8):
                        width, height = height, width
            return height, width, 1 if grey else 3
    except DataError:
        return None


def windowed(
    values: NDArray[np.integer] | NDArray[np.floating], window: Window
) -> NDArray[np.uint8]:
    """Return grey values of 8 bits: 0 up to the window's low end, 255 from its high one, halves up."""
    low, high = window
    # As floats: exact for whole numbers. Within 32 bits no quotient is near enough to a half that is not
    # one, at least 2^-33 away, to be rounded to it.
    inside = np.clip(values.astype(np.float64), low, high) - low
    return np.floor(255 * inside / (high - low) + 0.5).astype(np.uint8)


def grey_by(
    values: NDArray[np.integer],
    window: Window,
    *,
    slope: float = 1.0,
    intercept: float = 0.0,
    inverted: bool = False,
) -> NDArray[np.uint8]:
    """Return a grey picture, (height, width, 1), of (height, width) values of 8 or 16 bits.

    The window is of ``slope`` times a value and ``intercept``; inverted, its low end is white.
    """
    # By a table of all values, which is smaller than a large image as floats.
    plain = np.dtype(f"u{values.dtype.itemsize}")
    every = np.arange(2 ** (8 * plain.itemsize), dtype=plain).view(values.dtype)
    table = windowed(every * slope + intercept, window)
    made: NDArray[np.uint8] = (255 - table if inverted else table)[values.view(plain)]
    return made[..., np.newaxis]


def _deep_values(image: Image.Image, path: Path) -> Callable[[], NDArray[np.integer]] | None:
    """Return what reads the grey values of a picture that needs a window; None if it needs none."""
    tiff = image.tag_v2 if isinstance(image, TiffImageFile) else {}
    signed, coded = tiff.get(_SAMPLE_FORMAT) == _SIGNED, _coded(image)
    most = 255
    if image.format == "PPM":
        most = coded[-1] if isinstance(coded, tuple) else 65535 if image.mode == "I" else 255
    if image.mode in _DEEP_MODES:
        return lambda: np.asarray(image).astype(np.uint16)
    if image.mode == "I" and signed and tiff.get(_BITS) == (16,):
        return lambda: np.asarray(image).astype(np.int16)
    if image.mode == "I" and image.format == "PPM":
        # Pillow scales them so that the largest that the file allows is 65535: back, which is exact.
        exact = np.rint(np.arange(2**16) * (most / 65535)).astype(np.uint16)
        return lambda: exact[np.asarray(image)]
    if image.mode in _WIDE_MODES or signed:
        kind = "32 bits" if image.mode in _WIDE_MODES else "8 bits with a sign"
        raise DataError(f"{path} has pixels of {kind}; save it with 8 or 16 bits")
    if most > 255 or _CUT.search(str(coded)):
        raise DataError(f"{path} has more than 8 bits a channel in colour; save it with 8 bits")
    return None


def _coded(image: Image.Image) -> tuple[Any, ...] | str:
    """Return how the values of an image that was not loaded lie in its file, as Pillow names it."""
    return next((tile.args or "" for tile in getattr(image, "tile", ())), "")


def _shallow_pixels(image: Image.Image) -> tuple[NDArray[np.uint8], bool]:
    """Return a picture's pixels, and whether parts of it are transparent."""
    grey, scale = image.mode in _GREY_MODES, _SCALES.get(str(_coded(image)))
    image.load()
    if image.has_transparency_data:
        if scale is not None:
            image.info["transparency"] *= scale
        over = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        if over.getchannel("A").getextrema() != (255, 255):
            laid = Image.new("RGBA", over.size, (0, 0, 0, 255))
            laid.alpha_composite(over)
            return np.array(laid)[..., : 1 if grey else 3], True
    made = np.array(image.convert("L" if grey else "RGB"), dtype=np.uint8)
    return made[..., np.newaxis] if grey else made, False


def _side_up(image: Image.Image, *, decoded: bool = True) -> int:
    """Return how a picture lies in its file, by EXIF, XMP or TIFF: 1 to 8, 1 for upright.

    A PNG is only decoded if something stands behind its pixels, unless they are ``decoded`` already.
    """
    plain = not decoded and isinstance(image, PngImageFile) and not _says_more(image)
    exif = Image.Image.getexif(image) if plain else image.getexif()
    told = exif.get(ExifTags.Base.Orientation)
    return told if isinstance(told, int) and 1 <= told <= 8 else 1


def _says_more(image: PngImageFile) -> bool:
    """Return whether a PNG file has a text or EXIF behind its pixels."""
    content, behind = image.fp, False
    assert content is not None  # noqa: S101 - it is open
    before = content.tell()
    content.seek(8)
    while len(head := content.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if behind and kind in (b"eXIf", b"iTXt", b"tEXt", b"zTXt"):
            break
        behind |= kind == b"IDAT"
        content.seek(length + 4, os.SEEK_CUR)
    content.seek(before)
    return len(head) == 8


def _upright(pixels: NDArray[np.uint8], up: int) -> NDArray[np.uint8]:
    if up in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if up in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if up in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
