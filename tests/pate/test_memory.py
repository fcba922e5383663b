"""Data in memory: the same values, and hashes, as in files; what cannot be used is refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pate.data.memory import inputs_in, label_names, records_in
from pate.data.read import read_dataset, read_inputs
from pate.data.records import Several
from pate.data.schema import Schema
from pate.data.values import Images, Table, content_hash
from pate.errors import DataError, PateError, SchemaError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

NUMBER = Several((), "days")
RNG = np.random.default_rng(1)
PIXELS = RNG.integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
CSV = "age,city,seen,score,kind\n1,Ulm,2020-01-01,0.5,a\n,N/A,2021-02-03,1.25,b\n3.5,Rom,,,a\n"


def frame() -> Any:
    import pandas as pd

    return pd.DataFrame(
        {
            "age": [1, None, 3.5],
            "city": pd.Categorical(["Ulm", None, "Rom"]),
            "seen": pd.to_datetime(["2020-01-01", "2021-02-03", None]),
            "score": pd.array([0.5, 1.25, None], dtype="Float64"),
            "kind": ["a", "b", "a"],
        }
    )


def test_a_frame_is_what_its_file_would_be(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_text(CSV)
    assert content_hash(inputs_in(frame(), drop=["kind"])) == content_hash(
        read_inputs(path, drop=["kind"])
    )
    records, read = records_in(frame(), label="kind"), read_dataset(path, label="kind")
    assert records.row_hashes() == read.row_hashes()
    assert records.classes == ("a", "b")
    assert records_in(str(path), label="kind").row_hashes() == read.row_hashes()


@pytest.mark.parametrize(
    "given",
    [
        PIXELS,
        PIXELS / 255,
        PIXELS.astype(np.int64),
        PIXELS.transpose(0, 3, 1, 2),
        list(PIXELS),
    ],
)
def test_images_have_one_form(given: object) -> None:
    made = inputs_in(given)
    assert isinstance(made, Images)
    assert np.array_equal(made.pixels, PIXELS)


def test_a_torch_data_set_is_inputs_or_records() -> None:
    import torch
    from torch.utils.data import TensorDataset

    pixels = torch.from_numpy(PIXELS.astype(np.float32) / 255).permute(0, 3, 1, 2)
    data = TensorDataset(pixels, torch.tensor([3, 1, 3, 1, 1]))
    records = records_in(data)
    assert (
        content_hash(inputs_in(data))
        == content_hash(records.inputs)
        == content_hash(Images(PIXELS))
    )
    assert (records.classes, records.labels.tolist()) == (("1", "3"), [1, 0, 1, 0, 0])
    with pytest.raises(UsageError, match="no labels"):
        records_in(TensorDataset(pixels))


def test_columns_of_an_array_have_names_by_their_place() -> None:
    numbers = np.array([[1, 2.5], [np.nan, 4]])
    made = inputs_in(numbers)
    assert isinstance(made, Table)
    assert made.schema() == "table x0:number, x1:number"
    mixed = np.array([[1, "x"], [None, 2]], dtype=object)
    assert inputs_in(mixed).schema() == "table x0:number, x1:category"
    named = Schema.parse("table age:number, height:number")
    assert inputs_in(numbers, schema=named).schema() == "table age:number, height:number"


def test_a_cell_of_private_records_changes_no_other() -> None:
    """Kinds of columns are those of the public set; text that is no number is missing."""
    schema = Schema.of(inputs_in(np.array([[1.0, 2.0]])))
    cells = np.array([[1, 5], ["secret", 6], [3, "7"]], dtype=object)
    made = records_in(cells, [0, 1, 0], schema=schema).inputs
    assert isinstance(made, Table)
    first, second = made.columns
    assert np.array_equal(first, [1, np.nan, 3], equal_nan=True)
    assert second.tolist() == [5, 6, 7]


@pytest.mark.parametrize(
    ("public", "own"),
    [
        pytest.param(["900000000000207008"], [900000000000207008] * 2, id="identifiers"),
        pytest.param(["0.30000000000000004"], [0.1 + 0.2] * 2, id="numbers"),
        pytest.param(["1"], [True, False], id="truth"),
        pytest.param(
            ["2020-01-01 10:00:00"],
            np.array(["2020-01-01T10:00:00", "2021-03-04"], "M8[ns]"),
            id="times",
        ),
        pytest.param(
            ["2020-01-01"],
            np.array(["2020-01-01T00:00:00.000000001"] * 2, "M8[ns]"),
            id="fine times",
        ),
    ],
)
@pytest.mark.parametrize("held", ["frame", "list"])
def test_one_more_record_changes_no_other_in_a_column_of_categories(
    public: list[str], own: Any, held: str
) -> None:
    """Its text makes objects of the whole column, or texts of a list's numbers."""
    import pandas as pd

    schema = Schema.of(inputs_in(pd.DataFrame({"x0": [*public, "x"]})))
    assert schema.numeric == {"x0": False}

    def records(cells: Any) -> list[bytes]:
        given = cells.to_frame("x0") if held == "frame" else [[each] for each in cells]
        return records_in(given, ["no"] * len(cells), classes=["no"], schema=schema).row_hashes()

    one = pd.Series(["x"], dtype=object)
    before, after = pd.Series(own), pd.concat([pd.Series(own), one], ignore_index=True)
    assert before.dtype != after.dtype
    assert records(before) == records(after)[:2]


