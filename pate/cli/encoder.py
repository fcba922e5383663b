"""``pate encoder``: describe and check a public encoder."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pate.errors import DataError, UsageError
from pate.runtime.help import Commands
from pate.runtime.options import JsonOption, of_data, of_output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pate.data.encoded import Record
    from pate.encoders.description import Description
    from pate.encoders.encoder import Encoder
    from pate.encoders.graph import Graph
    from pate.runtime.screen import Screen

app = Commands(
    no_args_is_help=True,
    help="Describe and check public encoders.\n\n"
    "They are pretrained networks that turn an image or a text into a row of numbers. An encoder is a "
    "folder with encoder.json and the files that it names; --encoder of the other programs takes that "
    "folder.",
)

#: Rows that `check` prints, and coordinates of each.
_SHOWN: Final = 10
_COORDINATES: Final = 5
_MOST_TEXT: Final = 64 << 20

FolderArgument = Annotated[
    Path, typer.Argument(help="Folder of an encoder, or an ONNX file.", metavar="PATH")
]


@app.callback()
def _encoder() -> None:
    """Group of commands."""


@app.command()
def describe(
    path: FolderArgument,
    out: Annotated[
        Path | None,
        of_output(help="Of an ONNX file: write a folder with a draft here.", metavar="DIR"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print what an encoder is, and its digest.

    Who trained it on what, its licence, what it takes and gives. Of a folder each file is compared with
    its SHA-256. Of an ONNX file: its inputs and outputs, and whether it can be an encoder. --out then
    writes a folder with a draft of encoder.json, in which a person fills in what is marked TODO. A
    model of texts needs its tokenizer.json beside the ONNX file.

    For example: pate encoder describe ./lite0
    """
    from pate.encoders.description import read_at_most
    from pate.encoders.encoder import opened_files
    from pate.encoders.graph import checked_graph
    from pate.runtime.command import print_json
    from pate.runtime.screen import Screen

    screen = Screen("pate")
    if path.is_dir():
        if out is not None:
            raise UsageError("--out is for an ONNX file: this folder has its encoder.json")
        description, contents = opened_files(path)
        graph = checked_graph(contents[0], f"the encoder in {path}")
        lines = card(description)
    else:
        from pate.encoders.description import MOST_MODEL

        content = read_at_most(path, MOST_MODEL)
        graph = checked_graph(content, str(path))
        lines = {"file": str(path), "bytes": str(len(content))}
        if out is not None:
            _write_draft(out, path, content, graph, screen)
    lines["inputs"] = "; ".join(map(str, graph.inputs))
    lines["outputs"] = "; ".join(map(str, graph.outputs))
    lines["operators"] = f"{graph.nodes}, all of ONNX's own set, version {graph.opset}"
    if as_json:
        print_json(lines)
        return
    for name, value in lines.items():
        screen.say(f"{name}: {value}")


def card(description: Description) -> dict[str, str]:
    """Return what a description says, by name."""
    images, texts = description.images, description.texts
    if images is not None:
        part = f" of the middle {images.crop:.0%}" if images.crop < 1 else ""
        takes = (
            f"images of any size, brought to {images.height}x{images.width}x{images.channels} "
            f"({images.fit}{part}, {images.resample})"
        )
    else:
        takes = f"texts of up to {texts.longest if texts else 0} tokens; the rest is not used"
    pooled = {"none": "", "mean": ", the mean over its rows", "first": ", its first row"}
    return {
        "name": description.name,
        "trained": description.trained,
        "licence": description.licence,
        "takes": takes,
        "gives": f"{description.width} numbers, from the output {description.output!r}"
        f"{pooled[description.pooling]}",
        **{
            f"file {each.file}": f"{each.size} bytes, SHA-256 {each.sha256.hex()}"
            for each in description.files
        },
        "digest": description.digest,
    }


