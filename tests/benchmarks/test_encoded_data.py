"""The embedded data of the papers' rows: every record in one part, with its own label, always the same."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from benchmarks.data import encoded
from benchmarks.data.encoded import copies, divided, embeddings, labelled, reader_of
from pate.data.embeddings import Embeddings
from pate.encoders.encoder import Encoder
from pate.errors import DataError, UsageError
from tests.support.encoders import tiny_encoders as tiny
from tests.support.encoders.embedded import embedded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.data import Split
    from pate.data.encoded import Record
    from pate.data.values import Dataset, Inputs

#: Inputs of the private, public and test part of each set, and the beginning of a digest of all of them: the
#: figures of the results are of this split.
SETS: Final = {
    "ag_news": (encoded.ag_news, (5_000, 1_600, 1_000), "3df9b4a0"),
    "banking77": (encoded.banking77, (7_500, 2_503, 3_080), "9c7a23d5"),
    "sst2": (encoded.sst2, (5_500, 2_292, 1_821), "6471696a"),
    "cifar10": (encoded.cifar10, (21_000, 4_000, 1_000), "b661bc07"),
    "brain_mri": (encoded.brain_mri, (1_900, 700, 394), "3600b21f"),
}


def row_of(record: Record) -> NDArray[np.int16]:
    """In place of a record's embedding: 64 bits of its digest."""
    held = record.encode() if isinstance(record, str) else record.tobytes()
    return np.frombuffer(hashlib.sha256(held).digest()[:8], dtype="<i2").astype(np.int16)


@dataclass
class Digests:
    """In place of an encoder: it keeps what it made."""

    given: list[Embeddings] = field(default_factory=list)

    def __call__(self, records: Iterable[Record]) -> Embeddings:
        rows = np.stack([row_of(record) for record in records])
        self.given.append(Embeddings(rows, "texts", "ab" * 32))
        return self.given[-1]


@pytest.fixture
def digests(test_data: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PATE_TEST_DATA", str(test_data))
    # To unpack thousands of slices takes long; here a file's place and name tell as much.
    monkeypatch.setattr(
        encoded, "_slice", lambda file: np.frombuffer(_place(file).encode(), dtype=np.uint8)
    )
    # Rows made of digests are like each other by chance; that copies are found has a test of its own.
    monkeypatch.setattr(encoded, "copies", lambda some, _: np.zeros(len(some), dtype=bool))
    return Digests()


def _place(file: Path) -> str:
    return "/".join(file.parts[-3:])


def rows(*parts: Inputs) -> list[bytes]:
    return sorted(each for part in parts for each in part.row_hashes())


def found(part: Dataset, record: Record) -> list[str]:
    """The classes of a record in a part."""
    assert isinstance(part.inputs, Embeddings)
    at = np.flatnonzero((part.inputs.values == row_of(record)).all(axis=1))
    return [part.classes[part.labels[each]] for each in at]


def anywhere(split: Split, record: Record) -> list[str]:
    return [
        label for part in (split.private, split.public, split.test) for label in found(part, record)
    ]


@pytest.mark.parametrize("name", SETS)
def test_every_record_is_in_one_part_and_always_in_the_same(name: str, digests: Any) -> None:
    load, sizes, pinned = SETS[name]
    split: Split = load(digests)
    parts = [part.inputs for part in (split.private, split.public, split.test)]
    assert tuple(map(len, parts)) == sizes
    given = Counter(rows(*digests.given))
    # Of the training slices of brain MRI so many are left over as may be copies.
    assert (given - Counter(rows(*parts))).total() == (270 if name == "brain_mri" else 0)
    assert Counter(rows(*parts)) <= given
    digest = hashlib.sha256(b"".join(each for part in parts for each in part.row_hashes()))
    assert digest.hexdigest()[:8] == pinned
    for size in sizes[:2]:
        assert f"{size:,}" in split.note


def test_labels_are_those_of_the_files(digests: Any) -> None:
    split = encoded.ag_news(digests)
    news = (
        "Fears for T N pension after talks. Unions representing workers at Turner   Newall say they are "
        "'disappointed' after talks with stricken parent firm Federal Mogul."
    )
    assert anywhere(split, news) == ["Business"]
    split = encoded.banking77(digests)
    assert len(split.private.classes) == 77
    assert anywhere(split, "I am still waiting on my card?") == ["card_arrival"]
    split = encoded.sst2(digests)
    assert found(split.test, "no movement , no yuks , not much of anything") == ["negative"]
    split = encoded.brain_mri(digests)
    for label in encoded.TUMOURS:
        name = f"Testing/{label}/image(1).jpg"
        assert found(split.test, np.frombuffer(name.encode(), dtype=np.uint8)) == [label]


def whole(count: int) -> Dataset:
    values = np.arange(2 * count, dtype=np.int16).reshape(count, 2)
    return labelled(Embeddings(values, "images", "cd" * 32), [0, 1] * (count // 2), ("a", "b"))


def test_an_official_test_part_is_kept_apart() -> None:
    rest = divided(whole(20), (10, 4), None, "").test
    assert len(rest) == 6
    official = whole(8)
    split = divided(whole(20), (10, 10), official, "")
    assert split.test is official
    for sizes, test in (((10, 10), None), ((15, 6), official)):
        with pytest.raises(DataError, match="20 records are too few"):
            divided(whole(20), sizes, test, "")


def test_embeddings_are_of_one_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATE_TEST_ENCODERS", raising=False)
    with pytest.raises(UsageError, match="here tiny is needed"):
        reader_of("tiny", tmp_path)
    monkeypatch.setenv("PATE_TEST_ENCODERS", str(tmp_path))
    tiny.text_folder(tmp_path / "tiny")
    first, again = (
        embeddings(reader_of("tiny", tmp_path), ["good film", "bad film"]) for _ in range(2)
    )
    assert len(set(first.row_hashes())) == 2
    assert first.row_hashes() == again.row_hashes()
    assert first.encoder == Encoder.open(tmp_path / "tiny").digest


def test_slices_that_are_in_the_test_part_are_found() -> None:
    some = embedded(40, width=64)
    turned = some.values[[3, 17]] + np.array([[2], [-2]], dtype=np.int16)
    others = embedded(10, width=64, seed=1)
    test = Embeddings(np.vstack([others.values, turned]), some.source, some.encoder)
    assert np.flatnonzero(copies(some, test)).tolist() == [3, 17]
