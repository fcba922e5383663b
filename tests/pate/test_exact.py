"""The strict reader of frozen dataclasses: every form, every refusal, and hostile input."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pate.errors import DataError, LedgerError, ProtocolError, UsageError
from pate.exact import TextForm, in_text, parse, read, write


class Shape(Protocol):
    tag: ClassVar[str]
    name: ClassVar[str]


class _Shape(TextForm):
    tag: ClassVar[str] = "shape"


@dataclass(frozen=True)
class Circle(_Shape):
    radius: Fraction
    name: ClassVar[str] = "circle"

    def __post_init__(self) -> None:
        if self.radius <= 0:
            raise UsageError(f"a radius is above 0, got {self.radius}")


@dataclass(frozen=True)
class Square(_Shape):
    side: int
    name: ClassVar[str] = "square"


@dataclass(frozen=True)
class Point:
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Everything:
    whole: int
    flag: bool
    number: float
    text: str
    digest: bytes
    share: Fraction
    unit: Literal["record", "patient"]
    names: tuple[str, ...]
    pair: tuple[int, Fraction]
    notes: Mapping[str, str]
    point: Point
    points: tuple[Point, ...]
    maybe: Fraction | None
    parties: int | tuple[str, ...]
    shape: Circle | Square | None
    shapes: tuple[Shape, ...] = field(metadata=in_text(kinds=(Circle, Square)))
    epsilon0: int = field(metadata=in_text(name="eps0"))
    later: Circle | None = field(default=None, metadata=in_text(omitted=True))
    aside: int = field(default=0, metadata=in_text(absent=True))


VALUE = Everything(
    whole=-3,
    flag=True,
    number=1.0,
    text="é",
    digest=b"\x00\xff",
    share=Fraction(3, 8),
    unit="patient",
    names=("a", "b"),
    pair=(2, Fraction(1, 3)),
    notes={"a": "b"},
    point=Point(0.5, -1.5),
    points=(Point(1e300, 0.0),),
    maybe=None,
    parties=("x",),
    shape=Square(2),
    shapes=(Circle(Fraction(1, 2)), Square(3)),
    epsilon0=4,
    aside=7,
)
TEXT: dict[str, Any] = {
    "whole": -3,
    "flag": True,
    "number": 1.0,
    "text": "é",
    "digest": "00ff",
    "share": "3/8",
    "unit": "patient",
    "names": ["a", "b"],
    "pair": [2, "1/3"],
    "notes": {"a": "b"},
    "point": {"x": 0.5, "y": -1.5},
    "points": [{"x": 1e300, "y": 0.0}],
    "maybe": None,
    "parties": ["x"],
    "shape": {"shape": "square", "side": 2},
    "shapes": [{"shape": "circle", "radius": "1/2"}, {"shape": "square", "side": 3}],
    "eps0": 4,
}


def _read(text: object) -> Everything:
    return read(Everything, text, error=ProtocolError, what="all")


def test_every_form_is_written_down_and_comes_back() -> None:
    assert write(VALUE) == TEXT
    assert list(write(VALUE)) == list(TEXT)
    back = _read(json.loads(json.dumps(write(VALUE))))
    assert write(back) == TEXT
    assert back.aside == 0
    assert back.parties == ("x",)
    more = {**TEXT, "later": {"shape": "circle", "radius": "2"}, "parties": 5, "maybe": "1/2"}
    assert write(_read(more)) == more
    assert _read(more).later == Circle(Fraction(2))


@dataclass(frozen=True, eq=False)
class Rows:
    """A matrix, a text for each of its rows."""

    cells: NDArray[np.int64]


@pytest.mark.parametrize(
    "row", ["001 2", "-0 2", "+1 2", "1  2", "1 2 ", "1,2", "1 2.0", "", "1" * 16]
)
def test_a_row_of_numbers_has_one_text(row: str) -> None:
    assert read(Rows, {"cells": ["1 2", "0 -3"]}, error=DataError, what="rows").cells.shape == (
        2,
        2,
    )
    with pytest.raises(DataError, match="whole numbers with spaces"):
        read(Rows, {"cells": [row, "0 -3"]}, error=DataError, what="rows")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"whole": True}, "whole must be a whole number, got True"),
        ({"whole": 1.0}, "whole must be a whole number, got 1.0"),
        ({"whole": "1"}, "whole must be a whole number, got '1'"),
        ({"flag": 1}, "flag must be true or false, got 1"),
        ({"number": 1}, "number must be a finite number with a point, got 1"),
        ({"number": math.inf}, "number must be a finite number"),
        ({"number": math.nan}, "number must be a finite number"),
        ({"number": True}, "number must be a finite number"),
        ({"text": None}, "text must be text, got None"),
        ({"text": "\ud800"}, "text must be text, got a lone surrogate"),
        ({"digest": "0"}, "digest must be lower-case hexadecimal, got '0'"),
        ({"digest": "FF"}, "digest must be lower-case hexadecimal"),
        ({"digest": "٠٠"}, "digest must be lower-case hexadecimal"),
        ({"share": "6/16"}, "share is not a fraction in lowest terms: '6/16'"),
        ({"share": 1}, "share is not a fraction"),
        ({"share": 0.5}, "share is not a fraction"),
        ({"unit": "party"}, "unit is 'party', possible are record, patient"),
        ({"unit": ["record"]}, "unit is ['record'], possible are"),
        ({"names": "ab"}, "names must be a list, got 'ab'"),
        ({"names": ["a", 1]}, "names[1] must be text, got 1"),
        ({"pair": [2]}, "pair must have 2 entries, got 1"),
        ({"pair": [2, "1/3", 3]}, "pair must have 2 entries, got 3"),
        ({"pair": [2, "x"]}, "pair[1] is not a fraction"),
        ({"notes": ["a"]}, "notes must be an object, got ['a']"),
        ({"notes": {"a": 1}}, "notes['a'] must be text, got 1"),
        ({"notes": {"\ud800": "a"}}, "a name in notes must be text"),
        ({"point": 1}, "point must be an object, got 1"),
        ({"point": {"x": 1.0}}, "point lacks fields: 'y'"),
        ({"points": [{"x": 1.0, "y": 1.0, "z": 1.0}]}, "points[0] has unknown fields: 'z'"),
        ({"points": [{"x": 1.0, "y": None}]}, "points[0].y must be a finite number"),
        ({"maybe": "1.5"}, "maybe is not a fraction"),
        ({"parties": "x"}, "parties must be a"),
        ({"parties": True}, "parties must be a whole number, got True"),
        ({"shape": {"shape": "circle"}}, "shape lacks fields: 'radius'"),
        ({"shape": {"side": 2}}, "shape unknown shape None: choose among circle, square"),
        ({"shape": {"shape": ["square"], "side": 2}}, "shape unknown shape ['square']"),
        ({"shape": "square"}, "shape must be an object"),
        ({"shapes": [None]}, "shapes[0] must be an object, got None"),
        ({"shapes": [{"shape": "circle", "radius": "0"}]}, "shapes[0]: a radius is above 0, got 0"),
        ({"later": None}, "later must be omitted at its default"),
        ({"later": {"shape": "square", "side": 2}}, "later unknown shape 'square': choose among c"),
        ({"aside": 1}, "has unknown fields: 'aside'"),
        ({"epsilon0": 4}, "has unknown fields: 'epsilon0'"),
    ],
)
def test_whatever_departs_from_the_form_is_refused_by_name(
    change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        _read({**TEXT, **change})
    assert str(caught.value).startswith(f"all: {problem}")


@pytest.mark.parametrize("name", sorted(TEXT))
def test_no_field_may_lack(name: str) -> None:
    with pytest.raises(LedgerError, match=f"^it: lacks fields: '{name}'$"):
        read(
            Everything,
            {key: each for key, each in TEXT.items() if key != name},
            error=LedgerError,
            what="it",
        )


@pytest.mark.parametrize("text", [None, 1, "x", [], [TEXT], True])
def test_the_whole_is_an_object(text: object) -> None:
    with pytest.raises(ProtocolError, match=r"^all: must be an object"):
        _read(text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(TEXT)), _JSON)
def test_no_json_value_does_anything_but_fit_or_be_refused(name: str, value: object) -> None:
    changed = {**TEXT, name: value}
    problem = None
    try:
        made = _read(changed)
    except ProtocolError as error:
        problem = str(error)
    if problem is None:
        assert write(made) == changed
    else:
        assert problem.startswith(f"all: {name}")
        assert len(problem) < 1000


def test_hostile_values_are_shown_in_part_and_never_walked() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, "x" * 10**6, {"k" * 10**6: 1}, 10**4000, [1] * 10**6):
        for name in ("flag", "names", "point", "shape", "unit", "share", "notes"):
            with pytest.raises(ProtocolError) as caught:
                _read({**TEXT, name: value})
            assert len(str(caught.value)) < 500
    with pytest.raises(ProtocolError, match="has unknown fields") as caught:
        _read(TEXT | {f"{at:01000}": 1 for at in range(1000)})
    assert len(str(caught.value)) < 1000
    while deep:  # else the interpreter recurses to free it
        deep = deep.pop()


def test_what_has_no_text_form_is_a_mistake_in_the_code() -> None:
    @dataclass(frozen=True)
    class Lists:
        a: list[int]

    @dataclass(frozen=True)
    class Blurred:
        a: str | bytes

    for kind in (Lists, Blurred):
        with pytest.raises(TypeError, match=r"no text|distinguished"):
            read(kind, {"a": []}, error=ProtocolError, what="it")
    with pytest.raises(ValueError, match="nan"):
        write(Point(math.nan, 0.0))
    with pytest.raises(TypeError, match="set"):
        write({"a": {1}})


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"1", b"null", b"\xff{}", b'{"a": 1, "a": 1}',
        b'{"b": [{"a": 1, "a": 2}]}', b'{"a": NaN}', b'{"a": -Infinity}',
        b'{"a": 1' + b"0" * 5000 + b"}", b"[" * 50_000, b'{"a":' * 10_000,
        b'{"a": 1}' + b" " * 100_000,
    ],
)  # fmt: skip
def test_only_one_small_object_is_parsed(content: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^a file: "):
        parse(content, most=100_000, error=ProtocolError, what="a file")


def test_an_object_is_parsed_from_bytes_and_text() -> None:
    for content in (b'{"a": [1, "\xc3\xa9"]}', '{"a": [1, "é"]}'):
        found = parse(content, most=20, error=ProtocolError, what="a file")
        assert found == {"a": [1, "é"]}


@dataclass(frozen=True)
class _Corner:
    side: int
    mark: str = field(default="", metadata=in_text(omitted=True))


@dataclass(frozen=True)
class _Plan:
    name: str
    corner: _Corner = field(metadata=in_text(flat={"side": "width"}))
    square: Square | None = field(default=None, metadata=in_text(flat="inner_"))


def test_fields_of_an_inner_value_may_stand_in_the_outer_text() -> None:
    bare = {"name": "a", "width": 1, "inner_side": None}
    full = {"name": "a", "width": 1, "mark": "m", "inner_side": 2}
    for plan, text in (
        (_Plan("a", _Corner(1)), bare),
        (_Plan("a", _Corner(1, "m"), Square(2)), full),
    ):
        assert write(plan) == text
        assert read(_Plan, text, error=LedgerError, what="a plan") == plan
    for wrong in (
        bare | {"side": 1},
        bare | {"width": None},
        bare | {"mark": ""},
        full | {"inner_side": "2"},
        {key: each for key, each in bare.items() if key != "inner_side"},
    ):
        with pytest.raises(LedgerError, match=r"side|width|mark"):
            read(_Plan, wrong, error=LedgerError, what="a plan")
