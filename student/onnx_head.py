"""The head of an encoder as an ONNX graph: with the encoder in the same file, or alone.

The graph does what the pipeline does after the encoder's own output: pooling, length one, whole numbers,
the head. With the encoder it takes what that takes: an image as its description prepares it, or tokens and
their mask. It sums in float32, where the pipeline sums exactly. So a coordinate that lies on the edge between
two whole numbers may fall to the other side, by one unit of 1/32767: probabilities differ by less than
:data:`CLOSE`, and are compared for one input before a file is written.

The head's operators mean the same in every set from :data:`OLDEST` on: reductions, whose form changed, are
products with ones and poolings over everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pate.answers import LABELS, NUMBER, answer_of
from pate.data.embeddings import UNIT
from pate.data.schema import Schema
from pate.encoders.encoder import Encoder, opened_files
from pate.encoders.graph import TOKENS, checked_graph, open_session
from pate.errors import SchemaError
from pate.printable import printable

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.encoders.description import Description
    from student.fit.rows import TableStudent

#: Most bytes of an encoder that is written into a student's file.
LARGEST: Final = 2**29
#: The first set of operators in which all of the head's are there.
OLDEST: Final = 11
#: Most by which a probability of the file may differ from the pipeline's.
CLOSE: Final = 1e-3
#: Of a head alone.
_OPSET, _FORMAT = 17, 8
_OUTPUT: Final = "probabilities"
_UNNAMED: Final = "the encoder's folder was not named: with --encoder DIR the file has both"


@dataclass(frozen=True, eq=False)
class HeadGraph:
    """A head as an ONNX graph."""

    model: onnx.ModelProto
    # the description of the encoder that is in it; None for a head alone
    inside: Description | None = None
    alone: str = ""  # why the encoder is not in it; "" if it is


class _DoesNotFitError(Exception):
    """Why an encoder and its head cannot be one file."""


def has_graph(student: TableStudent) -> bool:
    """Return whether a student of embeddings has an ONNX form: no constant, and no number with points."""
    points = student.answer == NUMBER and len(student.classes) > 2
    return bool(student.models) and not points


def head_graph(student: TableStudent, folder: Path | None) -> HeadGraph:
    """Return the graph of a head, with its encoder where that fits.

    Input of a head alone: ``embeddings``, (n, d) float32, the encoder's rows after its pooling, of any length
    but zero. Output: ``probabilities``, (n, classes) float32. The classes and the encoder's digest are in
    the metadata, with the encoder its description, too.

    ``student``: of embeddings, which :func:`has_graph`.
    """
    digest = Schema.parse(student.schema).encoder or ""
    alone = _UNNAMED
    if folder is not None:
        described, contents = opened_files(folder)
        if described.digest != digest:
            raise SchemaError(
                f"the student takes embeddings by the encoder {digest}, and --encoder is "
                f"{described.in_words()}: name the campaign's folder"
            )
        try:
            merged = _merged(student, described, contents[0])
            _compare(merged, student, Encoder.open(folder))
            return HeadGraph(merged, described)
        except _DoesNotFitError as error:
            alone = str(error)
    tail = _Tail("student_")
    tail.finish("embeddings", student)
    graph = helper.make_graph(
        tail.nodes,
        "student",
        [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, ["n", _width(student)])],
        [_probabilities(student, "n")],
        tail.weights,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_FORMAT
    )
    _describe(model, student, {"encoder": digest})
    onnx.checker.check_model(model, full_check=True)
    return HeadGraph(model, alone=alone)


def _merged(student: TableStudent, described: Description, content: bytes) -> onnx.ModelProto:
    """Return an encoder's graph with the head behind it."""
    if len(content) > LARGEST:
        raise _DoesNotFitError(
            f"the encoder has {len(content) >> 20} MiB, and at most {LARGEST >> 20} are copied"
        )
    checked = checked_graph(content)
    if checked.opset < OLDEST:
        raise _DoesNotFitError(
            f"the encoder's operators are of version {checked.opset}, the head's of {OLDEST} or later"
        )
    shape = next((each.shape for each in checked.outputs if each.name == described.output), None)
    if shape is None:
        raise _DoesNotFitError("the encoder's file does not say what shape its output has")
    model = onnx.ModelProto()
    model.ParseFromString(content)
    graph = model.graph
    names = {name for node in graph.node for name in (*node.input, *node.output)}
    names |= {each.name for each in graph.initializer}
    names |= {each.name for each in (*graph.input, *graph.output)}
    names = {
        name for name in names if isinstance(name, str)
    }  # Protobuf gives bytes for damaged ones.
    if _OUTPUT in names:
        raise _DoesNotFitError(f"the encoder has a value called {_OUTPUT}, as the head's output is")
    prefix = "student_"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    tail = _Tail(prefix)
    mask = TOKENS[1] if any(port.name == TOKENS[1] for port in checked.inputs) else None
    masked = mask if described.images is None else None
    tail.finish(tail.pooled(described, len(shape), masked), student)
    graph.node.extend(tail.nodes)
    graph.initializer.extend(tail.weights)
    del graph.output[:]
    first = checked.inputs[0].shape
    graph.output.append(_probabilities(student, "n" if first is None else first[0] or "n"))
    model.ir_version = max(model.ir_version, _FORMAT)
    about = {"encoder": described.digest, "encoder.json": described.to_bytes().decode()}
    try:
        _describe(model, student, about)
        onnx.checker.check_model(model)
    except Exception as error:  # those of the checker and of Protobuf have no common base but this
        raise _DoesNotFitError(f"the two graphs do not go together: {_line(error)}") from error
    return model


