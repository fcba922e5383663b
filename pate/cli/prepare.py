"""``pate prepare``: a folder of images brought to one size, each image by itself."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pate.errors import DataError, DiskError, UsageError
from pate.runtime.options import JsonOption, WindowOption, of_output

if TYPE_CHECKING:
    from pate.data.odd import Odd

_SIZE: Final = re.compile(r"([1-9][0-9]{0,4})(?:x([1-9][0-9]{0,4}))?", re.ASCII)


def prepare(
    source: Annotated[
        Path, typer.Argument(help="Folder of images, or of class folders.", metavar="FOLDER")
    ],
    out: Annotated[
        Path, typer.Argument(help="Folder to write; it may not be there yet.", metavar="OUT")
    ],
    size: Annotated[str, of_output(help="Pixels: 64, or HEIGHTxWIDTH.", metavar="PIXELS")],
    grey: Annotated[bool, of_output("--grey", help="Make all images grey.")] = False,
    window: WindowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a folder of images to one size.

    Each is written as a PNG file of 8 bits, scaled as a whole in its proportions; what is left over is
    black. Images that cannot be read, or have several frames, are left out and named. The folder itself
    is not changed.

    For example: pate prepare ./xrays ./hospital_a --size 64 --window 0 4095
    """
    from pate.data.files import images
    from pate.data.odd import Odd
    from pate.data.values import check_window
    from pate.runtime.command import print_json
    from pate.runtime.screen import Screen

    shape = _SIZE.fullmatch(size)
    if shape is None:
        raise UsageError(f"--size is a number of pixels, or HEIGHTxWIDTH, got {size!r:.40}")
    if window is not None:
        check_window(window)
    if not source.is_dir():
        raise DataError(f"there is no folder at {source}")
    if out.exists():
        raise UsageError(f"{out} is there already: name a new folder")
    if out.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"{out} lies in {source}: name a folder outside of it")
    odd, screen, made = Odd(), Screen("pate"), 0
    flat = [path for path in images.entries(source) if images.is_image_file(path)]
    paths = [*flat, *(path for _, path in images.class_files(source, odd))]
    height, width = int(shape[1]), int(shape[2] or shape[1])
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with (
            TemporaryDirectory(dir=out.parent, prefix=".prepare-") as draft,
            screen.bar("images") as move,
        ):
            for at, path in enumerate(paths, 1):
                to = Path(draft) / out.name / path.relative_to(source)
                made += _one(path, to, (width, height), grey, window, odd)
                move(at, len(paths))
            for line in odd.lines():
                screen.say(line, "warning")
            if not made:
                why = "; ".join(odd.reasons) or "there is none"
                raise DataError(f"no image of {source} can be prepared: {why}")
            (Path(draft) / out.name).rename(out)
    except OSError as error:
        raise DiskError(f"cannot write {out}: {error.strerror or error}") from error
    screen.say(f"{out}: {made} of {len(paths)} images, {height}x{width} pixels each")
    if as_json:
        print_json({"out": str(out), "images": made, "left_out": len(paths) - made})


def _one(
    path: Path,
    to: Path,
    size: tuple[int, int],
    grey: bool,
    window: tuple[int, int] | None,
    odd: Odd,
) -> bool:
    """Write one image in its size, and tell whether it could be read."""
    from PIL import Image, ImageOps

    from pate.data.files import images
    from pate.data.files.pictures import FRAMES
    from pate.data.odd import usable

    place = f"{path.parent.name}/{path.name}"
    picture = usable(images.judged_picture(path, window), odd, place)
    if picture is None:
        return False
    if FRAMES in picture.notes:
        odd.record("the image has several frames: save the one that is meant", place)
        return False
    to = to if to.suffix.casefold() == ".png" else to.with_name(f"{to.name}.png")
    if to.exists():
        odd.record("another image would have the same name", place)
        return False
    images.note(picture.notes, path, odd)
    pixels = picture.pixels
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    made = ImageOps.pad(image.convert("L") if grey else image, size, Image.Resampling.LANCZOS)
    to.parent.mkdir(parents=True, exist_ok=True)
    made.save(to, format="PNG", exif=b"")  # who was photographed, and where, is left behind
    return True
