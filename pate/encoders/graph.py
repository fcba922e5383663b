"""An ONNX file: its checks before it is run, as it may be hostile, and a draft of its description.

Accepted are operators of ONNX's own set only, without graphs within them (If, Loop, Scan), without random
draws, and all weights in the file. What is computed for an input, and on arrays of which sizes, depends on
the input's size only (:mod:`pate.encoders.sizes`), no division of its numbers ends the process
(:mod:`pate.encoders.sizes`), and nothing is read from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pate.encoders.description import (
    FILE,
    MOST_BYTES,
    MOST_MODEL,
    TODO,
    Description,
    FileOf,
    ImageSteps,
    Pooling,
    TextSteps,
)
from pate.encoders.inputs import first_line
from pate.encoders.sizes import require_fixed_sizes, require_safe_divisions
from pate.errors import DataError
from pate.exact import parse
from pate.printable import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx

#: Names of ONNX's own set of operators.
_OWN: Final = frozenset({"", "ai.onnx"})
_INNER: Final = frozenset({"If", "Loop", "Scan", "SequenceMap"})
#: The newest version of them whose operators were looked at.
_NEWEST: Final = 28
_RANDOM: Final = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
})  # fmt: skip
#: Operators that take apart another file's bytes.
_DECODERS: Final = frozenset({"ImageDecoder"})
_MOST_NODES: Final = 100_000
_FLOAT, _INTS = 1, frozenset({6, 7})
#: Protobuf gives bytes for such a name.
_NOT_UTF8: Final = "the ONNX file is damaged: a name in it is not UTF-8"
#: The inputs of a graph of texts.
TOKENS: Final = ("input_ids", "attention_mask", "token_type_ids")
#: A dimension that the file leaves open.
OPEN: Final = None


@dataclass(frozen=True)
class Port:
    """An input or output of a graph."""

    name: str
    kind: int  # ONNX's number of its element type; 1 is float32, 6 and 7 are int32 and int64
    # its dimensions, None for each that the file leaves open; None if it does not say
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        said = "of any shape" if self.shape is None else "x".join(
            "?" if each is None else str(each) for each in self.shape
        )  # fmt: skip
        return f"{self.name!r:.80} {said}"


@dataclass(frozen=True)
class Graph:
    """What a checked file has."""

    inputs: tuple[Port, ...]  # without those that have a value in the file
    outputs: tuple[Port, ...]  # of the graph
    nodes: int  # how many operators
    opset: int  # version of ONNX's set of operators

    def require_images(self, shape: tuple[int, int, int, int]) -> str:
        """Check that the graph takes one image of a shape, and return the input's name."""
        if len(self.inputs) != 1 or self.inputs[0].kind != _FLOAT:
            raise DataError(
                f"the graph must take one float32 input, it takes {_listed(self.inputs)}"
            )
        port = self.inputs[0]
        if port.shape is not None and (
            len(port.shape) != 4
            or any(own not in (OPEN, wanted) for own, wanted in zip(port.shape, shape, strict=True))
        ):
            wanted = "x".join(map(str, shape))
            raise DataError(f"the graph must take images as {wanted}, it takes {port}")
        return port.name

    def require_texts(self) -> tuple[Port, ...]:
        """Check that the graph takes tokens, and return its inputs."""
        names = [port.name for port in self.inputs]
        if "input_ids" not in names or set(names) - set(TOKENS):
            raise DataError(
                f"a graph of texts takes {', '.join(TOKENS)}, of which the last two may be absent; "
                f"this one takes {_listed(self.inputs)}"
            )
        for port in self.inputs:
            if port.kind not in _INTS or (
                port.shape is not None and (len(port.shape) != 2 or port.shape[0] not in (OPEN, 1))
            ):
                raise DataError(f"the graph must take tokens as 1x?, it takes {port}")
            if port.shape is not None and port.shape[1] is not OPEN:
                raise DataError(
                    f"the graph takes texts of {port.shape[1]} tokens only: export it with an open "
                    "number of tokens"
                )
        return self.inputs

    def require_output(self, name: str, ranks: tuple[int, ...], width: int) -> None:
        """Check an output of the graph."""
        port = next((each for each in self.outputs if each.name == name), None)
        if port is None:
            raise DataError(f"the graph has no output {name!r:.80}, it has {_listed(self.outputs)}")
        if port.kind != _FLOAT:
            raise DataError(f"the output {port} must be float32")
        if port.shape is None:
            return
        if len(port.shape) not in ranks:
            wanted = " or ".join(map(str, ranks))
            raise DataError(
                f"the output {port} has {len(port.shape)} dimensions, the description's pooling needs "
                f"{wanted}"
            )
        coordinates = port.shape[1 if len(port.shape) == 4 else -1]
        if coordinates not in (OPEN, width):
            raise DataError(f"the output {port} must have {width} coordinates")


