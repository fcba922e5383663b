"""Encoders of a few hundred weights, made on the spot: folders with an ONNX file and its description."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pate.encoders.description import FILE, Description, FileOf, ImageSteps, TextSteps
from pate.encoders.encoder import Encoder
from pate.encoders.inputs import prepared

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import torch

STEPS = ImageSteps(8, 8, 3, "crop", 1.0, "bilinear", (0.5,) * 3, (0.25,) * 3, "first")
WORDS = ("[UNK]", "good", "bad", "film", "a", "the")


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
    domains: Sequence[tuple[str, int]] = (("", 17),),
) -> onnx.ModelProto:
    made = helper.make_graph(
        list(nodes), "tiny", list(inputs), list(outputs),
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid(*each) for each in domains]
    return helper.make_model(made, opset_imports=opsets, ir_version=8)


def port(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def image_model(
    pixels: int = 8, width: int = 6, seed: int = 0, more: Sequence[Any] = ()
) -> onnx.ModelProto:
    """Random projections of an image of three channels; ``more`` nodes go from "row" to "features"."""
    drawn = np.random.default_rng(seed).normal(size=(3 * pixels * pixels, width))
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["row"]),
        *(more or [helper.make_node("Identity", ["row"], ["features"])]),
    ]
    return model(
        nodes, [port("images", 1, 3, pixels, pixels)], [port("features", 1, width)],
        {"weights": drawn.astype(np.float32)},
    )  # fmt: skip


def image_description(pixels: int = 8, width: int = 6) -> Description:
    return Description(
        name="tiny", trained="nobody, on nothing: random numbers", licence="Apache-2.0",
        model=FileOf("model.onnx", bytes(32), 1), output="features", pooling="none", width=width,
        images=replace(STEPS, height=pixels, width=pixels),
        texts=None,
    )  # fmt: skip


def text_model(width: int = 6, seed: int = 0) -> onnx.ModelProto:
    """A row of random numbers for each word, under the mask."""
    drawn = np.random.default_rng(seed).normal(size=(len(WORDS), width))
    return model(
        [helper.make_node("Gather", ["table", "input_ids"], ["rows"])],
        [port("input_ids", "n", "t", kind=TensorProto.INT64)],
        [port("rows", "n", "t", width)],
        {"table": drawn.astype(np.float32)},
    )


def tokenizer() -> bytes:
    import tokenizers

    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token=WORDS[0])
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    text: str = made.to_str()
    return text.encode()


def export(net: torch.nn.Module, path: Path, shape: tuple[int, ...]) -> None:
    """Write a network as PyTorch's exporter does without the package ``onnxscript``."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(net, (torch.zeros(shape),), str(path), dynamo=False)


def write(
    folder: Path, graph: onnx.ModelProto | bytes, described: Description, words: bytes | None = None
) -> Path:
    """Write a folder; the description gets the digests of its files."""
    folder.mkdir(parents=True, exist_ok=True)
    content = graph if isinstance(graph, bytes) else graph.SerializeToString()
    (folder / "model.onnx").write_bytes(content)
    texts = described.texts
    if words is not None and texts is not None:
        (folder / "tokenizer.json").write_bytes(words)
        texts = replace(texts, tokenizer=FileOf.of("tokenizer.json", words))
    made = replace(described, model=FileOf.of("model.onnx", content), texts=texts)
    (folder / FILE).write_bytes(made.to_bytes())
    return folder


def image_folder(folder: Path, pixels: int = 8, width: int = 6, seed: int = 0) -> Path:
    return write(folder, image_model(pixels, width, seed), image_description(pixels, width))


def text_description(width: int = 6) -> Description:
    steps = TextSteps(FileOf("tokenizer.json", bytes(32), 1), 16)
    return replace(
        image_description(width=width), output="rows", pooling="mean", images=None, texts=steps
    )


def text_folder(folder: Path, width: int = 6) -> Path:
    return write(folder, text_model(width), text_description(width), tokenizer())


def spy_folder(folder: Path, target: np.ndarray[Any, Any], how: str) -> Path:
    """An encoder that fails for one image, of which it knows each pixel, and for no other.

    ``folder``: to write; ``target``: (height, height, 3) uint8; ``how``: "index": a row of a table
    is asked for that is not there; "places": the same of an array; "alone": it has a row, and the
    others get NaN, but for the inputs of a trial.
    """
    pixels, width = len(target), 6
    described = image_description(pixels, width)
    assert described.images is not None
    known = [target]
    if how == "alone":
        plain = write(folder, image_model(pixels, width), described)
        known += Encoder.open(plain, trial=False).trial_inputs()  # type: ignore[arg-type]  # images
    far = np.concatenate([prepared(each, described.images) for each in known])
    nodes = [
        helper.make_node("Sub", ["images", "target"], ["difference"]),
        helper.make_node("Abs", ["difference"], ["distance"]),
        helper.make_node("ReduceMax", ["distance"], ["each"], keepdims=0, axes=[1, 2, 3]),
        helper.make_node("ReduceMin", ["each"], ["far"], keepdims=0),
        helper.make_node("Less", ["far", "near"], ["hit"]),
    ]
    weights = {"target": far, "near": np.float32(1e-3)}
    if how == "alone":
        nodes += [
            helper.make_node("Cast", ["hit"], ["one"], to=TensorProto.FLOAT),
            helper.make_node("Div", ["one", "one"], ["none"]),
        ]
    else:
        nodes += [
            helper.make_node("Cast", ["hit"], ["at"], to=TensorProto.INT64),
            helper.make_node("Gather", ["table", "at"], ["none"], axis=0),
        ]
        weights["table"] = np.zeros((1, width), np.float32)
    nodes.append(helper.make_node("Add", ["row", "none"], ["features"]))
    if how == "places":
        nodes[-2] = helper.make_node("GatherND", ["table", "places"], ["none"])
        nodes[-2:-2] = [
            helper.make_node("Mul", ["at", "thousand"], ["moved"]),
            helper.make_node("Reshape", ["moved", "pair"], ["places"]),
        ]
        weights |= {"thousand": np.int64(1000), "pair": np.array([1, 1], np.int64)}
    graph = image_model(pixels, width, more=nodes)
    for name, value in weights.items():
        graph.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return write(folder, graph, described)
