"""The data of the rows: each record in one part with its own label, always the same."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from benchmarks.data import Split, deal, encoded, glyph, images, tables
from benchmarks.data.encoded import copies, divided, embeddings, labelled, reader_of
from benchmarks.data.glyph import CHARACTERS, CLASSES, Sizes
from pate.data.embeddings import Embeddings
from pate.data.values import Dataset, Images, Table
from pate.encoders.encoder import Encoder
from pate.errors import DataError, UsageError
from tests.support.encoders import tiny_encoders as tiny
from tests.support.encoders.embedded import embedded
from tests.support.there import there

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.data.encoded import Record
    from pate.data.values import Inputs


#: Read once: a hundred thousand rows.
STAYS = cache(tables.read_stays)


@pytest.fixture
def files(test_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATE_TEST_DATA", str(test_data))
    monkeypatch.setattr(tables, "read_stays", STAYS)


def sizes(split: Split) -> tuple[int, int, int]:
    return len(split.private), len(split.public), len(split.test)


def pixels(part: Dataset) -> NDArray[np.uint8]:
    assert isinstance(part.inputs, Images)
    return part.inputs.pixels.reshape(len(part), -1)


@pytest.mark.usefixtures("files")
def test_halves_of_mnists_test_images_are_all_of_them_once() -> None:
    whole, split = pixels(images.read_mnist("t10k")), images.mnist_halves()
    assert sizes(split) == (60_000, 5_000, 5_000)
    halves = np.concatenate([pixels(split.public), pixels(split.test)])
    assert sorted(map(bytes, halves)) == sorted(map(bytes, whole))
    # Neither the first half nor the last, which are by different writers.
    in_order = (halves[:5_000] == whole[:5_000]).all(axis=1)
    assert in_order.sum() < 50


@pytest.mark.usefixtures("files")
def test_adult() -> None:
    split = tables.adult()
    assert sizes(split) == (32_561, 12_000, 4_281)
    assert np.bincount(split.private.labels).tolist() == [24_720, 7_841]
    assert split.public.labels.sum() + split.test.labels.sum() == 3_846
    # Two columns are left out, and nothing of the label is left in.
    assert "fnlwgt" not in split.queries.schema()
    assert split.queries.schema().count(":number") == 5


@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_no_patient_of_diabetes_is_in_two_parts() -> None:
    split = tables.diabetes()
    patients = [
        set(part.groups.tolist())
        for part in (split.private, split.public, split.test)
        if part.groups is not None
    ]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 69_990
    whole = there(split.whole)
    assert np.array_equal(whole.test.labels, split.test.labels)
    assert np.array_equal(whole.private.labels, split.private.labels)
    assert split.queries.schema().count(":") == len(tables.SCORED)
    assert "readmitted" not in whole.queries.schema()


@pytest.mark.slow
@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("question", "hidden"),
    [("readmitted", "readmitted"), ("groups", "diag_1"), ("days", "time_in_hospital")],
)
def test_no_question_about_diabetes_has_its_answer_among_the_columns(
    question: str, hidden: str
) -> None:
    split = tables.asked(question)
    for each in (split, there(split.whole)):
        assert hidden not in each.queries.schema()
        assert len(each.private.inputs) >= len(split.private)
    parts = (split.private, split.public, split.test, split.validation)
    patients = [
        set(part.groups.tolist()) for part in parts if part is not None and part.groups is not None
    ]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 69_990
    if question == "readmitted":  # a patient votes with one stay
        assert split.private.groups is not None
        assert len(np.unique(split.private.groups)) == len(split.private)


@pytest.mark.parametrize(
    ("code", "group"),
    [("250", "diabetes"), ("250.83", "diabetes"), ("249", "other"), ("786", "respiratory"),
     ("785.5", "circulatory"), ("V57", "other"), ("E909", "other"), ("?", ""), ("38", "other")],
)  # fmt: skip
def test_diagnoses_have_the_groups_of_strack(code: str, group: str) -> None:
    assert tables.diagnosis_group(code) == group


@pytest.mark.usefixtures("files")
def test_every_hospital_is_in_every_part() -> None:
    split = tables.heart()
    assert sum(sizes(split)) == 920
    assert dict(zip(tables.SITES, split.sizes, strict=True)) == {
        "cleveland": 182, "hungarian": 176, "switzerland": 74, "va": 120,
    }  # fmt: skip
    # Kinds are written alike at all sites, and a cholesterol of 0 is none.
    table = split.private.inputs
    cells = dict(zip(table.names, table.columns, strict=True))  # type: ignore[union-attr]
    assert set(cells["thal"].tolist()) == {"", "3", "6", "7"}
    assert np.nanmin(cells["chol"]) > 0


def test_pneumonia_is_split_without_overlap(test_data: Path, files: None) -> None:
    split = images.pneumonia()
    assert sizes(split) == (3500, 1732, 624)
    with np.load(test_data / "medmnist" / "pneumoniamnist.npz") as file:
        held = np.concatenate([file["train_images"], file["val_images"]])
    both = np.concatenate([pixels(split.private), pixels(split.public)])
    # Every image of the two parts is one of the file, and as often.
    assert sorted(map(bytes, both)) == sorted(map(bytes, held.reshape(len(held), -1)))
    assert split.private.labels.sum() + split.public.labels.sum() == 3494 + 389
    assert split.validation is not None
    last = split.public.take(range(1732 - 524, 1732))
    assert (pixels(split.validation) == pixels(last)).all()
    assert (split.validation.labels == last.labels).all()


def records(count: int, *, patients: int | None = None) -> Dataset:
    table = Table(("number",), (np.arange(float(count)),))
    labels = np.arange(count) % 2
    groups = None if patients is None else np.array([f"p{at % patients}" for at in range(count)])
    return Dataset(table, labels.astype(np.int64), ("no", "yes"), groups)


def test_every_record_goes_to_one_party_and_a_patient_too() -> None:
    parts = deal(records(23), 5, seed=3)
    assert sorted(len(part) for part in parts) == [4, 4, 5, 5, 5]
    assert sorted(np.concatenate(parts).tolist()) == list(range(23))
    whole = records(60, patients=13)
    held = [set(there(whole.groups)[rows].tolist()) for rows in deal(whole, 5, seed=0)]
    assert sum(map(len, held)) == len(set.union(*held)) == 13
    first, other = (deal(records(50), 5, seed=seed)[0] for seed in (0, 1))
    assert set(first.tolist()) != set(other.tolist())
    with pytest.raises(UsageError, match="3 records or groups"):
        deal(records(9, patients=3), 4, seed=0)


def test_parts_of_other_classes_and_other_sites_are_refused() -> None:
    odd = Dataset(records(4).inputs, np.zeros(4, dtype=np.int64), ("yes", "no"))
    with pytest.raises(UsageError, match="other classes"):
        Split(records(9), odd, records(4), "")
    with pytest.raises(UsageError, match="validation part has other classes"):
        Split(records(9), records(4), records(4), "", validation=odd)
    with pytest.raises(UsageError, match="the sites are not the private part"):
        Split(records(9), records(4), records(4), "", sizes=(4, 4))


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


#: One face of each family that comes with matplotlib is enough here.
_FEW = ("DejaVu Sans Book", "DejaVu Serif Book", "STIXGeneral Regular")
_SMALL = Sizes(private=1000, public=300, test=200)


@pytest.fixture(scope="module")
def faces() -> tuple[glyph.Face, ...]:
    found = glyph.find_faces()
    return tuple(face for face in found if face.name in _FEW)


@pytest.fixture(scope="module")
def split(faces: tuple[glyph.Face, ...]) -> Split:
    return glyph.make(faces, 3, _SMALL)


def glyphs(inputs: object) -> NDArray[np.uint8]:
    assert isinstance(inputs, Images)
    return inputs.pixels


def test_characters_and_faces_are_each_there_once(faces: tuple[glyph.Face, ...]) -> None:
    assert len(set(CHARACTERS)) == len(CLASSES) == 150
    assert list(CLASSES) == sorted(CLASSES)
    # Those that come with matplotlib have every class; none draws boxes.
    assert [face.name for face in faces] == list(_FEW)
    names = [face.name for face in glyph.find_faces()]
    assert names == sorted(set(names))
    assert not [name for name in names if "Last" in name or name.startswith("cm")]
    with pytest.raises(DataError, match="fonts-dejavu-extra"):
        glyph.outlines(())


def test_every_class_has_an_outline_and_only_twins_share_one(
    faces: tuple[glyph.Face, ...],
) -> None:
    drawn = glyph.outlines(faces[:1])[0]
    assert drawn.shape == (150, 84, 84)
    assert all((master > 0).sum() > 20 for master in drawn)
    assert len({master.tobytes() for master in drawn}) == 140


def test_parts_have_their_sizes_and_a_seed_decides_them(
    split: Split, faces: tuple[glyph.Face, ...]
) -> None:
    parts = (split.private, split.public, split.test)
    assert [glyphs(part.inputs).shape for part in parts] == [(n, 28, 28, 1) for n in _SMALL]
    assert "3 font faces" in split.note
    assert len({row for part in parts for row in part.inputs.row_hashes()}) == 1500
    small = Sizes(private=50, public=10, test=10)
    first, again, other = (glyph.make(faces[:1], seed, small) for seed in (3, 3, 4))
    assert np.array_equal(glyphs(first.private.inputs), glyphs(again.private.inputs))
    assert np.array_equal(first.private.labels, again.private.labels)
    assert not np.array_equal(glyphs(first.private.inputs), glyphs(other.private.inputs))


def test_classes_are_skewed_one_to_twenty() -> None:
    shares = np.sort(glyph.frequencies(0))
    assert shares.sum() == pytest.approx(1)
    assert shares[-1] / shares[0] == pytest.approx(150**0.6)


def test_one_label_of_ten_is_wrong_half_of_them_by_look() -> None:
    # 40,000 labels: the share of wrong ones lies within 0.01 of 0.1, 6.6 standard deviations.
    truth = np.full(40_000, CHARACTERS.index("0"))
    given = glyph.mislabel(truth, 0.1, np.random.default_rng(1))
    wrong = given[given != truth]
    assert len(wrong) / len(truth) == pytest.approx(0.1, abs=0.01)
    # And of about 4,000 wrong ones, half and 2 % lie with the look-alikes, 0.05 is 6 deviations.
    alike = np.isin(wrong, [CHARACTERS.index(other) for other in "Ooσ"])
    assert alike.mean() == pytest.approx(0.51, abs=0.05)
    assert len(np.unique(wrong)) > 100


def test_a_character_without_a_look_alike_is_wrong_by_chance() -> None:
    truth = np.full(5000, CHARACTERS.index("#"))
    given = glyph.mislabel(truth, 1.0, np.random.default_rng(1))
    assert (given != truth).all()
    assert np.bincount(given).max() < 100
