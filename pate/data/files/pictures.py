"""The one place where a picture's file is opened: its format is one of a few, and its pixels are bounded.

A folder of pictures is hostile. Left to itself Pillow tries each of its decoders on the first bytes of a
file, whatever its name, and one of them starts Ghostscript.
"""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

from PIL import Image, UnidentifiedImageError

from pate.errors import DataError, PateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

#: What is read of files, by content. A camera's MPO, a JPEG with previews behind it, is opened as JPEG.
FORMATS: Final = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
#: Most characters of Pillow's reason in a message.
_LONGEST: Final = 120


@contextlib.contextmanager
def opened(file: Path | BinaryIO, formats: tuple[str, ...] = FORMATS) -> Iterator[Image.Image]:
    """Open a picture, and let any failure until it is closed be one error, with one line.

    Pillow decodes when pixels are asked for, so what is done with them belongs into the ``with``.

    Args:
        file: its path, or its bytes as a file.
        formats: that are read, by their names in Pillow.

    Raises:
        DataError: if it cannot be opened, has another format or too many pixels (Pillow's bound, 89
            million), or is damaged. Errors of this project that are raised within pass.
    """
    name = str(file) if isinstance(file, Path) else "the image"
    try:
        with warnings.catch_warnings():
            # Of odd details that change no pixel; but a decompression bomb is only warned of.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=formats) as image:
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
