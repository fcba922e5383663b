"""Data sets from what a notebook has: arrays, data frames, torch data sets, or a path.

The rules are those of files: a cell, a label or a picture has the same value here, and so the same hash.
Neither pandas nor torch is imported; an object counts as one of theirs by what it has.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from pate.data.cells import cell_text, plain_name
from pate.data.embeddings import Embeddings
from pate.data.encoded import Raw
from pate.data.files.npz import pixels_of
from pate.data.files.tables import TextTable, clean, column_names
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.records import Several, joined
from pate.data.schema import Schema
from pate.data.values import Dataset, Images, Inputs, Table
from pate.errors import DataError, SchemaError, UsageError
from pate.printable import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from pate.data.encoded import Embedder
    from pate.data.values import Column

#: Whatever holds values: this module looks at what it is.
Source: TypeAlias = Any
#: In place of a file's path in messages.
_HERE: Final = Path("the data")
_LABELS: Final = Path("the labels")
_CHANNELS: Final = (1, 3)
#: Most dimensions of a list of cells.
_OF_CELLS: Final = 2
_ONE_CLASS: Final = Several((), None)


def inputs_in(
    # (n, columns) numbers or text; (n, height, width), or with 1 or 3 channels first or last, images; a
    # data frame; a torch data set, whose labels are ignored; a path, or inputs as they are
    data: Source,
    *,
    # what they must be: columns in this order and of these kinds, by name in a frame and by place in an
    # array. None: inferred, the columns of an array are x0, x1 and so on.
    schema: Schema | None = None,
    drop: Sequence[str] = (),  # columns of a frame or a file that are no feature
    encoder: Embedder | None = None,  # makes embeddings of the records at a path
    # called with a line about what may be read otherwise than intended
    say: Callable[[str], None] | None = None,
) -> Inputs:
    """Return inputs without labels."""
    made: Inputs
    if isinstance(data, Images | Table | Embeddings):
        made = data
    elif isinstance(data, str | Path):
        made = read_inputs(Path(data), drop=drop, encoder=encoder, say=say)
    elif is_frame(data):
        made = _of_frame(data, {*drop}, schema)
    elif is_torch_data(data):
        made, _ = _of_torch(data, schema)
    else:
        made = _of_array(_array(data), schema)
    if schema is not None and schema.numeric is not None and isinstance(made, Table):
        made = made.aligned([*schema.numeric], [*schema.numeric.values()])
    if not len(made):
        raise DataError(f"{_HERE} holds no records")
    return made


def records_in(
    # as of :func:`inputs_in`; of a torch data set the second part of each item is its label
    data: Source,
    # (n,) one class each; None: those of a data set or path, or the column ``label``
    labels: Source = None,
    groups: Source = None,  # (n,) the group (patient) of each record; None: there are none
    *,
    classes: Sequence[str] | None = None,  # the class list; None: the classes that occur
    # of the campaign's inputs. Each cell of a table is read by it, without effect on others.
    schema: Schema | None = None,
    label: str | None = None,  # the column of the class of a frame, or at a path
    # in place of a class several labels or a number, which ``labels`` then are: (n, l) yes or no, a frame or
    # an array, or (n,) numbers. None of them: columns of a frame, or at a path
    several: Several = _ONE_CLASS,
    encoder: Embedder | None = None,  # as of :func:`inputs_in`
    # called with a line about records and cells at a path that are left out
    say: Callable[[str], None] | None = None,
) -> Dataset:
    """Return labelled records."""
    if isinstance(data, str | Path):
        if labels is not None:
            raise UsageError(f"the labels of {data} are in its files: give the path only")
        if groups is not None and not isinstance(groups, str):
            raise UsageError(f"the groups of {data} are a column of it: give its name")
        odd = Odd()
        read = read_dataset(
            Path(data), label=None if several else label, labels=several.labels, number=several.number,
            group=groups, classes=None if several else classes, schema=schema, encoder=encoder, odd=odd,
        )  # fmt: skip
        if say is not None:
            for line in odd.lines():
                say(f"{data}: {line}")
        return read
    own = several.columns or (() if label is None else (label,))
    if is_frame(data) and own and (labels is None or not several):
        if labels is not None:
            raise UsageError(f"the labels are in the column {label!r} already: give them once")
        if missing := [name for name in own if name not in data.columns]:
            raise SchemaError(f"{_HERE} have no column {missing[0]!r:.80}")
        labels = data[list(own)] if several.labels else data[own[0]]
        inputs: Inputs = _of_frame(data, {*own}, schema)
    elif is_torch_data(data) and labels is None:
        inputs, labels = _of_torch(data, schema)
    elif is_frame(data):
        inputs = _of_frame(data, set(), schema)
    else:
        plain = is_torch_data(data) or isinstance(data, Images | Table | Embeddings)
        inputs = inputs_in(data, schema=schema) if plain else _of_array(_array(data), schema)
    if labels is None:
        raise UsageError("the records have no labels: give them as (X, y), or name their column")
    if schema is not None:
        inputs = _by_schema(inputs, schema)
    of_whom = None if groups is None else _groups(groups, len(inputs))
    answers = _answer_cells(labels, several) if several else []
    cells = dict(zip(several.columns, answers, strict=True))
    names = None if several else names_of(labels)
    raw = Raw(_LABELS, len(inputs), lambda: iter(()), names, of_whom, cells)
    return joined(raw, inputs, several, classes=classes, odd=None)


def label_names(labels: Source) -> tuple[str, ...] | None:
    """Return the names of the columns of several labels; None of one class, or a number, a record.

    Those of an array are y0, y1 and so on.

    >>> label_names(np.eye(2)), label_names([0, 1])
    (('y0', 'y1'), None)
    """
    if is_frame(labels):
        names = column_names(_LABELS, [str(each) for each in labels.columns])
        return tuple(names) if len(names) > 1 else None
    if is_torch_data(labels):
        first = labels[0] if len(labels) else None
        of_one = _array(first[1]) if isinstance(first, list | tuple) and len(first) > 1 else None
        width = 1 if of_one is None or of_one.ndim != 1 else len(of_one)
    else:
        array = _array(labels)
        width = array.shape[1] if array.ndim == 2 else 1
    return tuple(f"y{at}" for at in range(width)) if width > 1 else None


def _answer_cells(labels: Source, several: Several) -> list[list[str]]:
    """Return the cells of each label, or those of a number, as a file has them."""
    if is_frame(labels):
        names = column_names(_LABELS, [str(each) for each in labels.columns])
        if several.labels and {*names} != {*several.labels}:
            raise SchemaError(f"{_LABELS} are {listed(names)}, wanted are {listed(several.labels)}")
        labels = [labels.iloc[:, names.index(name)] for name in several.labels or names]
        columns = [_array(each) for each in labels]
    else:
        array = _array(labels)
        columns = [*array.T] if array.ndim == 2 else [array]
    if len(columns) != len(several.columns) or any(each.ndim != 1 for each in columns):
        wanted = listed(several.labels) if several.labels else "one number for each record"
        raise DataError(f"{_LABELS} have {len(columns)} columns; wanted: {wanted}")
    return [[_cell(each) for each in column.tolist()] for column in columns]


def names_of(labels: Source) -> list[str]:
    """Return the name of each label, as files have it.

    >>> names_of([True, 2.0, "benign "]), names_of(np.array([3, 1]))
    (['1', '2', 'benign'], ['3', '1'])
    """
    array = labels if isinstance(labels, list | tuple) else _array(labels)
    if not isinstance(array, list | tuple) and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if not isinstance(array, list | tuple):
        if array.ndim != 1:
            raise DataError(f"labels have shape {array.shape}; they must be one for each record")
        array = array.tolist()
    return [plain_name(_cell(each)) for each in array]


def is_frame(data: object) -> bool:
    """Return whether it is a data frame, of pandas or alike: it has named columns with types."""
    return hasattr(data, "columns") and hasattr(data, "dtypes")


def is_torch_data(data: object) -> bool:
    """Return whether it is a torch data set: items by number, and nothing of an array or a list."""
    return (
        hasattr(data, "__getitem__")
        and hasattr(data, "__len__")
        and not hasattr(data, "__array__")
        and not isinstance(data, list | tuple | str | dict)
        and not is_frame(data)
    )


def _array(data: Source) -> NDArray[Any]:
    """Return an array of numbers, text or objects; of a list, whose cells may be of any type, objects."""
    if hasattr(
        data, "detach"
    ):  # a tensor, which may be part of a computation, or on another device
        data = data.detach().cpu()
    try:
        made = np.asarray(data)
        if isinstance(data, list | tuple) and made.ndim <= _OF_CELLS:
            # An array has one type, which one cell may change, and with it all others.
            made = np.asarray(data, dtype=object)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{_HERE} are no array: {error}") from error
    if made.dtype.kind not in "biufOUM":
        raise DataError(f"{_HERE} are {made.dtype}, neither numbers nor text")
    return made


def _of_array(array: NDArray[Any], schema: Schema | None) -> Inputs:
    if array.ndim in (3, 4):
        if array.ndim == 4 and array.shape[1] in _CHANNELS and array.shape[3] not in _CHANNELS:
            array = array.transpose(0, 2, 3, 1)
        if array.dtype.kind == "b":
            array = array.astype(np.uint8)
        return pixels_of(array, _HERE)
    if array.ndim != 2:
        raise DataError(
            f"{_HERE} have shape {array.shape}; give (n, columns), or images as (n, height, width)"
        )
    names = [f"x{at}" for at in range(array.shape[1])]
    if schema is not None and schema.numeric is not None:
        if len(schema.numeric) != array.shape[1]:
            raise SchemaError(
                f"{_HERE} have {array.shape[1]} columns, the campaign's inputs have {len(schema.numeric)}"
            )
        names = list(schema.numeric)
    return _table(dict(zip(names, array.T, strict=True)), schema)


def _of_frame(frame: Source, drop: set[str], schema: Schema | None) -> Table:
    written = list(frame.columns)
    names = column_names(_HERE, [str(each) for each in written])
    return _table(
        {
            name: _array(frame[each])
            for name, each in zip(names, written, strict=True)
            if str(each) not in drop
        },
        schema,
    )


def _table(columns: Mapping[str, NDArray[Any]], schema: Schema | None) -> Table:
    """Return columns as numbers or categories: by their type, else by their cells, as those of a file.

    What the schema has as categories is text at once, cell by cell: a column's type depends on all of its
    cells, and numbers of 64 bits have fewer digits than identifiers.
    """
    made: dict[str, Column] = {}
    kinds = {} if schema is None or schema.numeric is None else schema.numeric
    texts: dict[str, list[str]] = {}
    for name, column in columns.items():
        if column.ndim != 1:
            raise DataError(f"column {name!r} has shape {column.shape}")
        if column.dtype.kind in "biuf" and kinds.get(name, True):
            made[name] = column.astype(np.float64)
        else:
            cells = column.tolist() if column.dtype.kind != "M" else _times(column)
            texts[name] = [_cell(each) for each in cells]
    if not columns:
        raise DataError(f"{_HERE} have no columns")
    if texts:
        empty = TextTable(_HERE, {})
        read = TextTable(_HERE, {name: clean(empty, name, cells) for name, cells in texts.items()})
        categories = [name for name in texts if kinds.get(name) is False]
        parsed = read.table((), as_text=categories).plain()
        made |= dict(zip(parsed.names, parsed.columns, strict=True))
    return Table(tuple(columns), tuple(made[name] for name in columns))


def _times(column: NDArray[np.datetime64]) -> list[object]:
    """Return times as a column of objects has them; what is finer than a microsecond as text."""
    coarse = column.astype("M8[us]")
    exact = (coarse == column) | np.isnat(column)
    texts = column.astype(np.str_).tolist()
    return [
        time if plain else text.replace("T", " ")
        for time, plain, text in zip(coarse.tolist(), exact.tolist(), texts, strict=True)
    ]


def _cell(value: object) -> str:
    text = cell_text(value)
    if text is None:
        raise DataError(f"a cell has a {type(value).__name__}, neither a number nor text")
    return text


def _of_torch(data: Source, schema: Schema | None) -> tuple[Inputs, list[object] | None]:
    """Return the inputs of a data set, and its labels; None if it has none."""
    items = [data[at] for at in range(len(data))]
    if not items:
        raise DataError(f"{_HERE} holds no records")
    labels: list[object] | None = None
    if isinstance(items[0], list | tuple):
        if all(len(each) >= 2 for each in items):
            labels = [_plain(each[1]) for each in items]
        items = [each[0] for each in items]
    arrays = [_array(each) for each in items]
    if len({each.shape for each in arrays}) > 1:
        raise DataError(f"{_HERE} have items of several shapes; make them of one size first")
    return _of_array(np.stack(arrays), schema), labels


def _plain(value: Source) -> object:
    """Return a label as Python has it; several labels as a list."""
    return value.tolist() if hasattr(value, "tolist") else value


def _by_schema(inputs: Inputs, schema: Schema) -> Inputs:
    """Return a party's records as the campaign's inputs are, cell by cell."""
    if isinstance(inputs, Table) and schema.numeric is not None:
        kinds = [*schema.numeric.values()]
        return inputs.aligned([*schema.numeric], kinds, cell_by_cell=True).plain()
    if Schema.of(inputs) != schema:
        raise SchemaError(
            f"the campaign's inputs are {schema.in_words()}, the records are "
            f"{Schema.of(inputs).in_words()}"
        )
    return inputs


def _groups(groups: Source, number: int) -> NDArray[np.str_]:
    array = _array(groups)
    if array.shape != (number,):
        raise DataError(f"{number} records and groups of shape {array.shape}")
    held = TextTable(_HERE, {"groups": [_cell(each) for each in array.tolist()]})
    return np.array(held.column("groups", "group"), dtype=np.str_)
