from __future__ import annotations

import io
import itertools
import os
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from pate.data.files.images import sizes_differ
from pate.data.files.pictures import (
    CLEAR,
    FORMATS,
    TURNED,
    opened,
    read_picture,
    told_size,
    windowed,
)
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs, read_raw
from pate.data.schema import Schema
from pate.data.values import Images
from pate.errors import DataError, SchemaError, UsageError
from tests.support.encoders.dicom_files import write
from tests.support.readings import pixels_of


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
    assert pixels_of(public)[:, 0, 0, 0].tolist() == [1, 2, 3]
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


def test_a_window_is_cut_at_its_ends_and_leaves_other_images_alone(tmp_path: Path) -> None:
    Image.fromarray(DEEP).save(tmp_path / "a.png")
    Image.fromarray(np.full((4, 5), 77, np.uint8)).save(tmp_path / "b.png")
    public = read_inputs(tmp_path, window=(1000, 2000))
    assert pixels_of(public)[0][DEEP < 1000].max() == 0
    assert pixels_of(public)[0][DEEP >= 2000].min() == 255
    assert set(pixels_of(public)[1].ravel().tolist()) == {77}
    # How pixels were made does not make them other queries.
    assert Images(pixels_of(public)).row_hashes() == public.row_hashes()
    for window in ((5, 5), (9, 0), (0, 2**31)):
        with pytest.raises(UsageError, match="from a lower to a higher value"):
            read_inputs(tmp_path, window=window)


def png(head: tuple[int, int, int, int], rows: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """Return a PNG file of width, height, bits and kind of colour, with further chunks before its pixels."""
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", *head, 0, 0, 0)), *more,
        (b"IDAT", zlib.compress(rows)), (b"IEND", b""),
    )  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content
        + struct.pack(">I", zlib.crc32(name + content)) for name, content in parts
    )  # fmt: skip


def tiff(width: int, height: int, bits: int, body: bytes, **fields: int) -> bytes:
    """Return a TIFF file of grey values: in ``kind`` 0 is white or black, in ``form`` they have a sign."""
    told = (
        (256, width), (257, height), (258, bits), (259, 1), (262, fields.get("kind", 1)), (273, 8),
        (277, 1), (278, height), (279, len(body)), (339, fields.get("form", 1)),
    )  # fmt: skip
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in told)
    head = b"II*\0" + struct.pack("<I", 8 + len(body))
    return head + body + struct.pack("<H", len(told)) + directory + bytes(4)


def deep_file(path: Path, values: NDArray[np.uint16]) -> Path:
    """Write grey values of 12 bits: as TIFF packed, two in three bytes, as PNG in 16 bits."""
    if path.suffix == ".png":
        Image.fromarray(values).save(path)
        return path
    height, width = values.shape
    first, second = values.ravel()[::2].astype(int), values.ravel()[1::2].astype(int)
    packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], axis=1)
    path.write_bytes(tiff(width, height, 12, packed.astype(np.uint8).tobytes()))
    return path


@pytest.mark.parametrize("name", ["a.png", "a.tiff"])
@pytest.mark.parametrize("most", [0, 1, 255, 4095])
def test_a_files_format_says_how_deep_it_is_and_not_its_values(
    name: str, most: int, tmp_path: Path
) -> None:
    dark = np.linspace(0, most, 24).astype(np.uint16).reshape(4, 6)
    deep_file(tmp_path / name, dark)
    with pytest.raises(DataError, match=r"more than 8 bits a pixel; .*--window LOW HIGH"):
        read_inputs(tmp_path)
    public = read_inputs(tmp_path, window=(0, 4095))
    assert public.schema() == "images 4x6x1 window 0 4095"
    assert (pixels_of(public)[0, ..., 0] == windowed(dark, (0, 4095))).all()
    (tmp_path / "a").mkdir()
    (tmp_path / name).rename(tmp_path / "a" / name)
    own = read_dataset(tmp_path, odd=Odd(), window=(0, 4095)).inputs
    assert (pixels_of(own) == pixels_of(public)).all()


def test_windows_of_whole_numbers() -> None:
    wanted: tuple[tuple[NDArray[np.integer], tuple[int, int], list[int]], ...] = (
        (np.array([-1024, 0, 3071], np.int16), (-1024, 3071), [0, 64, 255]),
        (np.array([0, 2**64 - 1], np.uint64), (-10, -5), [255, 255]),
        (np.array([0, 255], np.uint16), (0, 255), [0, 255]),
        (np.array([7, 8], np.int64), (7, 8), [0, 255]),
    )
    for values, window, made in wanted:
        assert windowed(values, window).tolist() == made
    values = np.arange(-70_000, 70_000)
    for low, high in ((0, 4095), (-1000, 400), (-65_000, 65_001), (0, 3)):
        inside = np.clip(values, low, high) - low
        exact = (510 * inside + (high - low)) // (2 * (high - low))
        assert (windowed(values, (low, high)) == exact).all()


