"""Making an encoder's folder: from a graph and its steps, and from a folder of a Hugging Face model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from pate.encoders.description import (
    FILE,
    MOST_MODEL,
    MOST_TOKENIZER,
    RESAMPLES,
    TODO,
    Description,
    FileOf,
    ImageSteps,
    Pooling,
    TextSteps,
)
from pate.encoders.graph import Graph, checked_graph
from pate.encoders.plain_files import read_at_most
from pate.errors import DataError, UsageError
from pate.runtime.home import write_file
from pate.text_form import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MODEL: Final = "model.onnx"
TOKENIZER: Final = "tokenizer.json"
#: Mean and spread of most networks that were trained on ImageNet.
IMAGENET: Final = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_MOST_CONFIG: Final = 1 << 20
#: Where such a folder has its graph.
_GRAPHS: Final = ("model.onnx", "onnx/model.onnx")
#: Outputs that are taken, the best first.
_OUTPUTS: Final = (
    "image_embeds", "sentence_embedding", "pooler_output", "features", "last_hidden_state",
    "token_embeddings",
)  # fmt: skip
#: The filters by their numbers in Pillow.
_BY_NUMBER: Final = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
_TEXT_TOKENS: Final = 512


@dataclass(frozen=True)
class Card:
    """What only a person can say of an encoder.

    Attributes:
        name: of the encoder.
        trained: by whom, on what.
        licence: of its weights.
    """

    name: str
    trained: str
    licence: str


def write_folder(out: Path, description: Description, contents: Sequence[bytes]) -> None:
    """Write an encoder's folder; the description comes last.

    Args:
        out: a new folder.
        description: of the encoder.
        contents: of its files, in the description's order.

    Raises:
        UsageError: if there is something at ``out``.
        DiskError: if it cannot be written.
    """
    if out.exists():
        raise UsageError(f"{out} is there already: name a new folder")
    out.mkdir(parents=True)
    for entry, content in zip(description.files, contents, strict=True):
        write_file(out / entry.file, content, mode=0o644)
    write_file(out / FILE, description.to_bytes(), mode=0o644)


def draft(content: bytes, graph: Graph) -> dict[str, Any]:
    """Return the fields of a draft of ``encoder.json`` for a bare graph.

    What a graph does not say is a guess, or marked TODO; a draft is no description until a person has
    filled it in.

    Raises:
        DataError: if it takes neither images nor tokens, or gives no output that can be used.
    """
    output, pooling, width = output_of(graph, {})
    images = None if is_of_texts(graph) else _guessed(graph)
    texts = TextSteps(FileOf(TOKENIZER, bytes(32), 1), _TEXT_TOKENS) if images is None else None
    made = Description(
        "draft", "draft", "draft", FileOf.of(MODEL, content), output, pooling, width, images, texts
    )
    fields = parse(made.to_bytes(), most=_MOST_CONFIG, error=DataError, what=FILE)
    for name, what in (
        ("name", "its name"), ("trained", "who trained it on what"), ("licence", "of its weights"),
    ):  # fmt: skip
        fields[name] = f"{TODO}: {what}"
    return fields


def from_hugging_face(folder: Path, card: Card, onnx: str | None = None) -> tuple[Any, ...]:
    """Return the description and the files of a local folder of a sentence or vision model.

    Args:
        folder: with an ONNX file, ``config.json``, and ``tokenizer.json`` or
            ``preprocessor_config.json``.
        card: what is said of it.
        onnx: the ONNX file in it; None: model.onnx, or onnx/model.onnx.

    Returns:
        The description, then the content of each of its files.

    Raises:
        DataError: if a file is missing, or the model has steps that are not supported.
    """
    names = _GRAPHS if onnx is None else (onnx,)
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise DataError(
            f"{folder} has no {' and no '.join(names)}: get the model's ONNX file, or export one; "
            "models are not converted here"
        )
    content = read_at_most(path, MOST_MODEL)
    graph = checked_graph(content)
    model = FileOf.of(MODEL, content)
    if is_of_texts(graph):
        words = read_at_most(folder / TOKENIZER, MOST_TOKENIZER)
        output, pooling, width = output_of(graph, _poolings(folder))
        steps = TextSteps(FileOf.of(TOKENIZER, words), _longest(folder))
        made = Description(
            card.name, card.trained, card.licence, model, output, pooling, width, None, steps
        )
        return made, content, words
    output, pooling, width = output_of(graph, {})
    images = _vision_steps(_config(folder / "preprocessor_config.json"))
    made = Description(
        card.name, card.trained, card.licence, model, output, pooling, width, images, None
    )
    return made, content


def is_of_texts(graph: Graph) -> bool:
    """Return whether a graph takes tokens."""
    return any(port.name == "input_ids" for port in graph.inputs)


def output_of(graph: Graph, poolings: Mapping[str, bool]) -> tuple[str, Pooling, int]:
    """Return the output of a graph to use, its pooling, and its width.

    Args:
        graph: whose outputs have shapes.
        poolings: ``mean`` or ``first`` if the model says so; empty: the mean of texts and of places of
            images, the first of tokens of images.

    Raises:
        DataError: if none has a known width.
    """
    ranked = sorted(
        graph.outputs, key=lambda each: _OUTPUTS.index(each.name) if each.name in _OUTPUTS else 99
    )
    for port in ranked:
        shape = port.shape
        width = None if shape is None or len(shape) not in (2, 3, 4) else (
            shape[1] if len(shape) == 4 else shape[-1]
        )  # fmt: skip
        if shape is None or width is None or port.kind != 1:
            continue
        pooling: Pooling = "none"
        if len(shape) == 4:
            pooling = "mean"
        elif len(shape) == 3:
            tokens = "mean" if is_of_texts(graph) else "first"
            pooling = cast("Pooling", next(iter(poolings), tokens))
        return port.name, pooling, width
    raise DataError(
        "no output of the graph says how many coordinates it has: export it with a fixed last dimension"
    )


def _guessed(graph: Graph) -> ImageSteps:
    """Return the steps of a graph of images as its input's shape and habit have them."""
    shape = graph.inputs[0].shape if len(graph.inputs) == 1 else None
    if shape is None or len(shape) != 4:
        raise DataError("the graph takes neither images (one input of 4 dimensions) nor input_ids")
    first = shape[1] in (1, 3)
    channels, height, width = (shape[1], *shape[2:]) if first else (shape[3], *shape[1:3])
    if channels not in (1, 3):
        raise DataError(
            f"the graph takes images of {channels or 'any number of'} channels, not 1 or 3"
        )
    grey = channels == 1
    return ImageSteps(
        height or 224, width or 224, 1 if grey else 3, "crop", 1.0, "bicubic",
        (0.5,) if grey else IMAGENET[0], (0.5,) if grey else IMAGENET[1],
        "first" if first else "last",
    )  # fmt: skip


