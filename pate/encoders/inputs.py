"""From an image of any size, or a text, to the numbers that an encoder's graph takes.

A tokenizer's file may be hostile. A text that grows without a bound ends the process, from inside a library
that nothing stops; so the steps that rewrite a text are looked at first, and a text of which they could make
too much is not brought to them. None may draw at random, and none may search a word of any length for its
longest known piece.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from PIL import Image

from pate.errors import DataError
from pate.foreign import json_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.encoders.description import ImageSteps


def prepared(pixels: NDArray[np.uint8], steps: ImageSteps) -> NDArray[np.float32]:
    """Return one image of any size as the graph takes it, (1, channels, height, width) or channels last.

    Pillow scales 8-bit images in whole numbers, so the result is the same on every machine.
    """
    if pixels.ndim != 3 or pixels.dtype != np.uint8 or pixels.shape[2] not in (1, 3):
        raise DataError("an image must be (height, width, 1 or 3) uint8")
    if not pixels.size:
        raise DataError("the image has no pixels")
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    image = _scaled(image.convert("L" if steps.channels == 1 else "RGB"), steps)
    size = steps.height, steps.width, steps.channels
    values: NDArray[np.float32] = np.array(image, dtype=np.float32).reshape(size)
    values /= np.float32(255)
    values -= np.array(steps.mean, dtype=np.float32)
    values /= np.array(steps.spread, dtype=np.float32)
    if steps.layout == "first":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values[np.newaxis])


def _scaled(image: Image.Image, steps: ImageSteps) -> Image.Image:
    """Return the image in the graph's size. Only what is used is scaled: memory is bounded by that size."""
    wide, high = image.size
    filter_ = Image.Resampling[steps.resample.upper()]
    size = steps.width, steps.height
    if steps.fit == "crop":
        # The largest part of the graph's proportions, then the share of it in the middle.
        scale = min(wide / steps.width, high / steps.height) * steps.crop
        part_wide, part_high = steps.width * scale, steps.height * scale
        left, above = (wide - part_wide) / 2, (high - part_high) / 2
        box = (
            max(left, 0.0), max(above, 0.0),
            min(left + part_wide, float(wide)), min(above + part_high, float(high)),
        )  # fmt: skip
        return image.resize(size, filter_, box)
    if steps.fit == "stretch":
        return image.resize(size, filter_)
    scale = min(steps.width / wide, steps.height / high)
    inner = max(1, round(wide * scale)), max(1, round(high * scale))
    made = Image.new(image.mode, size)
    made.paste(image.resize(inner, filter_), ((size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2))
    return made


# Texts

#: Bytes that the steps may make of a text; the library needs some forty times as much memory.
MOST_MADE: Final = 128 << 20
#: Characters of a word that WordPiece cuts; its time is their square.
MOST_OF_WORD: Final = 1000
#: Steps by the bytes that each makes of one, at most: Unicode's longest compatible form is 33 of 3.
_GROWTH: Final = {
    "BertNormalizer": 3, "ByteLevel": 2, "Lowercase": 1.5, "NFC": 3, "NFD": 6, "NFKC": 11, "NFKD": 11,
    "Nmt": 1, "Strip": 1, "StripAccents": 1,
}  # fmt: skip


def opened_tokenizer(content: bytes, longest: int) -> tuple[Any, int]:
    """Return a tokenizer of a file, and of how many bytes a text of ``longest`` tokens may be for it."""
    import tokenizers

    try:
        made = tokenizers.Tokenizer.from_str(content.decode())
        made.no_padding()
        made.enable_truncation(longest)
        steps = json_value(made.to_str())  # in the one form that all older ones are read as
    except Exception as error:  # its errors have no common base but this
        raise DataError(f"the tokenizer cannot be read: {first_line(error)}") from error
    if steps["model"].get("dropout"):
        raise DataError("the tokenizer draws at random (dropout): a record would have no place")
    if steps["model"].get("max_input_chars_per_word", 0) > MOST_OF_WORD:
        raise DataError(
            f"the tokenizer cuts words of more than {MOST_OF_WORD} characters: its time for a text would "
            "tell of the text"
        )
    growth = 1.0 if steps["normalizer"] is None else _growth(steps["normalizer"])
    return made, int(MOST_MADE / growth)


def _growth(step: dict[str, Any]) -> float:
    """Return how many bytes a step makes of one, at most; infinity for one that is not known."""
    match step["type"]:
        case "Sequence":
            return math.prod(map(_growth, step["normalizers"]))
        case "Replace":
            found = step["pattern"].get("String", "")
            # A regular expression may match nothing, before each character.
            rest = 0 if found else 1
            return max(1.0, rest + len(step["content"].encode()) / max(1, len(found.encode())))
        case "Prepend":
            return 1 + len(step["prepend"].encode())
        case "Precompiled":
            return _longest_of_map(step["precompiled_charsmap"])
        case other:
            return _GROWTH.get(other, math.inf)


def _longest_of_map(text: str) -> float:
    """Return the bytes of the longest text that a compiled map of characters makes."""
    try:
        raw = base64.b64decode(text)
    except (binascii.Error, ValueError):
        return math.inf
    # The length of a search tree and the tree, then the texts, each with a zero at its end.
    texts = raw[4 + int.from_bytes(raw[:4], "little") :]
    return max(1, *map(len, texts.split(b"\0")))


def first_line(error: Exception) -> str:
    """Return what an error of a library says, as one line that can be shown."""
    text = str(error).strip() or type(error).__name__
    return "".join(each if each.isprintable() else " " for each in text.splitlines()[0])[:300]
