"""DICOM files that tests write, with any value replaced."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pydicom
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    CTImageStorage,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    RLELossless,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.int16]


def dicom(
    # (height, width) or (height, width, 3), or (n, ...) of either with ``NumberOfFrames``
    pixels: Pixels,
    syntax: str = ExplicitVRLittleEndian,  # transfer syntax
    *,
    words: bool = False,  # whether bytes are in words of 16 bits, as values of 16 bits are
    behind: bytes = b"",  # bytes that are left over behind the pixels
    **values: object,
) -> bytes:
    """Return a file of frames.

    ``values``: elements by keyword, in place of the true ones; None takes one out.
    """
    colour = pixels.shape[-1] == 3
    many = pixels.ndim == (4 if colour else 3)
    made: Any = Dataset()
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = syntax
    made.file_meta.MediaStorageSOPClassUID = CTImageStorage
    made.file_meta.MediaStorageSOPInstanceUID = str(values.get("SOPInstanceUID", "1.2.3"))
    made.SOPClassUID = CTImageStorage
    made.SOPInstanceUID, made.StudyInstanceUID, made.SeriesInstanceUID = "1.2.3", "1.2", "1.1"
    made.PatientID, made.PatientName = "P1", "Doe^Jane"
    made.Rows, made.Columns = pixels.shape[-3:-1] if colour else pixels.shape[-2:]
    made.SamplesPerPixel = 3 if colour else 1
    made.PhotometricInterpretation = "RGB" if colour else "MONOCHROME2"
    if colour:
        made.PlanarConfiguration = 0
    made.BitsAllocated = made.BitsStored = 8 * pixels.dtype.itemsize
    made.HighBit = made.BitsStored - 1
    made.PixelRepresentation = int(pixels.dtype.kind == "i")
    frames = list(pixels) if many else [pixels]
    if many:
        made.NumberOfFrames = len(frames)
    if "BitsStored" in values:
        values = {"HighBit": int(str(values["BitsStored"])) - 1, **values}
    ordered = pixels.astype(
        pixels.dtype.newbyteorder(">" if syntax == ExplicitVRBigEndian else "<")
    )
    content = ordered.tobytes()
    content += b"\0" * (len(content) % 2) + behind
    if words and syntax == ExplicitVRBigEndian:
        content = np.frombuffer(content, "<u2").astype(">u2").tobytes()
    made.PixelData = content
    made["PixelData"].VR = "OW" if words or pixels.dtype.itemsize == 2 else "OB"
    if syntax == RLELossless:
        made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        made.compress(RLELossless)
    elif syntax in (JPEGBaseline8Bit, JPEG2000Lossless, JPEGLosslessSV1):
        made.PixelData = encapsulate([_coded(frame, syntax) for frame in frames])
        made["PixelData"].is_undefined_length = True
    for name, value in values.items():
        if value is not None:
            setattr(made, name, value)
        elif name in made:
            delattr(made, name)
    written = io.BytesIO()
    pydicom.dcmwrite(written, made, enforce_file_format=True)
    return written.getvalue()


def _coded(frame: Pixels, syntax: str) -> bytes:
    held = io.BytesIO()
    if syntax == JPEG2000Lossless:
        Image.fromarray(frame).save(held, "JPEG2000", no_jp2=True)
    else:
        Image.fromarray(frame).save(held, "JPEG", quality=95)
    return held.getvalue()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def grey(height: int = 6, width: int = 8, *, seed: int = 0, most: int = 4095) -> NDArray[np.uint16]:
    """Return an image of whole numbers up to ``most``, with its ends."""
    made = np.random.default_rng(seed).integers(0, most + 1, (height, width)).astype(np.uint16)
    made[0, :2] = 0, most
    return made
