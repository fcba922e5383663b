"""DICOM files: their pixels by the campaign's window, their groups and labels, and files that lie."""

from __future__ import annotations

import itertools
import logging
import struct
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate, generate_frames
from pydicom.sequence import Sequence as Items
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    RLELossless,
)

from pate.data.files.dicom import read_dicom
from pate.data.files.pictures import windowed
from pate.data.odd import DeepImagesError, Odd
from pate.errors import DataError, UsageError
from tests.support.encoders.dicom_files import dicom, grey, write
from tests.support.readings import groups_of

NATIVE = [ImplicitVRLittleEndian, ExplicitVRLittleEndian, ExplicitVRBigEndian]
EXACT = [*NATIVE, RLELossless, JPEG2000Lossless]
WINDOW = (-100, 300)


def one(path: Path, content: bytes, window: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    (frame,) = read_dicom(write(path / "a.dcm", content), window=window, flat=True).stream()
    assert isinstance(frame, np.ndarray)
    return frame


def unread(path: Path, content: bytes, why: str) -> None:
    with pytest.raises(DataError, match=why):
        one(path, content)


@pytest.mark.parametrize("syntax", EXACT)
def test_deep_values_go_through_slope_window_and_interpretation(
    syntax: str, tmp_path: Path
) -> None:
    image = grey(most=4095)
    # Each step by exact arithmetic: quarters are exact as floats.
    low, high = WINDOW
    values = np.clip(image * 0.25 - 128, low, high)
    wanted = np.floor(255 * (values - low) / (high - low) + 0.5).astype(np.uint8)
    for kind, shown in (("MONOCHROME2", wanted), ("MONOCHROME1", 255 - wanted)):
        content = dicom(
            image, syntax, BitsStored=12, RescaleSlope="0.25", RescaleIntercept="-128",
            PhotometricInterpretation=kind,
        )  # fmt: skip
        found = one(tmp_path, content, WINDOW)
        assert found.shape == (6, 8, 1)
        assert (found[..., 0] == shown).all()
        assert len(np.unique(found)) > 10
        with pytest.raises(
            DeepImagesError, match=r"a\.dcm has more than 8 bits a pixel; .*--window"
        ):
            one(tmp_path, content)


def test_grey_values_of_each_kind(tmp_path: Path) -> None:
    signed = (grey(most=4095).astype(np.int16) - 2048).astype(np.int16)
    # What stands above the stored bits is no part of a value.
    dirty = ((signed.view(np.uint16) & 0x0FFF) | 0xA000).view(np.int16)
    eight = grey(5, 7, most=255).astype(np.uint8)  # an odd number of bytes
    seven = grey(most=127).astype(np.uint8)
    scaled: dict[str, Any] = {"RescaleSlope": "2", "RescaleIntercept": "-100"}
    by_window = windowed(signed, WINDOW)
    for image, syntaxes, values, window, wanted in (
        (signed, (*NATIVE, RLELossless), {"BitsStored": 12}, WINDOW, by_window),
        (dirty, (ExplicitVRLittleEndian,), {"BitsStored": 12}, WINDOW, by_window),
        (eight, EXACT, {}, None, eight),
        (eight, EXACT, {}, WINDOW, eight),
        (seven, NATIVE, {"BitsStored": 7}, None, np.rint(seven / 127 * 255)),  # they reach white
        (eight, NATIVE, scaled, WINDOW, windowed(eight * 2.0 - 100, WINDOW)),
    ):
        for syntax in syntaxes:
            found = one(tmp_path, dicom(image, syntax, **values), window)
            assert (found[..., 0] == wanted).all(), (image.dtype, syntax, values, window)
    with pytest.raises(DeepImagesError):
        one(tmp_path, dicom(eight, **scaled))


@pytest.mark.parametrize("syntax", NATIVE)
def test_frames_of_an_odd_number_of_bytes(syntax: str, tmp_path: Path) -> None:
    """In words of 16 bits a frame can begin in the middle of one."""
    images = np.stack([grey(3, 5, most=255, seed=seed).astype(np.uint8) for seed in range(3)])
    for words in (False, True):
        content = dicom(images, syntax, words=words, NumberOfFrames=3)
        found = list(read_dicom(write(tmp_path / "a.dcm", content), flat=True).stream())
        assert np.array_equal(np.stack(found)[..., 0], images)  # type: ignore[arg-type] # of images


@pytest.mark.parametrize("syntax", NATIVE)
def test_zeros_behind_the_pixels_are_no_pixels(syntax: str, tmp_path: Path) -> None:
    for columns, more, words in itertools.product((7, 8), (2, 10, 32), (False, True)):
        image = grey(5, columns, most=255).astype(np.uint8)
        content = dicom(image, syntax, words=words, behind=bytes(more))
        assert (one(tmp_path, content)[..., 0] == image).all()
        other_sizes = dicom(image, syntax, words=words, behind=bytes(more - 1) + b"\1")
        unread(tmp_path, other_sizes, LIES)
        unread(tmp_path, dicom(image, syntax, behind=bytes(40)), LIES)  # another frame


COLOURS = np.random.default_rng(1).integers(0, 256, (6, 8, 3)).astype(np.uint8)


def test_colours_are_exact(tmp_path: Path) -> None:
    for syntax in (*NATIVE, RLELossless):
        assert (one(tmp_path, dicom(COLOURS, syntax), WINDOW) == COLOURS).all()
    planes = np.ascontiguousarray(COLOURS.transpose(2, 0, 1)).reshape(COLOURS.shape)
    assert (one(tmp_path, dicom(planes, PlanarConfiguration=1)) == COLOURS).all()


def test_jpegs_of_colours_and_grey_are_near(tmp_path: Path) -> None:
    smooth = np.linspace(0, 250, 48).reshape(6, 8).astype(np.uint8)
    found = one(tmp_path, dicom(smooth, JPEGBaseline8Bit))
    assert np.abs(found[..., 0].astype(int) - smooth).max() < 6
    red = np.zeros((16, 16, 3), dtype=np.uint8)
    red[..., 0] = 200
    for stated in ("YBR_FULL_422", "YBR_FULL"):
        content = dicom(red, JPEGBaseline8Bit, PhotometricInterpretation=stated)
        assert np.abs(one(tmp_path, content).astype(int) - red).max() < 12


def test_frames_are_records_of_one_patient(tmp_path: Path) -> None:
    frames = np.stack([grey(seed=at) for at in range(3)])
    for syntax in (ExplicitVRLittleEndian, RLELossless):
        write(tmp_path / "ill" / "a.dcm", dicom(frames, syntax, BitsStored=12))
        write(tmp_path / "well" / "deep" / "b.dcm", dicom(grey(4, 4), PatientID=" P2 "))
        raw = read_dicom(tmp_path, window=(0, 4095), odd=Odd())
        found = list(raw.stream())
        for frame, wanted in zip(found, frames, strict=False):
            assert isinstance(frame, np.ndarray)
            assert (frame[..., 0] == windowed(wanted, (0, 4095))).all()
        assert raw.names == ["ill"] * 3 + ["well"]
        assert groups_of(raw) == ["P1"] * 3 + ["P2"]
        assert [raw.place(at) for at in range(4)] == [
            "ill/a.dcm frame 1", "ill/a.dcm frame 2", "ill/a.dcm frame 3", "well/deep/b.dcm"
        ]  # fmt: skip


def test_frames_of_several_parts_are_told_apart_by_the_table(tmp_path: Path) -> None:
    frames = np.stack([grey(16, 16, seed=at, most=255) for at in range(2)]).astype(np.uint8)
    whole = dicom(frames, RLELossless)
    coded = list(generate_frames(pydicom.dcmread(BytesIO(whole)).PixelData, number_of_frames=2))
    held = encapsulate(coded, fragments_per_frame=3)
    raw = read_dicom(
        write(tmp_path / "a.dcm", dicom(frames, RLELossless, PixelData=held)), flat=True
    )
    assert all((a[..., 0] == b).all() for a, b in zip(raw.stream(), frames, strict=True))  # type: ignore[index]
    lost = encapsulate(coded, fragments_per_frame=3, has_bot=False)
    raw = read_dicom(
        write(tmp_path / "a.dcm", dicom(frames, RLELossless, PixelData=lost)), flat=True
    )
    with pytest.raises(DataError, match="do not fit"):
        list(raw.stream())


def studies(root: Path) -> Path:
    """Write five images of three studies, one of a patient without a name."""
    for at, (study, patient) in enumerate(
        [("9.1", "P1"), ("9.1", "P1"), ("9.2", "P2"), ("9.3", None), ("9.4", "P4")]
    ):
        content = dicom(
            grey(seed=at, most=255).astype(np.uint8), StudyInstanceUID=study, PatientID=patient,
            SOPInstanceUID=f"8.{at}",
        )  # fmt: skip
        write(root / "scans" / study / f"IM{at}", content)
    return root / "scans"


def test_a_table_names_the_classes_of_studies(tmp_path: Path) -> None:
    folder, odd = studies(tmp_path), Odd()
    table = tmp_path / "labels.csv"
    table.write_text("StudyInstanceUID,finding\n9.1,ill\n9.2,well\n9.3,well\n7.7,none\n")
    raw = read_dicom(folder, table=table, label="finding", odd=odd)
    assert raw.names == ["ill", "ill", "well", "well", ""]
    assert groups_of(raw) == ["P1", "P1", "P2", "", "P4"]
    with pytest.raises(DataError, match=r"9\.3/IM3 has no PatientID"):
        read_dicom(folder, table=table, label="finding")
    by_study = read_dicom(folder, table=table, label="finding", group="StudyInstanceUID")
    assert groups_of(by_study) == ["9.1", "9.1", "9.2", "9.3", "9.4"]


def test_a_table_names_the_classes_of_images_and_several_labels(tmp_path: Path) -> None:
    folder, odd = studies(tmp_path), Odd()
    table = tmp_path / "labels.csv"
    table.write_text("SOPInstanceUID,a,b\n8.0,1,0\n8.1,0,0\n8.0,1,1\n8.2,1,1\n")
    raw = read_dicom(folder, table=table, columns=["a", "b"], odd=odd)
    assert raw.names is None
    # A second row that says otherwise takes the image's cell away, and no other's.
    assert raw.cells == {"a": ["1", "0", "1", "", ""], "b": ["", "0", "1", "", ""]}
    with pytest.raises(DataError, match="line 4 has a second 'b' for a SOPInstanceUID"):
        read_dicom(folder, table=table, columns=["a", "b"])


def test_a_table_needs_a_column_of_classes_and_of_uids(tmp_path: Path) -> None:
    folder, table = studies(tmp_path), tmp_path / "labels.csv"
    table.write_text("study,finding\n9.1,ill\n")
    with pytest.raises(UsageError, match="with --label"):
        read_dicom(folder, table=table)
    with pytest.raises(UsageError, match="--dicom-labels"):
        read_dicom(folder, label="finding")
    with pytest.raises(UsageError, match="--group takes PatientID, StudyInstanceUID"):
        read_dicom(folder, group="PatientName")
    with pytest.raises(DataError, match="no column StudyInstanceUID or SOPInstanceUID"):
        read_dicom(folder, table=table, label="finding")


def test_a_disc_is_read_without_its_viewer(tmp_path: Path) -> None:
    folder = studies(tmp_path)
    write(folder / "VIEWER.EXE", b"MZ")
    odd = Odd()
    assert read_dicom(folder, flat=True, odd=odd).count == 5
    assert odd.reasons == ["it is no DICOM file"]
    index = write(folder / "DICOMDIR", b"\0" * 128 + b"DICM")
    for path in (folder, index):
        assert read_dicom(path, flat=True).count == 5


def test_images_outside_of_class_folders_say_what_to_do(tmp_path: Path) -> None:
    write(tmp_path / "a.dcm", dicom(COLOURS))
    with pytest.raises(DataError, match="--dicom-labels"):
        read_dicom(tmp_path)


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    with pytest.raises(DataError, match="circle of links"):
        read_dicom(tmp_path, flat=True)


IMAGE = grey(most=255).astype(np.uint8)
LIES = "do not fit"
WITHOUT = "has no pixels"
BROKEN = [
    (dicom(IMAGE, Rows=7), LIES),
    (dicom(IMAGE, Rows=65_535, Columns=65_535), LIES),
    (dicom(IMAGE, NumberOfFrames=2), LIES),
    (dicom(IMAGE, NumberOfFrames=0), LIES),
    (dicom(IMAGE, NumberOfFrames=2_147_483_647), LIES),
    (dicom(IMAGE, BitsAllocated=16), LIES),
    (dicom(IMAGE, BitsAllocated=32), "neither 8 to 16 bits"),
    (dicom(IMAGE, BitsStored=9), LIES),
    (dicom(IMAGE, HighBit=3), LIES),
    (dicom(IMAGE, SamplesPerPixel=3), "colours"),
    (dicom(IMAGE, PhotometricInterpretation="PALETTE COLOR"), "PALETTE COLOR"),
    (dicom(IMAGE, PhotometricInterpretation="JANE DOE"), r"colours \(unknown\)"),
    (dicom(IMAGE, RescaleSlope="0"), LIES),
    (dicom(IMAGE, PixelData=IMAGE.tobytes()[:-2]), LIES),
    (dicom(IMAGE, PixelData=IMAGE.tobytes() + b"\0\1"), LIES),
    (dicom(IMAGE, PixelData=2 * IMAGE.tobytes()), LIES),
    (dicom(IMAGE[:5, :7], ExplicitVRBigEndian, words=True).replace(b"OW\0\0\0\0\0\x24", b"OW\0\0\0\0\0\x23"),
     LIES),
    (dicom(IMAGE, PixelData=None), WITHOUT),
    (dicom(IMAGE, Rows=None), WITHOUT),
    (dicom(IMAGE)[:-10], LIES),
    (dicom(IMAGE)[:200], "damaged|no pixels|transfer syntax"),
    (dicom(IMAGE)[:140], "damaged|transfer syntax"),
    (dicom(IMAGE, RLELossless, Rows=60_000, Columns=500), LIES),
    (dicom(IMAGE, RLELossless, Rows=7), "damaged"),
    (dicom(IMAGE, RLELossless, NumberOfFrames=2), LIES),
    (dicom(IMAGE, JPEGBaseline8Bit, Rows=7), LIES),
    (dicom(IMAGE, JPEG2000Lossless, Columns=9), LIES),
    (dicom(COLOURS, JPEGBaseline8Bit, SamplesPerPixel=1, PhotometricInterpretation="MONOCHROME2",
           PlanarConfiguration=None), LIES),
]  # fmt: skip


@pytest.mark.parametrize(("content", "why"), BROKEN, ids=range(len(BROKEN)))
def test_a_file_that_lies_is_left_out_by_itself(
    content: bytes, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "1.dcm", dicom(IMAGE))
    bad = write(tmp_path / "2.dcm", content)
    write(tmp_path / "3.dcm", dicom(IMAGE))
    odd = Odd()
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings():
        warnings.simplefilter("error")
        raw = read_dicom(tmp_path, flat=True, odd=odd)
        found = [frame for frame in raw.stream() if frame is not None]
    assert len(found) == 2
    (reason,) = odd.reasons
    with pytest.raises(DataError, match=why) as caught:
        list(read_dicom(bad, flat=True).stream())
    assert str(caught.value) == f"{bad}: {reason}"
    # Nothing of a header is in what is said or logged.
    for value in ("Doe", "Jane", "P1", "JANE", "1.2.3", "65535", "60000"):
        assert value not in reason + caplog.text


def test_syntaxes_without_a_decoder_are_named(tmp_path: Path) -> None:
    named = r"transfer syntax \({}\) is not read"
    unread(tmp_path, dicom(IMAGE, JPEGLosslessSV1), named.format("JPEG Lossless.*"))
    other = dicom(IMAGE).replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.9.9\0")
    unread(tmp_path, other, named.format("unknown"))
    deflated = dicom(IMAGE, DeflatedExplicitVRLittleEndian)  # which is not unpacked
    unread(tmp_path, deflated, named.format("Deflated Explicit VR Little Endian"))


def before_the_patient(content: bytes) -> bytes:
    start = dicom(IMAGE)
    at = start.index(b"\x10\x00\x10\x00PN")
    return start[:at] + content + start[at:]


def test_sequences_within_sequences_end_and_a_header_of_many_items_is_not_kept(
    tmp_path: Path,
) -> None:
    sequence = struct.pack("<HH4sL", 0x0008, 0x1140, b"SQ\0\0", 0xFFFFFFFF)
    deep = sequence + struct.pack("<HHL", 0xFFFE, 0xE000, 0xFFFFFFFF)
    many = sequence + struct.pack("<HHL", 0xFFFE, 0xE000, 0) * 500_000
    for content in (deep * 200_000, deep * 3_000, many):
        unread(tmp_path, before_the_patient(content), r"damaged|header is too long")


def test_what_is_not_needed_is_not_read(tmp_path: Path) -> None:
    icon = Dataset()
    icon.Rows = 1
    content = dicom(
        IMAGE,
        ImageComments="x" * 9_000,
        IconImageSequence=Items([icon]),
        RequestAttributesSequence=Items([]),
    )
    assert (one(tmp_path, content)[..., 0] == IMAGE).all()


def test_values_by_frame_and_lookup_tables_are_refused(tmp_path: Path) -> None:
    table = Dataset()
    table.LUTDescriptor = [2, 0, 16]
    for extra in ("ModalityLUTSequence", "SharedFunctionalGroupsSequence"):
        values: dict[str, Any] = {extra: Items([table])}
        unread(tmp_path, dicom(IMAGE, ExplicitVRLittleEndian, **values), "save plain images")
