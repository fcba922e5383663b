from __future__ import annotations

import io
import os
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from pate.data.files.images import windowed
from pate.data.files.pictures import FORMATS, opened
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.schema import Schema
from pate.data.values import Images
from pate.errors import DataError, SchemaError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def save(path: Path, value: int = 0, *, size: tuple[int, int] = (5, 4), mode: str = "L") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode in {"L", "I", "I;16"} else (value, 1, 2)).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, value in (("10", 100), ("9", 90), ("0", 0)):
        for copy in range(2):
            save(tmp_path / name / f"{copy}.png", value + copy)
    return tmp_path


def test_class_folders_in_class_order(folder: Path) -> None:
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / "9" / "Thumbs.db").write_bytes(b"x")
    data = read_dataset(folder)
    assert data.classes == ("0", "9", "10")
    assert isinstance(data.inputs, Images)
    assert data.inputs.size == (4, 5, 1)
    firsts = dict(zip(data.inputs.pixels[:, 0, 0, 0].tolist(), data.labels.tolist(), strict=True))
    assert firsts == {0: 0, 1: 0, 90: 1, 91: 1, 100: 2, 101: 2}


def test_labels_count_in_the_given_classes(folder: Path) -> None:
    assert set(read_dataset(folder, classes=["x", "0", "9", "10"]).labels.tolist()) == {1, 2, 3}
    with pytest.raises(SchemaError, match="'10'"):
        read_dataset(folder, classes=["0", "9"])


def test_public_images_flat_or_in_folders(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert len(read_inputs(folder)) == 6
    flat = tmp_path_factory.mktemp("flat")
    for value in (3, 1, 2):
        save(flat / f"{value}.png", value)
    public = read_inputs(flat)
    assert isinstance(public, Images)
    assert public.pixels[:, 0, 0, 0].tolist() == [1, 2, 3]
    with pytest.raises(DataError, match="outside of class folders"):
        read_dataset(flat)


def test_one_coloured_image_makes_all_rgb(folder: Path) -> None:
    save(folder / "9" / "c.png", 200, mode="RGB")
    data = read_dataset(folder)
    assert isinstance(data.inputs, Images)
    assert data.inputs.size == (4, 5, 3)
    corners = data.inputs.pixels[:, 0, 0].tolist()
    assert [100, 100, 100] in corners
    assert [200, 1, 2] in corners


CMYK = "each has the colours CMYK: red, green and blue are approximate"
DEEP = np.linspace(0, 4095, 20).astype(np.uint16).reshape(4, 5)


@pytest.mark.parametrize("name", ["a.png", "a.tiff"])
def test_deep_images_need_a_window(name: str, tmp_path: Path) -> None:
    Image.fromarray(DEEP).save(tmp_path / name)
    with pytest.raises(DataError, match=r"more than 8 bits a pixel; .*--window LOW HIGH"):
        read_inputs(tmp_path)
    public = read_inputs(tmp_path, window=(0, 4095))
    assert isinstance(public, Images)
    assert public.schema() == "images 4x5x1 window 0 4095"
    exact = DEEP.astype(float) * 255 / 4095
    assert (abs(public.pixels[0, :, :, 0] - exact) <= 0.5).all()
    assert len(np.unique(public.pixels)) == 20


def test_a_window_is_cut_at_its_ends_and_leaves_other_images_alone(tmp_path: Path) -> None:
    Image.fromarray(DEEP).save(tmp_path / "a.png")
    Image.fromarray(np.full((4, 5), 77, np.uint8)).save(tmp_path / "b.png")
    public = read_inputs(tmp_path, window=(1000, 2000))
    assert isinstance(public, Images)
    assert public.pixels[0][DEEP < 1000].max() == 0
    assert public.pixels[0][DEEP >= 2000].min() == 255
    assert set(public.pixels[1].ravel().tolist()) == {77}
    # How pixels were made does not make them other queries.
    assert Images(public.pixels).row_hashes() == public.row_hashes()
    for window in ((5, 5), (9, 0), (0, 2**31)):
        with pytest.raises(UsageError, match="from a lower to a higher value"):
            read_inputs(tmp_path, window=window)


def deep_file(path: Path, values: NDArray[np.uint16]) -> Path:
    """Write grey values of 12 bits: as TIFF packed, two in three bytes, as PNG in 16 bits."""
    if path.suffix == ".png":
        Image.fromarray(values).save(path)
        return path
    height, width = values.shape
    first, second = values.ravel()[::2].astype(int), values.ravel()[1::2].astype(int)
    packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], axis=1)
    body = packed.astype(np.uint8).tobytes()
    fields = (
        (256, width), (257, height), (258, 12), (259, 1), (262, 1), (273, 8), (277, 1),
        (278, height), (279, len(body)),
    )  # fmt: skip
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in fields)
    head = b"II*\0" + struct.pack("<I", 8 + len(body))
    path.write_bytes(head + body + struct.pack("<H", len(fields)) + directory + bytes(4))
    return path