def _write_draft(out: Path, path: Path, content: bytes, graph: Graph, screen: Screen) -> None:
    from pate.encoders.description import FILE, MOST_TOKENIZER, read_at_most
    from pate.encoders.graph import MODEL, TOKENIZER, draft, takes_texts
    from pate.runtime.home import write_file

    if out.exists():
        raise UsageError(f"{out} is there already: name a new folder")
    tokenizer = (
        read_at_most(path.parent / TOKENIZER, MOST_TOKENIZER) if takes_texts(graph) else None
    )
    fields = draft(content, graph, tokenizer)
    out.mkdir(parents=True)
    write_file(out / MODEL, content, mode=0o644)
    if tokenizer is not None:
        write_file(out / TOKENIZER, tokenizer, mode=0o644)
    write_file(out / FILE, json.dumps(fields, indent=1).encode() + b"\n", mode=0o644)
    screen.say(f"{out}/{FILE}: a draft; fill in what is marked TODO")
    screen.say(
        "size, resampling, mean and spread, pooling and the longest text are guesses: they must be what "
        "the encoder was trained with",
        "warning",
    )


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="Folder of an encoder.", metavar="FOLDER")],
    data: Annotated[
        Path,
        of_data(help="Images (folder, .npz, IDX), or a file of lines of text.", metavar="PATH"),
    ],
    records: Annotated[int, of_data(min=2, help="How many records to run.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Check rows, time and memory on some records.

    Each record is embedded by itself, in the reverse order, twice, and with several runs at a time. All
    must give the same bits: a record whose row depended on others could move the votes of others.

    For example: pate encoder check ./lite0 --data ./public
    """
    import numpy as np

    from pate.encoders.encoder import Encoder, cores
    from pate.encoders.trial import tried
    from pate.runtime.command import print_json
    from pate.runtime.screen import Screen

    screen = Screen("pate")
    trial = tried(folder)
    encoder = Encoder.open(folder, trial=False)
    some = list(itertools.islice(_records(data, encoder), records))
    if len(some) < 2:
        raise DataError(f"{data} has fewer than two records")
    began = time.process_time()
    with screen.bar("one at a time") as move:
        alone, _ = encoder.rows(some, threads=1, move=lambda done: move(done, len(some)))
    each = (time.process_time() - began) / len(some)
    runs = {
        "in the reverse order": encoder.rows(some[::-1], threads=1)[0][::-1],
        "each twice in a row": encoder.rows([r for r in some for _ in range(2)], threads=1)[0][
            1::2
        ],
        "by a second opening": Encoder.open(folder, trial=False).rows(some, threads=1)[0],
    }
    for threads in sorted({2, max(2, cores()), 7}):
        runs[f"{threads} runs at a time"] = encoder.rows(some, threads=threads)[0]
    same = {what: bool(np.array_equal(alone, found)) for what, found in runs.items()}
    different = len({row.tobytes() for row in alone})
    found = {
        "encoder": encoder.description.in_words(),
        "records": len(some),
        "different_rows": different,
        "same_bits": same,
        "milliseconds_each": round(1000 * each, 2),
        "seconds_to_open": round(trial.opening, 2),
        "megabytes": trial.memory >> 20,
        "rows": [row[:_COORDINATES].tolist() for row in alone[:_SHOWN]],
    }
    if as_json:
        print_json(found)
    else:
        for what, is_same in same.items():
            screen.say(f"{what}: {'the same bits' if is_same else 'OTHER BITS'}")
        screen.say(
            f"{encoder.description.in_words()}: {1000 * each:.1f} ms a record on one core, "
            f"{trial.memory >> 20} MB; {different} different rows of {len(some)}"
        )
        for at, row in enumerate(alone[:_SHOWN]):
            screen.say(f"record {at + 1}: {' '.join(map(str, row[:_COORDINATES]))} …")
    if not all(same.values()):
        raise DataError(f"the encoder in {folder} is not fit: a record's row hangs on other things")


def _records(path: Path, encoder: Encoder) -> Iterator[Record]:
    """Yield raw records of a file or folder."""
    from pate.data.read import read_raw
    from pate.encoders.description import read_at_most

    if encoder.source == "images":
        if (raw := read_raw(path, encoder.source, flat=True)) is None:
            raise DataError(f"{path} has embeddings, not images")
        yield from (record for record in raw.stream() if record is not None)
        return
    try:
        text = read_at_most(path, _MOST_TEXT).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error})") from error
    yield from filter(None, map(str.strip, text.splitlines()))
