"""Divisions of numbers that come from an input: some end the process, and some take long.

The least whole number of 32 or 64 bits, divided by -1, is none of that width, and the processor ends the
process. A remainder of floats (``Mod`` with ``fmod``) is taken bit by bit: it takes the longer, the further
the two numbers lie apart. What an input's numbers reach may meet neither of them. An encoder needs neither:
it divides floats, and whole numbers only of its sizes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from pate.encoders.sizes import reached, spread
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import onnx

#: ONNX's numbers and names of the element types whose division can end the process. Narrower ones are
#: divided in 32 bits, and those without a sign have no -1.
_WHOLE: Final = frozenset({6, 7})
_WHOLE_TEXTS: Final = frozenset({"tensor(int32)", "tensor(int64)"})
_FLOAT: Final = 1


def require_safe_divisions(graph: onnx.GraphProto, opset: int) -> None:
    """Check that no number of an input comes to a division that can end the process or take long.

    The operators have no graphs within them, and are all of ONNX's set ``opset``.
    """
    told, whole = reached(graph), _whole(graph, opset)
    for node in graph.node:
        if node.op_type == "Div" and told & set(node.input) and whole & set(node.input):
            raise DataError(
                "the operator Div divides whole numbers of an input: the least one by -1 would end "
                "the process"
            )
        if node.op_type == "Mod" and told & set(node.input) and _attribute(node, "fmod"):
            raise DataError(
                "the operator Mod takes the remainder of floats of an input: its time would tell of "
                "the record"
            )


class _Types(NamedTuple):
    """Which elements an operator takes and gives, by its definition."""

    inputs: tuple[str, ...]  # name of the type of each; the last one is that of all further ones
    outputs: tuple[str, ...]  # the same
    whole: frozenset[str]  # names of types that can be of :data:`_WHOLE`


@cache
def _types(kind: str, opset: int) -> _Types:
    import onnx.defs

    schema = onnx.defs.get_schema(kind, opset, "")
    able = {
        each.type_param_str
        for each in schema.type_constraints
        if _WHOLE_TEXTS & set(each.allowed_type_strs)
    }
    return _Types(
        tuple(each.type_str for each in schema.inputs),
        tuple(each.type_str for each in schema.outputs),
        _WHOLE_TEXTS | able,
    )


def _whole(graph: onnx.GraphProto, opset: int) -> set[str]:
    """Return the names of all arrays that are of :data:`_WHOLE`, or may be."""
    start = {each.name for each in graph.initializer if each.data_type in _WHOLE}
    start |= {each.values.name for each in graph.sparse_initializer}
    start |= {each.name for each in graph.input if each.type.tensor_type.elem_type in _WHOLE}
    for node in graph.node:
        types = _types(node.op_type, opset)
        taken = {kind for kind, name in _typed(node.input, types.inputs) if name}
        for kind, name in _typed(node.output, types.outputs):
            if kind in types.whole and kind not in taken and _stated(node) in {None, *_WHOLE}:
                start.add(name)

    def gives(node: onnx.NodeProto, name: str) -> Iterator[str]:
        types = _types(node.op_type, opset)
        taken = {kind for kind, each in _typed(node.input, types.inputs) if each == name}
        for kind, each in _typed(node.output, types.outputs):
            if kind in types.whole & taken:
                yield each

    return spread(graph, start, gives)


def _typed(names: Iterable[str], kinds: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each name with the name of its type."""
    for at, name in enumerate(names):
        if kinds:
            yield kinds[min(at, len(kinds) - 1)], name


def _stated(node: onnx.NodeProto) -> int | None:
    """Return the element type that an operator's attributes state, None if none does."""
    for each in node.attribute:
        if each.name in {"to", "dtype"}:
            return each.i
        if each.name in {"value_float", "value_floats"}:
            return _FLOAT
        if each.name == "value":
            return each.t.data_type
    return _FLOAT if node.op_type == "ConstantOfShape" else None


def _attribute(node: onnx.NodeProto, name: str) -> int:
    return next((each.i for each in node.attribute if each.name == name), 0)
