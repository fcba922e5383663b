"""Raw records as embeddings: read, tokenized within a bound, and cached row by row."""

from __future__ import annotations

import base64
import math
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from party.voting.own_file import OwnFile
from pate.data.encoded import Record
from pate.data.odd import Odd, UnusableRecordError
from pate.data.read import read_dataset, read_inputs
from pate.data.schema import Schema
from pate.encoders import cache as module
from pate.encoders.cache import Cache
from pate.encoders.encoder import Encoder, hash_of
from pate.encoders.inputs import _growth
from pate.encoders.reading import Reader
from pate.errors import DataError, SchemaError
from tests.support.encoders import tiny_encoders as tiny
from tests.support.readings import rows_of

ENCODER = "ab" * 32
KEYS = [bytes([at]) * 32 for at in range(20)]
ROWS = np.arange(80, dtype=np.int16).reshape(20, 4)


def filled(folder: Path) -> Path:
    with Cache(folder, ENCODER, 4) as cache:
        for key, row in zip(KEYS, ROWS, strict=True):
            cache.put(key, row)
    return folder / f"{ENCODER}.sqlite"


def found(folder: Path, encoder: str = ENCODER, width: int = 4) -> int:
    with Cache(folder, encoder, width) as cache:
        got = [cache.get(key) for key in KEYS]
    assert all(row is None or np.array_equal(row, ROWS[at]) for at, row in enumerate(got))
    return sum(row is not None for row in got)


def test_rows_are_found_again_by_their_encoder(tmp_path: Path) -> None:
    path = filled(tmp_path / "c")
    assert found(tmp_path / "c") == 20
    assert found(tmp_path / "c", encoder="cd" * 32) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_an_altered_row_is_not_used(tmp_path: Path) -> None:
    path = filled(tmp_path / "c")
    with closing(sqlite3.connect(path)) as link, link:
        link.execute("UPDATE rows SET row = x'0000000000000000' WHERE key = ?", (KEYS[3],))
        link.execute("UPDATE rows SET row = NULL WHERE key = ?", (KEYS[4],))
        link.execute("UPDATE rows SET key = ? WHERE key = ?", (b"\xff" * 32, KEYS[5]))
    link.close()
    assert found(tmp_path / "c") == 17


def test_a_damaged_file_is_begun_anew_and_no_file_is_no_error(tmp_path: Path) -> None:
    for at in (0, 50, 4096, 8000):
        path = filled(tmp_path / str(at))
        content = bytearray(path.read_bytes())
        content[at : at + 600] = b"\xa5" * len(content[at : at + 600])
        path.write_bytes(content)
        assert found(path.parent) <= 20  # what is found is right
        filled(path.parent)
        assert found(path.parent) == 20
    (tmp_path / "c").write_text("a file where the folder should be")
    filled(tmp_path / "c")
    assert found(tmp_path / "c") == 0


def test_a_full_cache_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    filled(tmp_path / "c")
    assert 0 < found(tmp_path / "c") < 20


def test_a_few_encoders_are_kept(tmp_path: Path) -> None:
    for at in range(8):
        path = tmp_path / "c" / f"{at:02x}{'0' * 62}.sqlite"
        Cache(path.parent, path.stem, 4).__exit__()
        os.utime(path, (at, at))
    kept = sorted(path.stem[:2] for path in (tmp_path / "c").glob("*.sqlite"))
    assert kept == ["04", "05", "06", "07"]


def test_an_encoder_does_not_run_for_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Encoder.open(tiny.text_folder(tmp_path / "texts"), trial=False)
    texts = ["good", "", "bad film", "a film"]
    with Cache(tmp_path / "c", opened.digest, opened.width) as cache:
        first, good = opened.rows(texts, odd=Odd(), cache=cache)
    ran: list[Record] = []
    row = opened.row

    def seen(record: Record) -> NDArray[np.int16]:
        ran.append(record)
        return row(record)

    monkeypatch.setattr(opened, "row", seen)
    with Cache(tmp_path / "c", opened.digest, opened.width) as cache:
        again, _ = opened.rows(texts, odd=Odd(), cache=cache)
    assert ran == [""]  # an unusable record is judged anew
    assert np.array_equal(first, again)
    assert good.tolist() == [True, False, True, True]


def test_records_that_differ_have_other_hashes() -> None:
    flat = np.zeros((2, 8, 1), dtype=np.uint8)
    records: list[Record] = [flat, flat.reshape(4, 4, 1), flat.reshape(8, 2, 1), "", "a"]
    assert len({hash_of(each) for each in records}) == 5


@pytest.fixture
def encoder(tmp_path: Path) -> Reader:
    folder = tiny.image_folder(tmp_path / "tiny")
    return Reader(Encoder.open(folder, trial=False), cache=tmp_path / "cache")


def class_folders(folder: Path, count: int = 6) -> list[Any]:
    """Class folders of images, each of another size."""
    drawn = np.random.default_rng(0)
    made = []
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for at in range(count):
            pixels = drawn.integers(0, 256, size=(9 + at, 20 - at, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{at}.png")
            made.append(pixels)
    return made


def test_a_folder_of_images_of_any_sizes_is_embedded(encoder: Reader, tmp_path: Path) -> None:
    pictures = class_folders(tmp_path / "data")
    found = read_dataset(tmp_path / "data", encoder=encoder)
    assert np.array_equal(rows_of(found), [encoder.encoder.row(each) for each in pictures])
    assert found.classes == ("cat", "dog")
    schema = Schema.of(found.inputs)
    assert (schema.encoder, schema.source, schema.width) == (encoder.digest, "images", 6)
    again = read_dataset(tmp_path / "data", encoder=encoder, schema=schema, odd=Odd())
    assert np.array_equal(again.inputs.values, rows_of(found))  # type: ignore[union-attr]
    public = read_inputs(tmp_path / "data", encoder=encoder)
    assert np.array_equal(rows_of(public), rows_of(found))


def test_another_encoder_is_refused_before_a_record_is_read(
    encoder: Reader, tmp_path: Path
) -> None:
    (tmp_path / "data" / "cat").mkdir(parents=True)
    (tmp_path / "data" / "cat" / "0.png").write_bytes(b"would be an error of its own")
    other = Schema.parse(f"embeddings 6 by {'ab' * 32} of images")
    own = OwnFile(data=tmp_path / "data", encoder=encoder)
    with pytest.raises(SchemaError, match=f"and --encoder is tiny .*{encoder.digest}"):
        own.read(other, ("cat", "dog"))
    with pytest.raises(SchemaError, match="name its folder with --encoder"):
        OwnFile(data=tmp_path / "data").read(other, ("cat", "dog"))
    assert SchemaError.exit_code == 11
    np.savez(tmp_path / "a.npz", images=np.zeros((4, 8, 8), np.uint8), labels=np.arange(4) % 2)
    for made in (None, encoder):
        with pytest.raises(SchemaError, match="--encoder"):
            OwnFile(data=tmp_path / "a.npz", encoder=made).read(other, ("0", "1"))


def test_progress_is_shown(encoder: Reader, tmp_path: Path) -> None:
    from contextlib import contextmanager

    moved: list[tuple[int, int]] = []
    titles = []

    @contextmanager
    def bar(title: str) -> Any:
        titles.append(title)
        yield lambda done, total: moved.append((done, total))

    class_folders(tmp_path / "data", 2)
    read_inputs(tmp_path / "data", encoder=Reader(encoder.encoder, bar=bar))
    assert titles == ["embedding images"]
    assert moved == [(1, 4), (2, 4), (3, 4), (4, 4)]


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
