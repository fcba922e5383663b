"""A draft of ``encoder.json`` for an ONNX file as an exporter writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pate.encoders.description import (
    FILE,
    MOST_BYTES,
    TODO,
    Description,
    FileOf,
    ImageSteps,
    Pooling,
    TextSteps,
)
from pate.errors import DataError
from pate.exact import parse

if TYPE_CHECKING:
    from pate.encoders.graph import Graph

MODEL: Final = "model.onnx"
TOKENIZER: Final = "tokenizer.json"
#: Mean and spread of most networks that were trained on ImageNet.
IMAGENET: Final = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
#: Outputs that are taken, the best first.
_OUTPUTS: Final = (
    "image_embeds", "sentence_embedding", "pooler_output", "features", "last_hidden_state",
    "token_embeddings",
)  # fmt: skip
_TEXT_TOKENS: Final = 512


def draft(content: bytes, graph: Graph, tokenizer: bytes | None) -> dict[str, Any]:
    """Return the fields of a draft of ``encoder.json``: guesses, or marked TODO for a person."""
    output, pooling, width = output_of(graph)
    images = texts = None
    if tokenizer is None:
        images = _guessed(graph)
    else:
        texts = TextSteps(FileOf.of(TOKENIZER, tokenizer), _TEXT_TOKENS)
    made = Description(
        "draft", "draft", "draft", FileOf.of(MODEL, content), output, pooling, width, images, texts
    )
    fields = parse(made.to_bytes(), most=MOST_BYTES, error=DataError, what=FILE)
    for name, what in (
        ("name", "its name"), ("trained", "who trained it on what"), ("licence", "of its weights"),
    ):  # fmt: skip
        fields[name] = f"{TODO}: {what}"
    return fields


def takes_texts(graph: Graph) -> bool:
    """Return whether a graph takes tokens."""
    return any(port.name == "input_ids" for port in graph.inputs)


def output_of(graph: Graph) -> tuple[str, Pooling, int]:
    """Return the output of a graph to use, its pooling, and its width.

    The mean is taken of the tokens of a text and of the places of an image, and the first row of the
    tokens of an image. A width that is left open is taken from another output: exporters of sentence
    models state that of the tokens only.
    """
    ranked = sorted(
        graph.outputs, key=lambda each: _OUTPUTS.index(each.name) if each.name in _OUTPUTS else 99
    )
    shapes = [(each.name, each.shape) for each in ranked if each.shape and each.kind == 1]
    known = [width for _, shape in shapes if (width := _width(shape)) is not None]
    for name, shape in shapes:
        if len(shape) in (2, 3, 4) and known:
            width = _width(shape) or known[0]
            if len(shape) == 2:
                return name, "none", width
            mean = len(shape) == 4 or takes_texts(graph)
            return name, "mean" if mean else "first", width
    raise DataError(
        "no output of the graph says how many coordinates it has: export it with a fixed last dimension"
    )


def _width(shape: tuple[int | None, ...]) -> int | None:
    """Return the coordinates of an embedding, None if the shape leaves them open or has no place for them."""
    if len(shape) not in (2, 3, 4):
        return None
    return shape[1] if len(shape) == 4 else shape[-1]


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
