"""A tokenizer that is open, after checks of what it may do to one text.

Its file may be hostile. A text that grows without a bound ends the process, from inside a library that
nothing stops; so the steps that rewrite a text are looked at first, and a text of which they could make too
much is not brought to them. None may draw at random, and none may search a word of any length for its longest
known piece.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any, Final

from pate.errors import DataError
from pate.foreign import json_value

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
