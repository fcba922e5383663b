"""Glyph-like: 150 characters drawn from installed fonts, class-imbalanced and partly mislabelled.

The Glyph data of the 2018 paper (characters of many fonts, 150 classes, 28 x 28 grey, private labels that are
partly wrong) were never published. This module generates a similar set: every class is drawn from every font
face with all 150 characters, then warped, thickened, shifted and noised, until a non-private model reaches 80
to 90 % accuracy, as in the paper.

Faces are those of matplotlib and below ``/usr/share/fonts`` (Debian: fonts-dejavu-extra,
fonts-liberation2, fonts-freefont-ttf). The set is a function of the seed and of the faces found,
whose number and hash are in the note of the split.

Source: Papernot, Song et al., "Scalable Private Learning with PATE", ICLR 2018, section 5.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from benchmarks.data import Split
from pate.data.values import Dataset, Images
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LATIN: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyzßæøå"
_SIGNS: Final = "0123456789!#$%&()*+/<=>?@[]{}§©±÷×€£¥†"
_GREEK: Final = "ΓΔΘΛΞΠΣΦΨΩαβγδεζηθλμξπρστφχψω"
_CYRILLIC: Final = "БДЖЗИЙЛЦЧШЩЪЫЬЭЮЯ"
#: Letters of other scripts with the outlines of Latin ones: of each pair a model can learn only which is more
#: frequent.
_TWINS: Final = "АВЕНРСТХΚΜ"
#: The characters, in the order of the classes.
CHARACTERS: Final = "".join(sorted(_LATIN + _SIGNS + _GREEK + _CYRILLIC + _TWINS))
#: Class names; they sort as the characters do.
CLASSES: Final = tuple(f"U+{ord(character):04X}" for character in CHARACTERS)
#: Groups of similar characters; half of the wrong labels stay within a group.
_ALIKE: Final = (
    "AА", "BВ8ßβ", "EЕΣ", "HН", "PРpρ", "CСc", "TТ", "XХxχ×", "KΚk", "MΜ", "0Ooσ", "1Il!", "sS5§",
    "vV", "wWωψ", "zZ2ζ", "uUμ", "yYγ", "gq9", "6bδ", "ΔΛДЛ", "ΘθΦφ", "ΠπЦ", "hη", "nr", "ij", "t†+",
    "fF", "ИЙN", "ШЩ", "ЪЬЫ", "ЗЭ3ε", "D)", "([{", "]}", "ΨЧ", "©@", "ξΞ", "αa", "eæ", "£€",
)  # fmt: skip

_SIDE: Final = 28
_FINER: Final = 3  # masters are drawn at this many times the final size
_EM: Final = 19.0  # height of the letter M's square, and
_BASELINE: Final = 19.0  # where letters stand, both in final pixels
_REACH: Final = 4.0  # distances to the outline are kept up to this many final pixels
_SKEW: Final = 0.6  # the class of rank r has r^-0.6 of the commonest one's records: 1 to 20
_WRONG: Final = 0.1  # share of the private labels
_AT_ONCE: Final = 2048
# Distortions. Lengths in final pixels; grey values from 0 to 1.
_STROKE: Final = (-0.3, 0.7)  # how far the outline moves outwards
_BLUR: Final = (0.8, 1.8)  # width of the edge
_PAPER: Final = (0.0, 0.1)
_CONTRAST: Final = (0.6, 0.9)
_DIRT: Final = (0.0, 0.04)
# Standard deviations of what is drawn from normal laws.
_TURN: Final = 0.07  # radians
_SLANT: Final = 0.08
_SIZE: Final = 0.16  # of the logarithm
_LONGER: Final = 0.06  # of the logarithm of the root of height by width
_SHIFT: Final = 0.8
_BEND: Final = 0.45
_FONTS: Final = Path("/usr/share/fonts")


class Face(NamedTuple):
    """One style of one font family: its name, and the file of its outlines."""

    name: str
    file: Path


class Sizes(NamedTuple):
    """Number of records of each part.

    The paper's 5,000 teachers had thousands of records each. With 48 each, half of the classes are
    unknown to most of them; with 16, as 80,000 records would give, the noise dominates the votes.
    """

    private: int = 240_000
    public: int = 10_000
    test: int = 5_000


def find_faces() -> tuple[Face, ...]:
    """Return the faces with every character, each name once, sorted by name."""
    import matplotlib as mpl
    from matplotlib.ft2font import FT2Font

    bundled = Path(mpl.get_data_path()) / "fonts" / "ttf"
    wanted = {ord(character) for character in CHARACTERS}
    found: dict[str, Face] = {}
    for folder in (bundled, _FONTS):
        for file in sorted(folder.rglob("*.ttf")):
            font = FT2Font(str(file))
            name = f"{font.family_name} {font.style_name}"
            # The LastResort font maps every character to a box.
            if name not in found and "Last" not in name and wanted <= font.get_charmap().keys():
                found[name] = Face(name, file)
    return tuple(found[name] for name in sorted(found))


def outlines(faces: Sequence[Face]) -> NDArray[np.float16]:
    """Return (faces, classes, 84, 84) distances to the outline in final pixels, positive inside."""
    from PIL import Image, ImageDraw, ImageFont
    from scipy.ndimage import distance_transform_edt

    if not faces:
        raise DataError("no font holds all the characters: install fonts-dejavu-extra")
    side = _SIDE * _FINER
    drawn = np.zeros((len(faces), len(CLASSES), side, side), dtype=np.float16)
    for at, face in enumerate(faces):
        font = ImageFont.truetype(str(face.file), round(_EM * _FINER))
        for number, character in enumerate(CHARACTERS):
            sheet = Image.new("L", (side, side))
            place = (side / 2, _BASELINE * _FINER)
            ImageDraw.Draw(sheet).text(place, character, fill=255, font=font, anchor="ms")
            ink = np.asarray(sheet) >= 128
            depth = distance_transform_edt(ink) - distance_transform_edt(~ink)
            drawn[at, number] = np.clip(depth / _FINER, -_REACH, _REACH)
    return drawn


def draw(
    masters: NDArray[np.float16], labels: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.uint8]:
    """Return (n, 28, 28, 1) pixels of characters, each with a face and a distortion of its own."""
    parts = [
        _draw(masters, labels[start : start + _AT_ONCE], random)
        for start in range(0, len(labels), _AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.empty((0, _SIDE, _SIDE, 1), np.uint8)


def _draw(
    masters: NDArray[np.float16], labels: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.uint8]:
    count = len(labels)
    face = random.integers(len(masters), size=count)
    down, right = _warped(count, random)
    side = masters.shape[2]
    top, left = np.floor(down).astype(np.int64), np.floor(right).astype(np.int64)
    low, far = down - top, right - left
    flat = masters.reshape(-1)
    first = ((face * masters.shape[1] + labels) * side * side)[:, None, None]
    depth = np.zeros((count, _SIDE, _SIDE), dtype=np.float32)
    for rows, share in ((top, 1 - low), (top + 1, low)):
        for columns, part in ((left, 1 - far), (left + 1, far)):
            depth += share * part * flat[first + rows * side + columns].astype(np.float32)

    def each(low: float, high: float) -> NDArray[np.float64]:
        return random.uniform(low, high, size=(count, 1, 1))

    # A stroke grows or shrinks by moving the outline; its edge is a ramp of one pixel or more.
    ink = np.clip(0.5 + (depth + each(*_STROKE)) / each(*_BLUR), 0, 1)
    paper, contrast = each(*_PAPER), each(*_CONTRAST)
    dirt = random.standard_normal(ink.shape, dtype=np.float32) * each(*_DIRT)
    grey = np.clip(paper + contrast * ink + dirt, 0, 1)
    pixels: NDArray[np.uint8] = np.rint(grey * 255).astype(np.uint8)[..., None]
    return pixels


def _warped(
    count: int, random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where in the master each pixel comes from, two (count, 28, 28): down and right."""
    grid = np.arange(_SIDE) - (_SIDE - 1) / 2
    y, x = np.meshgrid(grid, grid, indexing="ij")

    def spread(by: float) -> NDArray[np.float64]:
        return random.normal(0, by, size=(count, 1, 1))

    turn, slant = spread(_TURN), spread(_SLANT)
    size, longer = spread(_SIZE), spread(_LONGER)
    tall, wide = np.exp(size + longer), np.exp(size - longer)
    # Smooth bending: a 5 x 5 net of random shifts, interpolated to all pixels.
    knots = np.clip(1 - np.abs(np.linspace(0, 4, _SIDE)[:, None] - np.arange(5)), 0, None)
    bend = random.normal(0, _BEND, size=(2, count, 5, 5))
    bent_y, bent_x = knots @ bend[0] @ knots.T, knots @ bend[1] @ knots.T
    away_y = (np.cos(turn) * y - np.sin(turn) * x) * tall + bent_y + spread(_SHIFT)
    away_x = (np.sin(turn) * y + np.cos(turn) * x + slant * y) * wide + bent_x + spread(_SHIFT)
    last = _SIDE * _FINER - 1 - 1e-6  # the pixel after it is still on the sheet
    middle = (_SIDE * _FINER - 1) / 2
    return (
        np.clip(middle + _FINER * away_y, 0, last - 1e-6),
        np.clip(middle + _FINER * away_x, 0, last - 1e-6),
    )