def test_deep_colours_are_refused_and_not_cut(tmp_path: Path) -> None:
    """Pillow takes the upper byte of each value of such a file, and says nothing."""
    for kind, channels in ((2, 3), (4, 2), (6, 4)):
        rows = b"".join(b"\0" + bytes(2 * channels * 4) for _ in range(4))
        (tmp_path / "a.png").write_bytes(png((4, 4, 16, kind), rows))
        with pytest.raises(DataError, match="more than 8 bits a channel in colour"):
            read_inputs(tmp_path, window=(0, 65535))


#: As it stands, and by what a file calls it how it lies: which sides its first row and column are.
UPRIGHT = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
LIES = {
    1: UPRIGHT,  # top, left
    2: UPRIGHT[:, ::-1],  # top, right
    3: UPRIGHT[::-1, ::-1],  # bottom, right
    4: UPRIGHT[::-1],  # bottom, left
    5: UPRIGHT.T,  # left, top
    6: UPRIGHT.T[::-1],  # right, top
    7: UPRIGHT.T[::-1, ::-1],  # right, bottom
    8: UPRIGHT.T[:, ::-1],  # left, bottom
}


def lying(way: str, up: int) -> bytes:
    image, held = Image.fromarray(np.ascontiguousarray(LIES[up])), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = up
    if way == "PNG, behind its pixels":
        height, width = LIES[up].shape
        rows = b"".join(b"\0" + row.tobytes() for row in LIES[up])
        whole, behind = png((width, height, 8, 0), rows), exif.tobytes().removeprefix(b"Exif\0\0")
        chunk = png((1, 1, 8, 0), b"", (b"eXIf", behind))[33 : 33 + 12 + len(behind)]
        return whole[:-12] + chunk + whole[-12:]
    if way == "PNG, XMP":
        told = PngInfo()
        told.add_itxt("XML:com.adobe.xmp", f'<r tiff:Orientation="{up}"/>')
        image.save(held, "PNG", pnginfo=told)
    elif way.startswith("TIFF"):
        image.save(held, "TIFF", tiffinfo={0x0112: up}, compression=way.partition(", ")[2] or None)
    elif way == "JPEG":  # a block of 8 pixels for each, to be exact
        image.resize((8 * image.width, 8 * image.height), 0).save(held, way, exif=exif, quality=100)
    else:
        image.save(held, way, exif=exif, lossless=True)
    return held.getvalue()


