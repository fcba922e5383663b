"""What an ONNX file may have, before it is run."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pate.encoders.graph import checked_graph
from pate.errors import DataError
from tests.support.encoders import tiny_encoders as tiny


def graph_with(*nodes: Any, **more: Any) -> bytes:
    made = tiny.image_model(more=nodes, **more)
    content: bytes = made.SerializeToString()
    return content


def test_a_graph_is_described() -> None:
    found = checked_graph(tiny.image_model().SerializeToString())
    assert (found.nodes, found.opset) == (3, 17)
    assert str(found.inputs[0]) == "'images' 1x3x8x8"
    assert str(found.outputs[0]) == "'features' 1x6"


def refused(content: bytes, why: str) -> None:
    with pytest.raises(DataError, match=why):
        checked_graph(content)


def test_operators_of_other_sets_and_some_of_its_own_are_refused() -> None:
    for domain in ("com.microsoft", "ai.onnx.ml", "com.example", "ai.onnx.training"):
        node = helper.make_node("FusedMatMul", ["row"], ["features"], domain=domain)
        refused(graph_with(node), f"'FusedMatMul' is of '{domain}', not of ONNX's own set")
    inner, random, no = "has a graph within it", "draws at random", "is not accepted"
    for kind, why in (
        ("If", inner), ("Loop", inner), ("Scan", inner), ("SequenceMap", inner),
        ("SequenceConstruct", "makes lists or text"), ("RandomNormalLike", random),
        ("Bernoulli", random), ("ImageDecoder", no), ("NoSuchOperator", no),
    ):  # fmt: skip
        refused(graph_with(helper.make_node(kind, ["row"], ["features"])), why)


def test_graphs_within_an_operator_are_refused_wherever_they_are() -> None:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["row"], ["features"])], "b", [],
        [tiny.port("features", 1, 6)],
    )  # fmt: skip
    for more in ({"then_branch": inner}, {"graphs": [inner]}):
        refused(
            graph_with(helper.make_node("Identity", ["row"], ["features"], **more)),
            "has a graph within it",
        )


def test_a_version_of_operators_that_nobody_looked_at_is_refused() -> None:
    made = tiny.image_model()
    made.opset_import[0].version = 10_000
    refused(made.SerializeToString(), "version 10000 of ONNX's operators")


def test_dropout_that_is_trained_is_refused() -> None:
    checked_graph(graph_with(helper.make_node("Dropout", ["row", "half"], ["features"])))
    refused(
        graph_with(helper.make_node("Dropout", ["row", "", "yes"], ["features"])), "draws at random"
    )


DECIDED_BY_CONTENT: dict[str, list[str]] = {
    "Expand": ["one", "size"], "Reshape": ["one", "size"], "ConstantOfShape": ["size"],
    "Tile": ["one", "size"], "Range": ["zero", "size", "one"], "Slice": ["one", "zero", "size"],
    "Pad": ["one", "size"], "TopK": ["one", "size"], "OneHot": ["one", "size", "one"],
    "Resize": ["one", "", "", "size"], "Split": ["one", "size"], "Compress": ["one", "size"],
    "NonZero": ["size"], "Unique": ["size"], "NonMaxSuppression": ["one", "one", "size"],
    "RoiAlign": ["one", "size", "one"], "ReduceSum": ["one", "size"],
    "LSTM": ["one", "one", "one", "", "size"], "GRU": ["one", "one", "one", "", "size"],
    "RNN": ["one", "one", "one", "", "size"],
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(DECIDED_BY_CONTENT))
def test_a_size_that_hangs_on_the_content_is_refused_and_one_by_the_shape_is_not(kind: str) -> None:
    last = helper.make_node(kind, DECIDED_BY_CONTENT[kind], ["features"])
    for source, fits in (("Cast", False), ("Shape", True)):
        first = helper.make_node(source, ["row"], ["told"])
        if not fits:
            first.attribute.append(helper.make_attribute("to", int(TensorProto.INT64)))
        nodes = [first, helper.make_node("Abs", ["told"], ["size"]), last]
        # In whatever order: the trail is followed all the same.
        for order in (nodes, nodes[::-1]):
            if fits:
                checked_graph(graph_with(*order))
                continue
            refused(graph_with(*order), f"{kind} makes an array whose size depends on")


def cast(source: str, made: str, kind: int) -> Any:
    return helper.make_node("Cast", [source], [made], to=kind)


def chosen(first: str, second: str) -> Any:
    """The content decides which; the type is that of the two."""
    return [
        cast("row", "yes", TensorProto.BOOL),
        helper.make_node("Where", ["yes", first, second], ["a"]),
    ]


def constant(name: str, value: Any) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))


LEAST: Final = {
    "cast": [cast("row", "a", TensorProto.INT64)],
    "narrow": [cast("row", "a", TensorProto.INT32)],
    "place": [helper.make_node("ArgMax", ["row"], ["a"])],
    "of top": [helper.make_node("TopK", ["row", "b"], ["values", "a"])],
    "like": [helper.make_node("CastLike", ["row", "b"], ["a"])],
    "weight": chosen("b", "b"),
    "constant": [constant("c", np.array([1])), *chosen("c", "c")],
    "row of weights": [
        cast("row", "at", TensorProto.INT64),
        helper.make_node("Gather", ["b", "at"], ["a"]),
    ],
    "joined": [
        cast("row", "at", TensorProto.INT64),
        helper.make_node("Concat", ["b", "b", "at"], ["a"], axis=0),
    ],
}


def divided(nodes: list[Any], first: str, second: str, **more: Any) -> bytes:
    kind = "Mod" if more else "Div"
    nodes = [
        *nodes,
        helper.make_node(kind, [first, second], ["d"], **more),
        cast("d", "features", 1),
    ]
    made = tiny.image_model(more=nodes)
    made.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "b"))
    content: bytes = made.SerializeToString()
    return content


@pytest.mark.parametrize("how", sorted(LEAST))
def test_whole_numbers_of_the_content_are_not_divided(how: str) -> None:
    """The least one by -1 ends the process."""
    for order in (LEAST[how], LEAST[how][::-1]):
        for first, second in (("a", "b"), ("b", "a"), ("a", "a")):
            refused(divided(order, first, second), "Div divides whole numbers")


@pytest.mark.parametrize(
    "nodes",
    [
        [cast("row", "e", TensorProto.INT64), cast("e", "a", TensorProto.FLOAT)],
        [cast("row", "e", TensorProto.INT64), helper.make_node("Gather", ["weights", "e"], ["a"])],
        [helper.make_node("ReduceMean", ["row"], ["a"])],
        [helper.make_node("Constant", [], ["one"], value_float=1.0), *chosen("one", "row")],
        [helper.make_node("Shape", ["row"], ["a"]), helper.make_node("ConstantOfShape", ["a"], ["none"])],
        [helper.make_node("Shape", ["row"], ["a"])],
    ],
)  # fmt: skip
def test_floats_are_divided_and_so_are_sizes(nodes: list[Any]) -> None:
    checked_graph(divided(nodes, "a", "a"))


def test_no_remainder_of_floats_of_the_content_is_taken() -> None:
    """It takes the longer the more the two differ; one of whole numbers does not."""
    refused(divided([], "row", "row", fmod=1), "Mod takes the remainder of floats")
    checked_graph(divided(LEAST["cast"], "a", "b", fmod=0))


def test_a_graph_has_no_text_for_the_content_to_choose_from() -> None:
    """A table of an empty text and a long one is an array as large as the content says."""
    texts = np.array(["", "x" * 1000], dtype=object)
    made = tiny.image_model()
    made.graph.initializer.append(numpy_helper.from_array(texts, "texts"))
    refused(made.SerializeToString(), "texts among its weights")
    for node in (
        cast("row", "features", TensorProto.STRING),
        helper.make_node("Constant", [], ["features"], value_strings=["", "x"]),
        constant("features", texts),
    ):
        refused(graph_with(node), "it makes lists or text")


def outside(name: str) -> Any:
    tensor = numpy_helper.from_array(np.zeros((6, 6), dtype=np.float32), name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    return tensor


def test_weights_of_another_file_are_refused() -> None:
    made = tiny.image_model()
    made.graph.initializer.append(outside("other"))
    refused(made.SerializeToString(), "external data")
    constant = helper.make_node("Constant", [], ["other"], value=outside("other"))
    refused(graph_with(constant), "external data")
    sparse = tiny.image_model()
    sparse.graph.sparse_initializer.add().values.CopyFrom(outside("other"))
    refused(sparse.SerializeToString(), "external data")


def test_functions_are_refused() -> None:
    made = tiny.image_model()
    function = helper.make_function(
        "own", "F", ["x"], ["y"], [helper.make_node("Identity", ["x"], ["y"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    made.functions.append(function)
    refused(made.SerializeToString(), "functions of its own")


def test_what_is_no_graph_is_refused() -> None:
    empty = onnx.ModelProto().SerializeToString()
    for content in (b"", b"\x00" * 50, b"not a graph at all", empty, b"\x0a\xff\xff\xff\xff\x7f"):
        refused(content, "not an ONNX file")
    for version in (-(2**63), -1, 0):  # of operators, that there cannot be
        made = tiny.model(
            [helper.make_node("Identity", ["images"], ["features"])], [tiny.port("images", 1)],
            [tiny.port("features", 1)], domains=[("", version)],
        )  # fmt: skip
        refused(made.SerializeToString(), "names no version")