def frequencies(seed: int) -> NDArray[np.float64]:
    """Return (150,) the share of each class, with random ranks."""
    ranks = np.random.default_rng([seed, 0]).permutation(len(CLASSES)) + 1.0
    weights = np.power(ranks, -_SKEW, dtype=np.float64)
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def mislabel(
    labels: NDArray[np.int64], share: float, random: np.random.Generator
) -> NDArray[np.int64]:
    """Return the labels with ``share`` of them wrong: half by similarity, half at random.

    A wrong label of a character without a similar one is always random.
    """
    given, alike = labels.copy(), defaultdict[int, list[int]](list)
    for group in _ALIKE:
        members = [CHARACTERS.index(character) for character in group]
        for member in members:
            alike[member] += [other for other in members if other != member]
    for row in np.flatnonzero(random.random(len(labels)) < share).tolist():
        label = int(labels[row])
        others = alike.get(label) if random.random() < 0.5 else None
        if others:
            given[row] = others[int(random.integers(len(others)))]
        else:
            given[row] = (label + int(random.integers(1, len(CLASSES)))) % len(CLASSES)
    return given


def make(faces: Sequence[Face], seed: int, sizes: Sizes) -> Split:
    """Draw the three parts; faces are shared by all, and only private labels may be wrong."""
    masters = outlines(faces)
    shares = frequencies(seed)
    parts = []
    for number, count in enumerate(sizes, start=1):
        random = np.random.default_rng([seed, number])
        labels = random.choice(len(CLASSES), size=count, p=shares).astype(np.int64)
        pixels = draw(masters, labels, random)
        given = mislabel(labels, _WRONG, random) if number == 1 else labels
        parts.append(Dataset(Images(pixels), given, CLASSES))
    names = "\n".join(face.name for face in faces).encode()
    note = (
        f"150 characters from {len(faces)} font faces (list {hashlib.sha256(names).hexdigest()[:8]}),"
        f" classes skewed 1 to 20, {_WRONG:.0%} of the private labels wrong; a record is a drawing;"
        " public and test are drawn from the same faces, with other distortions and true labels"
    )
    return Split(parts[0], parts[1], parts[2], note)


def glyph() -> Split:
    """Return the split of the rows: 240,000 private, 10,000 public and 5,000 test drawings."""
    return make(find_faces(), 0, Sizes())
