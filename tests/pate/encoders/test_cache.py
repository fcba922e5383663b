"""The cache of embeddings: found again, verified row by row, and begun anew when it is damaged."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.data.encoded import Record
from pate.data.odd import Odd
from pate.encoders import cache as module
from pate.encoders.cache import Cache
from pate.encoders.encoder import Encoder, hash_of
from tests.support.encoders import tiny_encoders as tiny

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
