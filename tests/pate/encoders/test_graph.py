"""What an ONNX file may have, before it is run."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize(
    "domain", ["com.microsoft", "ai.onnx.ml", "com.example", "ai.onnx.training"]
)
def test_operators_of_other_sets_are_refused(domain: str) -> None:
    node = helper.make_node("FusedMatMul", ["row"], ["features"], domain=domain)
    with pytest.raises(DataError, match=f"'FusedMatMul' is of '{domain}', not of ONNX's own set"):
        checked_graph(graph_with(node))


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ("Loop", "repeats"),
        ("Scan", "repeats"),
        ("RandomNormalLike", "draws at random"),
        ("Bernoulli", "draws at random"),
        ("ImageDecoder", "is not accepted"),
        ("NoSuchOperator", "is not accepted"),
    ],
)
def test_some_of_its_own_operators_are_refused(kind: str, match: str) -> None:
    with pytest.raises(DataError, match=match):
        checked_graph(graph_with(helper.make_node(kind, ["row"], ["features"])))


def branch(depth: int, *nodes: Any) -> Any:
    inner = nodes or (helper.make_node("Identity", ["row"], ["features"]),)
    graph = helper.make_graph(list(inner), "b", [], [tiny.port("features", 1, 6)])
    for _ in range(depth):
        node = helper.make_node("If", ["c"], ["features"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], "b", [], [tiny.port("features", 1, 6)])
    return graph.node[0]


def test_inner_graphs_are_looked_at_and_bounded() -> None:
    checked_graph(graph_with(branch(4)))
    with pytest.raises(DataError, match="inner graphs more than 4 deep"):
        checked_graph(graph_with(branch(5)))
    hidden = helper.make_node("Gelu", ["row"], ["features"], domain="com.microsoft")
    with pytest.raises(DataError, match=r"'com\.microsoft'"):
        checked_graph(graph_with(branch(2, hidden)))


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
    with pytest.raises(DataError, match="external data"):
        checked_graph(made.SerializeToString())
    constant = helper.make_node("Constant", [], ["other"], value=outside("other"))
    for node in (constant, branch(2, constant)):
        with pytest.raises(DataError, match="external data"):
            checked_graph(graph_with(node))
    sparse = tiny.image_model()
    sparse.graph.sparse_initializer.add().values.CopyFrom(outside("other"))
    with pytest.raises(DataError, match="external data"):
        checked_graph(sparse.SerializeToString())


def test_functions_are_refused() -> None:
    made = tiny.image_model()
    function = helper.make_function(
        "own", "F", ["x"], ["y"], [helper.make_node("Identity", ["x"], ["y"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    made.functions.append(function)
    with pytest.raises(DataError, match="functions of its own"):
        checked_graph(made.SerializeToString())


def test_what_is_no_graph_is_refused() -> None:
    empty = onnx.ModelProto().SerializeToString()
    for content in (b"", b"\x00" * 50, b"not a graph at all", empty, b"\x0a\xff\xff\xff\xff\x7f"):
        with pytest.raises(DataError, match="not an ONNX file"):
            checked_graph(content)


@pytest.mark.parametrize("version", [-(2**63), -1, 0])
def test_a_version_of_operators_that_there_cannot_be_is_refused(version: int) -> None:
    made = tiny.model(
        [helper.make_node("Identity", ["images"], ["features"])], [tiny.port("images", 1)],
        [tiny.port("features", 1)], domains=[("", version)],
    )  # fmt: skip
    with pytest.raises(DataError, match="names no version"):
        checked_graph(made.SerializeToString())
