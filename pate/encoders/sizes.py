"""Sizes within a graph: they depend on the size of an input, never on what is in it.

A graph that makes an array as long as a pixel says takes as much time and memory for a record as its maker
likes, and both can be seen from outside. So what an input's numbers reach is followed through the graph, and
no operator may take the size of its output, or the length of a loop, from there. ``Shape`` and ``Size`` end
the trail: what they give is known before the record is. Text has no fixed size, so a graph has none.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
    """Check that no size within a graph depends on the content of an input.

    Its operators have no graphs within them.
    """
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
    graph: onnx.GraphProto,
    start: set[str],
    gives: Callable[[onnx.NodeProto, str], Iterable[str]],
) -> set[str]:
    """Return what has a property that operators pass on, in whatever order they stand.

    ``gives`` returns those outputs of an operator that have it if an input of a name does.
    """
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
