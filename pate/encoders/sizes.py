"""What no content of an input may decide in a graph: sizes, and divisions that can end the process.

A graph that makes an array as long as a pixel says takes as much time and memory for a record as its maker
likes, and both can be seen from outside. So what an input's numbers reach is followed through the graph, and
no operator may take the size of its output, or the length of a loop, from there. ``Shape`` and ``Size`` end
the trail: what they give is known before the record is. Text has no fixed size, so a graph has none.

The least whole number of 32 or 64 bits, divided by -1, is none of that width, and the processor ends the
process. A remainder of floats (``Mod`` with ``fmod``) is taken bit by bit: it takes the longer, the further
the two numbers lie apart. What an input's numbers reach may meet neither of them. An encoder needs neither:
it divides floats, and whole numbers only of its sizes.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import onnx

#: What these give is a size, whatever the numbers are.
_SIZES_ONLY: Final = frozenset({"Shape", "Size"})
#: By operator: the places of the inputs that decide how large its output is, or how long it takes.
_DECIDING: Final[dict[str, tuple[int, ...]]] = {
    "AffineGrid": (1,),
    "Attention": (6,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "DFT": (1, 2),
    "Expand": (1,),
    "GRU": (4,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "LSTM": (4,),
    "MaxRoiPool": (1,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (0, 1, 2, 3, 4),
    "NonZero": (0,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "RNN": (4,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "RoiAlign": (1,),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unique": (0,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **{
        f"Reduce{what}": (1,)
        for what in (
            "L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare",
        )
    },
}  # fmt: skip
#: ONNX's number of the element type of texts.
_TEXT: Final = 8
#: Operators on lists and on text, whose sizes this does not follow.
_NOT_FOLLOWED: Final = frozenset({
    "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "RegexFullMatch",
    "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
    "SequenceLength", "SplitToSequence", "StringConcat", "StringNormalizer", "StringSplit",
    "TfIdfVectorizer",
})  # fmt: skip


def require_fixed_sizes(graph: onnx.GraphProto) -> None:
    """Check that no size within a graph, which has none within it, depends on an input's content."""
    told = reached(graph)
    for node in graph.node:
        if node.op_type in _NOT_FOLLOWED or _makes_text(node):
            raise DataError(f"the operator {node.op_type} is not accepted: it makes lists or text")
        places = _DECIDING.get(node.op_type, ())
        if any(node.input[at] in told for at in places if at < len(node.input)):
            raise DataError(
                f"the operator {node.op_type} makes an array whose size depends on the content of an "
                "input, or a loop whose length does: its time and memory for a record would tell of "
                "the record"
            )
    if any(each.data_type == _TEXT for each in graph.initializer):
        raise DataError("the graph has texts among its weights")


def _makes_text(node: onnx.NodeProto) -> bool:
    return any(
        each.t.data_type == _TEXT
        or each.name in {"value_string", "value_strings"}
        or (each.name == "to" and each.i == _TEXT)
        for each in node.attribute
    )


def reached(graph: onnx.GraphProto) -> set[str]:
    """Return the names of what an input's numbers reach, in whatever order the operators stand."""
    fixed = {each.name for each in graph.initializer}
    fixed |= {each.values.name for each in graph.sparse_initializer}
    return spread(
        graph,
        {each.name for each in graph.input} - fixed,
        lambda node, _: () if node.op_type in _SIZES_ONLY else node.output,
    )


def spread(
    graph: onnx.GraphProto, start: set[str], gives: Callable[[onnx.NodeProto, str], Iterable[str]]
) -> set[str]:
    """Return what has a property; ``gives`` returns an operator's outputs to which an input passes it."""
    takers = defaultdict(list)
    for node in graph.node:
        for name in set(node.input):
            takers[name].append(node)
    found = start - {""}
    waiting = list(found)
    while waiting:
        name = waiting.pop()
        for node in takers.pop(name, ()):
            new = set(gives(node, name)) - found - {""}
            found |= new
            waiting += new
    return found


# Divisions

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
