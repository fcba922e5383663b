"""A student as an ONNX graph: class probabilities out.

An image student takes raw pixels. Its graph is written from the
:class:`~student.fit.network.Architecture`, with its preprocessing inside, so that pixels cannot be
scaled wrongly. Only standard operators of opset 17 occur. Students of embeddings: :mod:`student.onnx_head`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pate.errors import UsageError
from student.fit.rows import HEAD, TableStudent
from student.onnx_head import has_graph, head_graph

if TYPE_CHECKING:
    from pathlib import Path

    from pate.encoders.description import Description
    from student.fit.network import ImageStudent
    from student.lesson import Student

FILE: Final = "model.onnx"
OPSET: Final = 17


@dataclass(frozen=True)
class Written:
    """An ONNX file that was written."""

    sha256: str
    inside: Description | None = None  # the description of the encoder that is in it, or None
    alone: str = ""  # of a head without its encoder: why; else ""


def can_write(student: Student) -> bool:
    """Return whether a student has an ONNX form."""
    if isinstance(student, TableStudent):
        return student.kind == HEAD and has_graph(student)
    from student.fit.network import ImageStudent  # with PyTorch, which tables do not need

    return isinstance(student, ImageStudent)


def write(student: Student, path: Path, encoder: Path | None = None) -> Written:
    """Write a student as ONNX, with the classes in its metadata: (n, classes) float32 ``probabilities``.

    Input of an image student: ``images``, (n, height, width, channels) uint8; others:
    :func:`student.onnx_head.head_graph`, with the encoder in the folder ``encoder``, or None.
    """
    if not can_write(student):
        raise UsageError(
            "this student has no ONNX form: students of images and of embeddings have one, but for "
            "constants and for numbers of several points"
        )
    inside, alone = None, ""
    if isinstance(student, TableStudent):
        head = head_graph(student, encoder)
        model, inside, alone = head.model, head.inside, head.alone
    else:
        model = _Graph(cast("ImageStudent", student)).model()
        onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    path.write_bytes(content)
    return Written(hashlib.sha256(content).hexdigest(), inside, alone)


class _Graph:
    """Builder of nodes and weights."""

    def __init__(self, student: ImageStudent) -> None:
        self._student = student
        state = student.network.state_dict()
        self._state = {name: part.cpu().numpy() for name, part in state.items()}
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._made = 0

    def model(self) -> onnx.ModelProto:
        from student.fit.network import block_shapes

        shape = self._student.architecture
        features = self._relu(self._norm(self._conv(self._pixels(), "stem"), "stem_norm"))
        for number, block in enumerate(block_shapes(shape)):
            features = self._block(features, f"blocks.{number}", block)
        mean = self._add("Flatten", [self._add("GlobalAveragePool", [features])], axis=1)
        parts = [mean, self._stored("head.weight"), self._stored("head.bias")]
        logits = self._add("Gemm", parts, transB=1)
        self._nodes.append(helper.make_node("Softmax", [logits], ["probabilities"], axis=1))
        size: list[str | int | None] = ["n", shape.height, shape.width, shape.channels]
        graph = helper.make_graph(
            self._nodes,
            "student",
            [helper.make_tensor_value_info("images", TensorProto.UINT8, size)],
            [
                helper.make_tensor_value_info(
                    "probabilities", TensorProto.FLOAT, ["n", shape.classes]
                )
            ],
            list(self._weights.values()),
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="federated-pate",
            ir_version=8,
        )
        helper.set_model_props(model, {"classes": "\n".join(self._student.classes)})
        return model

    def _pixels(self) -> str:
        numbers = self._add("Cast", ["images"], to=TensorProto.FLOAT)
        first = self._add("Transpose", [numbers], perm=[0, 3, 1, 2])
        scaled = self._add("Div", [first, self._constant("pixel_scale", 127.5)])
        return self._add("Sub", [scaled, self._constant("pixel_offset", 1.0)])

    def _block(self, before: str, name: str, shape: tuple[int, int, int]) -> str:
        from student.fit.network import has_projection

        stride = shape[2]
        aside = self._conv(before, f"{name}.shortcut", stride) if has_projection(*shape) else before
        inner = self._norm(self._conv(before, f"{name}.conv1", stride), f"{name}.norm1")
        outer = self._norm(self._conv(self._relu(inner), f"{name}.conv2"), f"{name}.norm2")
        return self._relu(self._add("Add", [outer, aside]))

    def _conv(self, before: str, name: str, stride: int | None = None) -> str:
        kernel = self._state[f"{name}.weight"].shape[2]
        if stride is None:
            stride = self._student.architecture.stem_stride if name == "stem" else 1
        return self._add(
            "Conv",
            [before, self._stored(f"{name}.weight")],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
        )

    def _norm(self, before: str, name: str) -> str:
        from student.fit.network import NORM_EPSILON

        parts = ("weight", "bias", "running_mean", "running_var")
        stored = [self._stored(f"{name}.{part}") for part in parts]
        return self._add("BatchNormalization", [before, *stored], epsilon=NORM_EPSILON)

    def _relu(self, before: str) -> str:
        from student.fit.network import SLOPE

        return self._add("LeakyRelu", [before], alpha=SLOPE)

    def _add(self, kind: str, inputs: list[str], **settings: float | list[int]) -> str:
        self._made += 1
        output = f"{kind.lower()}_{self._made}"
        node = helper.make_node(kind, inputs, [output])
        node.attribute.extend(helper.make_attribute(*setting) for setting in settings.items())
        self._nodes.append(node)
        return output

    def _stored(self, name: str) -> str:
        self._weights[name] = numpy_helper.from_array(self._state[name], name)
        return name

    def _constant(self, name: str, value: float) -> str:
        self._weights[name] = numpy_helper.from_array(np.array(value, dtype=np.float32), name)
        return name