def _compare(model: onnx.ModelProto, student: TableStudent, encoder: Encoder) -> None:
    """Run one input by the file and by the pipeline."""
    record = encoder.trial_inputs()[0]
    row = encoder.row(record)[np.newaxis]
    window = Schema.parse(student.schema).window
    expected = student.predict_probabilities(encoder.embeddings(row, window))
    try:
        session = open_session(model.SerializeToString())
        (found,) = session.run([_OUTPUT], encoder.prepared(record))
    except Exception as error:  # those of ONNX Runtime have no common base but this
        raise _DoesNotFitError(f"ONNX Runtime cannot run both: {_line(error)}") from error
    apart = float(np.abs(found - expected).max())
    if not apart <= CLOSE:
        raise _DoesNotFitError(f"as one graph a probability of theirs is {apart:.2g} apart")


class _Tail:
    """Builder of what comes after an encoder."""

    def __init__(self, prefix: str) -> None:
        """Begin; each new name has the prefix."""
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._prefix = prefix

    def pooled(self, described: Description, rank: int, mask: str | None) -> str:
        """Return rows of the output, of any length: a mean over tokens is taken as their sum."""
        output = described.output
        if described.pooling == "first":
            return self._add("Gather", output, self._stored(np.array(0)), axis=1)
        if described.pooling == "mean" and mask is not None:
            counted = self._add("Cast", mask, to=TensorProto.FLOAT)
            output = self._add("MatMul", self._shaped(counted, 0, 1, -1), output)
        elif described.pooling == "mean":
            if rank == 3:
                output = self._add("Transpose", output, perm=[0, 2, 1])
            output = self._add("GlobalAveragePool", output)
        return self._shaped(output, -1, described.width)

    def finish(self, rows: str, student: TableStudent) -> None:
        """Bring rows (n, d) to length one and to whole numbers, and put the head behind them."""
        width = _width(student)
        # First the largest coordinate becomes 1: no square overflows or vanishes.
        largest = self._add("GlobalMaxPool", self._shaped(self._add("Abs", rows), 0, 1, -1))
        scaled = self._add("Div", rows, self._shaped(largest, -1, 1))
        ones = self._stored(np.ones((width, 1), dtype=np.float32))
        squared = self._add("MatMul", self._add("Mul", scaled, scaled), ones)
        unit = self._add("Div", scaled, self._add("Sqrt", squared))
        whole = self._add("Round", self._add("Mul", unit, self._stored(np.float32(UNIT))))
        weights, bias = _weights(student)
        scores = self._add("MatMul", whole, self._stored((weights / UNIT).astype(np.float32)))
        scores = self._add("Add", scores, self._stored(bias.astype(np.float32)))
        if answer_of(student.answer).name == LABELS:
            self.nodes.append(helper.make_node("Sigmoid", [scores], [_OUTPUT]))
        else:
            self.nodes.append(helper.make_node("Softmax", [scores], [_OUTPUT], axis=1))

    def _shaped(self, name: str, *shape: int) -> str:
        return self._add("Reshape", name, self._stored(np.array(shape)))

    def _add(self, kind: str, *inputs: str, **settings: int | list[int]) -> str:
        output = f"{self._prefix}{len(self.nodes)}"
        node = helper.make_node(kind, inputs, [output])
        node.attribute.extend(helper.make_attribute(*setting) for setting in settings.items())
        self.nodes.append(node)
        return output

    def _stored(self, value: NDArray[Any] | np.generic) -> str:
        name = f"{self._prefix}constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name


def _weights(student: TableStudent) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (d, m) and (m,): scores of classes, or of labels."""
    models = [vars(model) for model in student.models.values()]
    own = np.concatenate([np.asarray(each["coef_"]).T for each in models], axis=1)
    bias = np.concatenate([np.asarray(each["intercept_"]) for each in models])
    if answer_of(student.answer).name != LABELS and own.shape[1] == 1:
        # scikit-learn stores only the second class's score.
        own, bias = np.hstack([np.zeros_like(own), own]), np.concatenate([[0.0], bias])
    return own, bias


def _width(student: TableStudent) -> int:
    return Schema.parse(student.schema).width


def _probabilities(student: TableStudent, rows: int | str) -> onnx.ValueInfoProto:
    shape = [rows, len(student.classes)]
    return helper.make_tensor_value_info(_OUTPUT, TensorProto.FLOAT, shape)


def _describe(model: onnx.ModelProto, student: TableStudent, about: dict[str, str]) -> None:
    """Add our metadata to the encoder's own."""
    model.producer_name = "federated-pate"
    before = {each.key: each.value for each in model.metadata_props}
    mine = {"classes": "\n".join(student.classes), "answer": student.answer}
    helper.set_model_props(model, before | mine | about)


def _line(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return printable(text, 200)
