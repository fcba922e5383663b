"""What a tokenizer may do to one text: grow it within a bound, and draw nothing."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pate.data.odd import UnusableRecordError
from pate.encoders.encoder import Encoder
from pate.encoders.inputs import _growth
from pate.errors import DataError
from tests.support.encoders import tiny_encoders as tiny


def with_tokenizer(place: Path, change: Callable[[Any], None]) -> Path:
    import tokenizers

    made = tokenizers.Tokenizer.from_str(tiny.tokenizer().decode())
    change(made)
    return tiny.write(place, tiny.text_model(), tiny.text_description(), made.to_str().encode())


def test_a_text_of_which_a_tokenizer_makes_gigabytes_is_not_brought_to_it(tmp_path: Path) -> None:
    """It would end the process for a text with the name that it looks for."""
    from tokenizers import normalizers

    def grown(*steps: Any) -> Callable[[Any], None]:
        return lambda made: setattr(made, "normalizer", normalizers.Sequence(list(steps)))

    each = normalizers.Replace("q", "q" * 1000)
    folder = with_tokenizer(tmp_path / "twice", grown(each, each))
    encoder = Encoder.open(folder, trial=False)
    assert len(encoder.rows(["good film"])[0]) == 1
    with pytest.raises(UnusableRecordError, match="could make too much"):
        encoder.rows(["q" * 1000])[0]
    with pytest.raises(UnusableRecordError, match="could make too much"):  # whatever it says
        encoder.rows(["x" * 1000])[0]
    # The trial has a long text.
    with pytest.raises(DataError, match="cannot embed a trial input"):
        Encoder.open(folder)
    # As published tokenizers have them.
    usual = (
        normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"),
    )  # fmt: skip
    plain = Encoder.open(with_tokenizer(tmp_path / "usual", grown(*usual)), trial=False)
    assert len(plain.rows(["é " * 50_000])[0]) == 1


def test_a_map_of_characters_makes_a_text_as_long_as_its_longest_entry(tmp_path: Path) -> None:
    short, long = (
        base64.b64encode(b"\4\0\0\0tree" + b"ab\0" + text + b"\0").decode()
        for text in (b"x" * 33, b"x" * 1_000_000)
    )
    assert [_growth({"type": "Precompiled", "precompiled_charsmap": each}) for each in (short, long)] == [
        33, 1_000_000,
    ]  # fmt: skip
    assert _growth({"type": "of another version"}) == math.inf


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (lambda models: models.BPE({"a": 0, "aa": 1}, [("a", "a")], dropout=0.5), "draws at random"),
        (
            lambda models: models.WordPiece({"[UNK]": 0}, max_input_chars_per_word=10**6),
            "more than 1000 characters",
        ),
    ],
)  # fmt: skip
def test_a_tokenizer_that_draws_or_takes_its_time_is_refused(
    tmp_path: Path, model: Callable[[Any], Any], match: str
) -> None:
    from tokenizers import models

    folder = with_tokenizer(tmp_path / "t", lambda made: setattr(made, "model", model(models)))
    with pytest.raises(DataError, match=match):
        Encoder.open(folder, trial=False)