@pytest.mark.parametrize("name", ["a.png", "a.tiff"])
@pytest.mark.parametrize("most", [0, 1, 255, 4095])
def test_a_files_format_says_how_deep_it_is_and_not_its_values(
    name: str, most: int, tmp_path: Path
) -> None:
    dark = np.linspace(0, most, 24).astype(np.uint16).reshape(4, 6)
    deep_file(tmp_path / name, dark)
    with pytest.raises(DataError, match="more than 8 bits a pixel"):
        read_inputs(tmp_path)
    public = read_inputs(tmp_path, window=(0, 4095))
    assert isinstance(public, Images)
    assert (public.pixels[0, ..., 0] == windowed(dark, (0, 4095))).all()
    (tmp_path / "a").mkdir()
    (tmp_path / name).rename(tmp_path / "a" / name)
    own = read_dataset(tmp_path, odd=Odd(), window=(0, 4095)).inputs
    assert isinstance(own, Images)
    assert (own.pixels == public.pixels).all()


@pytest.mark.parametrize(
    ("values", "window", "made"),
    [
        (np.array([-1024, 0, 3071], np.int16), (-1024, 3071), [0, 64, 255]),
        (np.array([0, 2**64 - 1], np.uint64), (-10, -5), [255, 255]),
        (np.array([0, 255], np.uint16), (0, 255), [0, 255]),
        (np.array([7, 8], np.int64), (7, 8), [0, 255]),
    ],
)
def test_windows_of_whole_numbers(
    values: NDArray[np.integer], window: tuple[int, int], made: list[int]
) -> None:
    assert windowed(values, window).tolist() == made