def _config(path: Path) -> dict[str, Any]:
    return parse(
        read_at_most(path, _MOST_CONFIG), most=_MOST_CONFIG, error=DataError, what=str(path)
    )


def _poolings(folder: Path) -> dict[str, bool]:
    """Return the pooling of a sentence model that says one."""
    modules = folder / "modules.json"
    if modules.is_file() and re.search(
        rb"models\.(Dense|CNN|LSTM)", read_at_most(modules, _MOST_CONFIG)
    ):
        raise DataError(f"{folder} has further layers after its pooling, which are not supported")
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return {}
    said = [
        name
        for name, value in _config(path).items()
        if name.startswith("pooling_mode") and value is True
    ]
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}
    if len(said) != 1 or said[0] not in known:
        raise DataError(f"{path}: the pooling {', '.join(said) or 'of no kind'} is not supported")
    return {known[said[0]]: True}


def _longest(folder: Path) -> int:
    """Return the most tokens of a text that a sentence model states."""
    for name, key in (
        ("sentence_bert_config.json", "max_seq_length"), ("config.json", "max_position_embeddings"),
    ):  # fmt: skip
        if (folder / name).is_file():
            value = _config(folder / name).get(key)
            if type(value) is int:
                return value
    raise DataError(f"{folder} does not say how long a text may be (config.json)")


def _vision_steps(said: Mapping[str, Any]) -> ImageSteps:
    """Return the steps of a ``preprocessor_config.json``.

    Raises:
        DataError: if it has steps that are not supported.
    """
    size, crop = said.get("size"), said.get("crop_size")
    size = {"shortest_edge": size} if type(size) is int and crop is not None else size
    size = {"height": size, "width": size} if type(size) is int else size
    crop = {"height": crop, "width": crop} if type(crop) is int else crop
    rescaled = (
        said.get("do_rescale", True) and abs(said.get("rescale_factor", 1 / 255) - 1 / 255) < 1e-9
    )
    if not isinstance(size, dict) or not said.get("do_resize", True) or not rescaled:
        raise DataError("preprocessor_config.json: no size, or no scaling by 1/255: not supported")
    cropped = bool(said.get("do_center_crop")) and isinstance(crop, dict)
    edge = size.get("shortest_edge")
    final = crop if cropped else size if edge is None else {"height": edge, "width": edge}
    assert isinstance(final, dict)  # noqa: S101 - of the cases above
    height, width = final.get("height"), final.get("width")
    number = said.get("resample", 2)
    if type(height) is not int or type(width) is not int or number not in range(len(_BY_NUMBER)):
        raise DataError("preprocessor_config.json: its size or its resampling is not supported")
    share = 1.0 if edge is None or not cropped else min(1.0, min(height, width) / edge)
    normal = bool(said.get("do_normalize", True))
    mean = said.get("image_mean", IMAGENET[0]) if normal else (0.0,) * 3
    spread = said.get("image_std", IMAGENET[1]) if normal else (1.0,) * 3
    resample = _BY_NUMBER[number]
    assert resample in RESAMPLES  # noqa: S101 - a test compares them
    return ImageSteps(
        height, width, 1 if len(mean) == 1 else 3, "stretch" if edge is None else "crop", share,
        cast("Any", resample), tuple(map(float, mean)), tuple(map(float, spread)), "first",
    )  # fmt: skip