def checked_graph(content: bytes, what: str = "") -> Graph:
    """Return what an ONNX file has, after checks that it runs nothing but ONNX's own operators."""
    try:
        return _checked(content)
    except DataError as error:
        raise DataError(f"{what}: {error}" if what else str(error)) from error


def _checked(content: bytes) -> Graph:
    import onnx
    from google.protobuf.message import DecodeError

    if len(content) > MOST_MODEL:
        raise DataError(f"the ONNX file is larger than {MOST_MODEL >> 30} GiB")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, ValueError, RecursionError, MemoryError) as error:
        raise DataError("it is not an ONNX file, or is damaged") from error
    if not model.graph.node:
        raise DataError("it is not an ONNX file: there is no graph in it")
    if model.functions:
        raise DataError("the graph defines functions of its own: export it without")
    opset = max((each.version for each in model.opset_import if each.domain in _OWN), default=0)
    if opset < 1:
        raise DataError("the file names no version of ONNX's operators")
    if opset > _NEWEST:
        raise DataError(
            f"the file has version {opset} of ONNX's operators: export it with {_NEWEST} or an earlier one"
        )
    if len(model.graph.node) > _MOST_NODES:
        raise DataError(f"the graph has more than {_MOST_NODES} operators")
    for node in model.graph.node:
        _require_accepted(node, opset)
    _require_inside(model.graph.initializer, model.graph.sparse_initializer)
    require_fixed_sizes(model.graph)
    require_safe_divisions(model.graph, opset)
    given = {each.name for each in model.graph.initializer}
    given |= {each.values.name for each in model.graph.sparse_initializer}
    return Graph(
        tuple(_port(each) for each in model.graph.input if each.name not in given),
        tuple(map(_port, model.graph.output)),
        len(model.graph.node),
        opset,
    )


def _require_accepted(node: onnx.NodeProto, opset: int) -> None:
    import onnx.defs

    if not isinstance(node.op_type, str) or not isinstance(node.domain, str):
        raise DataError(_NOT_UTF8)
    if node.domain not in _OWN:
        raise DataError(
            f"the operator {node.op_type!r:.80} is of {node.domain!r:.80}, not of ONNX's own set"
        )
    if node.op_type in _INNER or any(each.HasField("g") or each.graphs for each in node.attribute):
        raise DataError(
            f"the operator {node.op_type!r:.80} has a graph within it: what it runs for an input depends on "
            "the input. If its condition is a constant, a simplifier such as onnxsim takes it out"
        )
    # The third input of Dropout says that it is trained: then it draws.
    if node.op_type in _RANDOM or (node.op_type == "Dropout" and any(node.input[2:])):
        raise DataError(
            f"the operator {node.op_type} draws at random: a record would have no place"
        )
    if node.op_type in _DECODERS or not onnx.defs.has(node.op_type, opset, ""):
        raise DataError(f"the operator {node.op_type!r:.80} is not accepted")
    for each in node.attribute:
        _require_inside((each.t, *each.tensors), (each.sparse_tensor, *each.sparse_tensors))


def _require_inside(
    tensors: Iterable[onnx.TensorProto], sparse: Iterable[onnx.SparseTensorProto]
) -> None:
    """Refuse weights of another file."""
    parts = [part for each in sparse for part in (each.values, each.indices)]
    if any(each.data_location or each.external_data for each in (*tensors, *parts)):
        raise DataError(
            "the graph has weights in another file (external data): save it as one file"
        )


def _port(value: onnx.ValueInfoProto) -> Port:
    if not isinstance(value.name, str):
        raise DataError(_NOT_UTF8)
    if value.type.WhichOneof("value") != "tensor_type":
        return Port(value.name, 0, None)
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return Port(value.name, kind.elem_type, None)
    shape = tuple(
        each.dim_value if each.WhichOneof("value") == "dim_value" else OPEN
        for each in kind.shape.dim
    )
    return Port(value.name, kind.elem_type, shape)


def _listed(ports: tuple[Port, ...]) -> str:
    return listed([*map(str, ports)]) or "nothing"


def open_session(model: bytes) -> Any:
    """Return an ``onnxruntime.InferenceSession`` of a checked graph."""
    try:
        import onnxruntime
    except ImportError as error:
        raise DataError("encoders need the package onnxruntime: install it") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.use_deterministic_compute = True
    options.log_severity_level = 4
    # A run's memory goes back, and is not planned by the shapes of earlier inputs.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.add_session_config_entry("session.load_model_format", "ONNX")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        # Its fallback would print the error, and try the same again.
        return onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception as error:  # its errors have no common base but this
        raise DataError(f"ONNX Runtime cannot open the graph: {first_line(error)}") from error


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