def test_identifiers_in_a_column_of_categories_keep_their_digits() -> None:
    """A list with a number that has a fraction is an array of floats."""
    schema = Schema.of(inputs_in([["x", 0.5]]))
    made = inputs_in([[900000000000207008, 0.5], [900000000000207009, 1.5]], schema=schema)
    assert isinstance(made, Table)
    assert made.columns[0].tolist() == ["900000000000207008", "900000000000207009"]
    assert made.columns[1].tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("several", "values"),
    [
        (Several(("ill", "old"), None), [[1, 0], [0, 0], [1, 1]]),
        (Several((), "days"), [[0.1], [12], [1e16]]),
    ],
)
def test_labels_and_numbers_are_what_their_file_would_have(
    several: Several, values: list[list[float]], tmp_path: Path
) -> None:
    import pandas as pd

    path, names = tmp_path / "records.csv", list(several.columns)
    y = pd.DataFrame(values, columns=names)
    whole = pd.concat([pd.DataFrame({"x": [1.5, 2, 3]}), y], axis=1)
    whole.to_csv(path, index=False)
    read = read_dataset(path, labels=several.labels, number=several.number)
    for made in (
        records_in(whole, several=several),
        records_in(whole[["x"]], y, several=several),
        records_in(whole[["x"]], np.array(values), several=several),
        records_in(whole[["x"]], y[names[::-1]], several=several),
        records_in(str(path), several=several),
    ):
        assert made.row_hashes() == read.row_hashes()
        assert made.classes == several.labels


def test_items_of_a_torch_data_set_may_have_several_labels() -> None:
    import torch
    from torch.utils.data import TensorDataset

    data = TensorDataset(torch.eye(2), torch.tensor([[1, 0], [1, 1]]))
    assert label_names(data) == ("y0", "y1")
    made = records_in(data, several=Several(("y0", "y1"), None))
    assert made.answers is not None
    assert made.answers.tolist() == [[True, False], [True, True]]


def test_labels_and_groups_have_their_names() -> None:
    made = records_in(
        np.eye(4), [True, 2.0, "b ", 0], np.array([7, 7, 8, 9]), classes=["0", "1", "2", "b"]
    )
    assert made.labels.tolist() == [1, 2, 3, 0]
    assert made.groups is not None
    assert made.groups.tolist() == ["7", "7", "8", "9"]


@pytest.mark.parametrize(
    ("given", "kind", "why"),
    [
        (lambda: inputs_in(np.zeros(3)), DataError, "shape"),
        (lambda: inputs_in(np.zeros((2, 2), dtype=complex)), DataError, "complex128"),
        (lambda: inputs_in(np.zeros((0, 2))), DataError, "no records"),
        (lambda: inputs_in([[1, [2]], [3, 4]]), DataError, "no array|a list"),
        (lambda: inputs_in(np.full((2, 2), np.inf)), DataError, "infinite"),
        (lambda: inputs_in(np.full((2, 3, 3), 0.5) - 1), DataError, "0 to 1"),
        (lambda: inputs_in(np.array([[object()]])), DataError, "has a object"),
        (lambda: records_in(np.eye(2)), UsageError, "no labels"),
        (lambda: records_in(np.eye(2), [1]), DataError, "2 inputs and 1 labels"),
        (lambda: records_in(np.eye(2), [1, None]), DataError, "no label"),
        (lambda: records_in(np.eye(2), [1, 2], classes=["1"]), SchemaError, "class list has not"),
        (
            lambda: records_in(np.eye(2), [1, 2], [7, None]),
            DataError,
            "record 2 has no value in the group",
        ),
        (
            lambda: inputs_in(np.eye(3), schema=Schema.parse("table a:number")),
            SchemaError,
            "3 columns",
        ),
        (
            lambda: records_in(np.eye(2), [1, 2], schema=Schema.parse("images 2x2x1")),
            SchemaError,
            "images 2x2x1",
        ),
        (lambda: records_in(frame(), [1, 2, 3], label="kind"), UsageError, "give them once"),
        (lambda: records_in(frame(), label="sort"), SchemaError, "no column 'sort'"),
        (lambda: records_in(np.eye(2), [1, np.nan], several=NUMBER), DataError, "has no number"),
        (lambda: records_in(np.eye(2), [1, "x"], several=NUMBER), DataError, "record 2 .* 'days'"),
        (lambda: records_in(np.eye(2), [1], several=NUMBER), DataError, "2 inputs and 1 labels"),
        (lambda: records_in(np.eye(2), frame(), several=NUMBER), DataError, "columns; wanted: one"),
    ],
)
def test_what_cannot_be_used_is_refused(given: Any, kind: type[PateError], why: str) -> None:
    with pytest.raises(kind, match=why):
        given()
