"""``pate prepare``: images of any size, colour and depth become one folder that every role reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.values import Images
from pate.errors import DataError, PateError, UsageError
from simulation.cli import app


def prepare(*options: str | Path) -> str:
    done = CliRunner().invoke(app, ["prepare", *map(str, options)])
    if isinstance(done.exception, PateError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def animated(path: Path) -> None:
    frames = [Image.new("L", (6, 6), at * 40) for at in range(3)]
    frames[0].save(path, save_all=True, append_images=frames[1:])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "raw"
    for name in ("cat", "dog"):
        (place / name).mkdir(parents=True)
    Image.new("RGB", (30, 60), (200, 100, 0)).save(place / "cat" / "tall.jpg")
    Image.new("L", (64, 32), 90).save(place / "cat" / "wide.png")
    Image.new("CMYK", (40, 40), (0, 255, 255, 0)).save(place / "dog" / "print.jpg")
    animated(place / "dog" / "moving.gif")
    (place / "dog" / "broken.png").write_bytes(b"\x89PNG\r\n")
    return place


def test_a_folder_of_any_images_has_one_size_afterwards(folder: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in folder.rglob("*"))
    said = prepare(folder, tmp_path / "out", "--size", "32")
    assert "3 of 5 images, 32x32 pixels" in said
    assert "dog/moving.gif" in said
    assert "several frames" in said
    assert "dog/broken.png" in said
    assert "CMYK" in said
    data = read_dataset(tmp_path / "out")
    assert isinstance(data.inputs, Images)
    assert (data.inputs.size, data.classes) == ((32, 32, 3), ("cat", "dog"))
    tall = data.inputs.pixels[0]
    assert (tall[:, 0] == 0).all()  # it keeps its proportions
    assert tall[16, 16].tolist() == pytest.approx([200, 100, 0], abs=3)
    assert before == sorted(path.name for path in folder.rglob("*"))
    assert not list(tmp_path.glob(".prepare-*"))


def test_deep_images_are_windowed_and_colour_becomes_grey(tmp_path: Path) -> None:
    deep = np.linspace(0, 4095, 100).astype(np.uint16).reshape(10, 10)
    (tmp_path / "raw").mkdir()
    Image.fromarray(deep).save(tmp_path / "raw" / "x.png")
    with pytest.raises(DataError, match="more than 8 bits"):
        prepare(tmp_path / "raw", tmp_path / "out", "--size", "10")
    assert not (tmp_path / "out").exists()
    Image.new("RGB", (5, 5), (10, 20, 30)).save(tmp_path / "raw" / "c.png")
    prepare(tmp_path / "raw", tmp_path / "out", "--size", "8x10", "--window", "0", "4095", "--grey")
    inputs = read_inputs(tmp_path / "out")
    assert isinstance(inputs, Images)
    assert inputs.size == (8, 10, 1)
    assert inputs.pixels[1].min() < 20
    assert inputs.pixels[1].max() > 235


def test_which_side_is_up_is_kept_and_nothing_else_of_a_camera(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    image = Image.fromarray(np.repeat(np.array([[0], [255]], np.uint8), 20, 0).repeat(40, 1))
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned by a quarter
    exif[0x010E] = "Jane Doe"
    image.save(tmp_path / "raw" / "p.jpg", exif=exif)
    prepare(tmp_path / "raw", tmp_path / "out", "--size", "40")
    made = tmp_path / "out" / "p.jpg.png"
    with Image.open(made) as image:
        assert not image.getexif()
        pixels = np.asarray(image)
    assert b"Jane" not in made.read_bytes()
    assert pixels[:, 5].max() == pytest.approx(255, abs=5)  # the halves stand side by side
    assert pixels[:, 35].max() == pytest.approx(0, abs=5)
    as_it_lies = read_inputs(tmp_path / "raw")
    assert isinstance(as_it_lies, Images)
    assert (as_it_lies.pixels[0, ..., 0] == pixels).all()


def test_what_makes_no_sense_is_refused_and_nothing_is_written(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    cases: list[tuple[type[PateError], tuple[str | Path, ...]]] = [
        (UsageError, (folder, tmp_path / "there", "--size", "8")),
        (UsageError, (folder, folder / "out", "--size", "8")),
        (UsageError, (folder, tmp_path / "out", "--size", "big")),
        (UsageError, (folder, tmp_path / "out", "--size", "8", "--window", "5", "5")),
        (DataError, (tmp_path / "nowhere", tmp_path / "out", "--size", "8")),
        (DataError, (tmp_path / "there", tmp_path / "out", "--size", "8")),
    ]
    for kind, options in cases:
        with pytest.raises(kind):
            prepare(*options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "there"]


def test_a_party_is_told_of_images_of_which_something_is_lost(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    Image.new("CMYK", (6, 6), (0, 255, 255, 0)).save(tmp_path / "a" / "print.jpg")
    Image.new("P", (6, 6)).save(tmp_path / "a" / "still.gif")
    Image.new("RGBA", (6, 6)).save(tmp_path / "b" / "clear.png")
    animated(tmp_path / "b" / "moving.gif")
    odd = Odd()
    assert len(read_dataset(tmp_path, odd=odd)) == 4
    assert odd.lines() == [
        "1 record (a/print.jpg): each has the colours CMYK: red, green and blue are approximate",
        "1 record (b/clear.png): each has transparent parts: they are read as black",
        "1 record (b/moving.gif): each has several frames: only the first one is read",
    ]