@pytest.mark.parametrize(("kind", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_deep_colours_are_refused_and_not_cut(kind: int, channels: int, tmp_path: Path) -> None:
    """Pillow takes the upper byte of each value of such a file, and says nothing."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + check

    rows = zlib.compress(b"".join(b"\0" + bytes(2 * channels * 4) for _ in range(4)))
    head = struct.pack(">IIBBBBB", 4, 4, 16, kind, 0, 0, 0)
    content = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    with pytest.raises(DataError, match="more than 8 bits a channel in colour"):
        read_inputs(tmp_path, window=(0, 65535))


def test_odd_files_are_left_out_one_by_one(folder: Path) -> None:
    before = read_dataset(folder).row_hashes()
    Image.fromarray(DEEP).save(folder / "9" / "deep.png")
    Image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(folder / "9" / "colour.png")
    (folder / "9" / "broken.png").write_bytes(b"none")
    (folder / "9" / "notes.txt").write_text("none")
    odd = Odd()
    data = read_dataset(folder, odd=odd, schema=Schema.parse("images 4x5x1"))
    assert sorted(data.row_hashes()) == sorted(before)
    assert (
        "1 record (9/deep.png) take no part: the image has more than 8 bits a pixel" in odd.lines()
    )
    assert len(odd.lines()) == 4
    with pytest.raises(DataError, match="is not an image file"):
        read_dataset(folder)
    with pytest.raises(SchemaError, match=r"no image of .* can be used: .*not of 9x9 pixels"):
        read_dataset(folder, odd=Odd(), schema=Schema.parse("images 9x9x1"))
    in_colour = read_dataset(folder, odd=Odd(), schema=Schema.parse("images 4x5x3"))
    assert len(in_colour) == len(before) + 1


def test_where_no_image_can_be_used_the_error_says_what_helps(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.fromarray(DEEP).save(tmp_path / "a" / "a.png")
    with pytest.raises(DataError, match="--window LOW HIGH"):
        read_dataset(tmp_path, odd=Odd())
    np.savez(tmp_path / "x.npz", images=DEEP[None] + 999, labels=["a"])
    with pytest.raises(DataError, match="--window LOW HIGH"):
        read_dataset(tmp_path / "x.npz", odd=Odd())


def test_a_public_set_says_what_is_lost_in_reading_it(tmp_path: Path) -> None:
    """As a party's check says of its own."""
    frames = [Image.new("RGB", (5, 4), (shade, 0, 0)) for shade in (0, 99)]
    (tmp_path / "a").mkdir()
    Image.new("CMYK", (5, 4)).save(tmp_path / "a" / "print.jpg")
    frames[0].save(tmp_path / "a" / "moving.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "a" / "still.gif")
    said: list[str] = []
    assert len(read_inputs(tmp_path, say=said.append)) == 3
    own = Odd()
    read_dataset(tmp_path, odd=own)
    assert said == [f"{tmp_path}: {line}" for line in own.lines()]
    assert sorted(said) == [
        f"{tmp_path}: 1 record (a/moving.gif): each has several frames: only the first one is read",
        f"{tmp_path}: 1 record (a/print.jpg): {CMYK}",
    ]


def test_several_sizes_name_the_file(folder: Path) -> None:
    save(folder / "9" / "z.png", size=(6, 6))
    with pytest.raises(DataError, match=r"z\.png is 6x6 pixels, .* is 4x5; bring all"):
        read_dataset(folder)


def test_truncated_image_names_the_file(folder: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (4, 5), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "0" / "t.png")
    whole = (folder / "0" / "t.png").read_bytes()
    for keep in (0, 10, 40, len(whole) - 30):
        (folder / "0" / "t.png").write_bytes(whole[:keep])
        with pytest.raises(DataError, match=r"t\.png"):
            read_dataset(folder)


def test_a_stray_file_among_images(folder: Path) -> None:
    (folder / "0" / "notes.txt").write_text("x")
    with pytest.raises(DataError, match=r"notes\.txt is not an image file"):
        read_dataset(folder)


def test_label_and_group_name_no_column_of_images(folder: Path) -> None:
    with pytest.raises(UsageError, match="no columns"):
        read_dataset(folder, group="patient")


def eps(marks: Path) -> bytes:
    """A program for Ghostscript, with a stand-in for it that leaves a mark when it is started."""
    (marks / "gs").write_text(f"#!/bin/sh\ntouch {marks / 'started'}\n")
    (marks / "gs").chmod(0o755)
    return b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 4\n%%EndComments\nshowpage\n%%EOF\n"


def as_png(kind: str) -> bytes:
    """A good image of another format, of the size of the others."""
    held = io.BytesIO()
    Image.new("L", (5, 4)).save(held, kind)
    return held.getvalue()


def test_a_name_does_not_choose_the_decoder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in a file called .png is read if it is a photograph's format, and else by nobody."""
    before = read_dataset(folder).row_hashes()
    marks = tmp_path_factory.mktemp("marks")
    monkeypatch.setenv("PATH", str(marks), prepend=os.pathsep)
    (folder / "9" / "eps.png").write_bytes(eps(marks))
    others = ("AVIF", "ICO", "JPEG2000", "PCX", "TGA")
    for kind in others:
        (folder / "9" / f"{kind}.png").write_bytes(as_png(kind))
    odd = Odd()
    data = read_dataset(folder, odd=odd)
    assert sorted(data.row_hashes()) == sorted(before)
    assert odd.reasons == ["the image is not an image that can be read"]
    assert not (marks / "started").exists()
    photographs = ("BMP", "GIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", "WEBP")
    for kind in photographs:
        (folder / "9" / f"{kind}.png").write_bytes(as_png(kind))
    assert {*FORMATS, "MPO"} == set(photographs)
    coloured = Schema.parse("images 4x5x3")  # WebP has colours only
    assert len(read_dataset(folder, odd=Odd(), schema=coloured)) == len(before) + len(photographs)


@pytest.mark.parametrize(
    "error", [RuntimeError("two\nlines"), ZeroDivisionError(), RecursionError(), MemoryError()]
)
def test_whatever_a_decoder_raises_is_one_line(
    error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    with pytest.raises(DataError) as raised, opened(folder / "9" / "0.png"):
        fail()
    assert "\n" not in str(raised.value)
    own = DataError("ours")
    with pytest.raises(DataError) as raised, opened(folder / "9" / "0.png"):
        raise own
    assert raised.value is own
    with pytest.raises(KeyboardInterrupt), opened(folder / "9" / "0.png"):
        raise KeyboardInterrupt


def test_a_file_of_too_many_pixels_is_left_out_unread(folder: Path) -> None:
    """Of 100 million, in 12 kB: Pillow only warns of it."""
    before = len(read_dataset(folder))
    bomb = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(bomb, "PNG")
    # More than there are good ones: but theirs is not the common size.
    for copy in range(2 * before):
        (folder / "9" / f"bomb{copy}.png").write_bytes(bomb.getvalue())
    odd = Odd()
    assert len(read_dataset(folder, odd=odd)) == before
    assert odd.reasons == ["the image has too many pixels"]


def test_float_images_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((4, 5), np.float32)).save(tmp_path / "a.tiff")
    with pytest.raises(DataError, match="mode F; save it with 8 bits"):
        read_inputs(tmp_path)