@pytest.mark.parametrize("up", LIES)
@pytest.mark.parametrize(
    "way",
    ["PNG", "PNG, XMP", "PNG, behind its pixels", "TIFF", "TIFF, tiff_deflate", "JPEG", "WEBP"],
)
def test_a_picture_is_read_as_it_stands(way: str, up: int, tmp_path: Path) -> None:
    write(tmp_path / "a" / "x.png", lying(way, up))
    scale = 8 if way == "JPEG" else 1
    picture = read_picture(tmp_path / "a" / "x.png", None)
    assert picture.notes == ()
    assert (picture.pixels[scale // 2 :: scale, scale // 2 :: scale, 0] == UPRIGHT).all()
    assert told_size(tmp_path / "a" / "x.png") == picture.pixels.shape
    # Alike among others, and alone.
    write(tmp_path / "b" / "y.png", lying(way, 1))
    assert not sizes_differ(tmp_path)
    for schema in (None, Schema.parse("images {}x{}x{}".format(*picture.pixels.shape))):
        own = read_dataset(tmp_path, odd=Odd(), schema=schema).inputs
        assert (pixels_of(own) == picture.pixels).all()
        assert len(own) == 2


def test_a_picture_whose_orientation_cannot_be_read_is_noted(tmp_path: Path) -> None:
    told = PngInfo()
    told.add_text("Raw profile type exif", "\nexif\n    8\nno hex digits\n")
    Image.fromarray(UPRIGHT).save(tmp_path / "a.png", pnginfo=told)
    picture = read_picture(tmp_path / "a.png", None)
    assert (picture.pixels[..., 0] == UPRIGHT).all()
    assert picture.notes == (TURNED,)


FEW = np.array([[0, 1000, 4095, 65535]])
WIDE = "32 bits; save it with 8 or 16 bits"
SIGN = "8 bits with a sign; save it with 8 or 16 bits"


#: The values of a file, whether 0 is white (0), whether they have a sign (2), the window, and what is read.
TIFFS: tuple[tuple[str, int, int, tuple[int, int] | None, list[int] | str], ...] = (
    ("<u2", 1, 1, (0, 65535), [0, 4, 16, 255]),
    ("<u2", 0, 1, (0, 65535), [255, 251, 239, 0]),
    ("<u2", 0, 1, (0, 4095), [255, 193, 0, 0]),  # as of DICOM: inverted at the end
    ("<i2", 1, 2, (-1, 4095), [0, 62, 255, 0]),
    ("<i2", 1, 2, None, "more than 8 bits a pixel"),
    ("<u1", 1, 1, None, [0, 232, 255, 255]),
    ("<u1", 0, 1, None, [255, 23, 0, 0]),
    ("<i1", 1, 2, (-128, 127), SIGN),
    ("<i4", 1, 2, (0, 4095), WIDE),
    ("<u4", 1, 1, (0, 4095), WIDE),
    ("<f4", 1, 3, (0, 4095), WIDE),
)


def test_a_tiff_says_which_end_is_white_and_which_values_have_a_sign(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    for code, kind, form, window, made in TIFFS:
        values = FEW.astype(code)
        bits = 8 * values.dtype.itemsize
        path.write_bytes(tiff(4, 1, bits, values.tobytes(), kind=kind, form=form))
        if isinstance(made, str):
            with pytest.raises(DataError, match=made):
                read_picture(path, window)
        else:
            assert read_picture(path, window).pixels.ravel().tolist() == made


def clear(way: str) -> bytes:
    """Return a picture of 16 pixels, every second one transparent, that are grey 170 or red 170."""
    spots = np.tile(np.array([85, 170], np.uint8), (4, 2))
    red, alpha = np.zeros((4, 4, 3), np.uint8), np.where(spots == 85, 0, 255).astype(np.uint8)
    red[..., 0] = spots
    held = io.BytesIO()
    if way in ("4 bits", "2 bits"):
        bits = int(way[0])
        level = spots // (85 if bits == 2 else 17)
        packed = np.packbits(
            np.unpackbits(level[..., None], axis=2)[..., 8 - bits :].reshape(4, -1), axis=1
        )
        rows = b"".join(b"\0" + row.tobytes() for row in packed)
        return png((4, 4, bits, 0), rows, (b"tRNS", int(level[0, 0]).to_bytes(2, "big")))
    if way == "1 bit":
        rows = b"".join([b"\0\x50"] * 4)  # 0, 1, 0, 1
        return png((4, 4, 1, 0), rows, (b"tRNS", b"\0\0"))
    if way == "16 bits":
        Image.fromarray(spots.astype(np.uint16)).save(held, "PNG", transparency=85)
    elif way == "grey":
        Image.fromarray(spots).save(held, "PNG", transparency=85)
    elif way == "colour":
        Image.fromarray(red).save(held, "PNG", transparency=(85, 0, 0))
    elif way == "LA":
        Image.merge("LA", [Image.fromarray(spots), Image.fromarray(alpha)]).save(held, "PNG")
    elif way in ("GIF", "palette"):
        image = Image.fromarray((spots == 170).astype(np.uint8), "P")
        image.putpalette([85, 0, 0, 170, 0, 0])
        image.save(held, "GIF" if way == "GIF" else "PNG", transparency=0)
    else:
        image = Image.fromarray(np.dstack([red, alpha]))
        image.save(held, way, **({"lossless": True, "exact": True} if way == "WEBP" else {}))
    return held.getvalue()


@pytest.mark.parametrize(
    "way",
    ["1 bit", "2 bits", "4 bits", "16 bits", "grey", "colour", "LA", "GIF", "palette", "PNG", "TIFF", "WEBP"],
)  # fmt: skip
def test_transparent_parts_are_black_and_said_so(way: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(clear(way))
    picture = read_picture(tmp_path / "a.png", (0, 255))
    bright = 255 if way == "1 bit" else 170
    assert picture.pixels[..., 0].tolist() == [[0, bright, 0, bright]] * 4
    assert picture.notes == (CLEAR,)
    assert picture.pixels.shape[2] == (1 if "bit" in way or way in ("grey", "LA") else 3)


def test_what_is_half_transparent_is_mixed_and_what_is_opaque_stays(tmp_path: Path) -> None:
    for alpha, made, notes in ((128, 100, (CLEAR,)), (255, 200, ()), (0, 0, (CLEAR,))):
        Image.new("RGBA", (2, 2), (200, 200, 200, alpha)).save(tmp_path / "a.png")
        picture = read_picture(tmp_path / "a.png", None)
        assert set(picture.pixels.ravel().tolist()) == {made}
        assert picture.notes == notes


def test_a_pgm_has_the_values_that_it_says(tmp_path: Path) -> None:
    for most, plain in itertools.product(
        (255, 256, 1023, 4095, 32767, 65534, 65535), (False, True)
    ):
        values = np.unique(np.linspace(0, most, 700).astype(np.uint16))
        kind = "<u1" if most == 255 else ">u2"
        body = " ".join(map(str, values)).encode() if plain else values.astype(kind).tobytes()
        head = f"{'P2' if plain else 'P5'} {len(values)} 1 {most}\n".encode()
        (tmp_path / "a.pgm").write_bytes(head + body)
        window = (most // 5, most)
        made = read_picture(tmp_path / "a.pgm", window).pixels.ravel()
        assert (made == (values if most == 255 else windowed(values, window))).all()
        if most > 255:
            with pytest.raises(DataError, match="more than 8 bits a pixel"):
                read_picture(tmp_path / "a.pgm", None)
            (tmp_path / "a.ppm").write_bytes(f"P6 1 1 {most}\n".encode() + bytes(6))
            with pytest.raises(DataError, match="more than 8 bits a channel in colour"):
                read_picture(tmp_path / "a.ppm", window)


def test_a_bitmap_of_five_six_and_five_bits_is_read(tmp_path: Path) -> None:
    masks, pixels = (0xF800, 0x07E0, 0x001F), (0xF800, 0x07E0, 0x001F, 0xFFFF)
    size = struct.pack("<IiiHHIIiiII", 40, 4, 1, 1, 16, 3, 8, 0, 0, 0, 0)
    body = size + struct.pack("<3I", *masks) + struct.pack("<4H", *pixels)
    head = b"BM" + struct.pack("<IHHI", 14 + len(body), 0, 0, 14 + len(body) - 8)
    (tmp_path / "a.bmp").write_bytes(head + body)
    made = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]
    assert read_picture(tmp_path / "a.bmp", None).pixels.tolist() == [made]


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
        "1 record (9/deep.png) takes no part: the image has more than 8 bits a pixel" in odd.lines()
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
    Image.new("RGBA", (5, 4)).save(tmp_path / "a" / "clear.png")
    frames[0].save(tmp_path / "a" / "moving.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "a" / "still.gif")
    said: list[str] = []
    public = read_inputs(tmp_path, say=said.append)
    own, strict = Odd(), Odd()
    read = [read_dataset(tmp_path, odd=own), read_dataset(tmp_path, notes=strict)]
    raw = read_raw(tmp_path, "images", flat=True, odd=Odd())
    assert raw is not None
    for made, image in zip(raw.stream(), pixels_of(public), strict=True):
        assert np.array_equal(made, image)  # type: ignore[arg-type] # an image
    for each in read:
        assert (pixels_of(each) == pixels_of(public)).all()
    assert own.lines() == strict.lines()
    assert said == [f"{tmp_path}: {line}" for line in own.lines()]
    assert sorted(said) == [
        f"{tmp_path}: 1 record (a/clear.png): {CLEAR}",
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


def test_class_folders_one_level_below(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Where an image beside them makes a class of the folder that holds them, its folders are named."""
    around = tmp_path_factory.mktemp("set")
    train = folder.rename(around / "train")
    with pytest.raises(
        DataError, match=r"folders of class folders \(train\); give the path of one"
    ):
        read_dataset(around)
    shutil.copy(next((train / "0").iterdir()), train / "stray.png")
    told = "a folder of images within a class folder"
    with pytest.raises(
        DataError, match=rf"train/0 is {told}; if such folders are the classes, give"
    ):
        read_dataset(around)
    odd = Odd()
    assert read_dataset(around, odd=odd).classes == ("train",)
    assert all(f"it is {told}: if such folders" in line for line in odd.lines())
    assert len(read_dataset(train).classes) > 1


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


def test_whatever_a_decoder_raises_is_one_line(folder: Path) -> None:
    path, own = folder / "9" / "0.png", DataError("ours")
    for error in (
        RuntimeError("two\nlines"),
        ZeroDivisionError(),
        RecursionError(),
        MemoryError(),
        own,
    ):
        with pytest.raises(DataError) as raised, opened(path):
            raise error
        assert "\n" not in str(raised.value)
        assert (raised.value is own) == (error is own)
    with pytest.raises(KeyboardInterrupt), opened(path):
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
