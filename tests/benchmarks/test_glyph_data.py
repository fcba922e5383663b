"""The glyph-like data set: 150 classes, skewed, partly mislabelled, reproducible from the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.data import glyph
from benchmarks.data.glyph import CHARACTERS, CLASSES, Sizes
from pate.data.values import Images
from pate.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.data import Split

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


def pixels(inputs: object) -> NDArray[np.uint8]:
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
    assert [pixels(part.inputs).shape for part in parts] == [(n, 28, 28, 1) for n in _SMALL]
    assert "3 font faces" in split.note
    assert len({row for part in parts for row in part.inputs.row_hashes()}) == 1500
    small = Sizes(private=50, public=10, test=10)
    first, again, other = (glyph.make(faces[:1], seed, small) for seed in (3, 3, 4))
    assert np.array_equal(pixels(first.private.inputs), pixels(again.private.inputs))
    assert np.array_equal(first.private.labels, again.private.labels)
    assert not np.array_equal(pixels(first.private.inputs), pixels(other.private.inputs))


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
