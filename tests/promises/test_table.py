"""The table of promises by features: each cell has a test that exists and is about it, or says why not.

``table.txt`` has a line for some cells of a promise and a column. The members of the columns are the
product's own lists, so a new member has no cells, and the test fails until it has.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, get_args, get_type_hints

from pate.answers import ANSWERS, RESIDUAL, RESIDUAL_LABELS
from pate.campaign.choices import AGGREGATIONS, COMPOSITIONS, NOISES, PUBLISH, UNITS
from pate.codes import AXES, CODES, EACH, code_of
from pate.encoders.description import Description
from pate.masking.graph import COMPLETE_UP_TO
from pate.mechanisms import MECHANISMS
from pate.noise.share_laws import IN_WORDS
from tests.mutants.modules import ROOT, Module
from tests.promises import test_every_campaign
from tests.support.world.kinds import COLUMNS, covering

#: The formats of modules that are part of a reader, or that read two.
FORMATS: Final = {
    "lines": ("tables", "json_lines"), "pictures": ("images",), "images": ("images", "idx"),
    "dicom_image": ("dicom",),
}  # fmt: skip


def folders(place: str, each: str) -> set[str]:
    """Return the names of the folders of ``place`` in which there is such a file."""
    return {path.parent.name for path in (ROOT / place).glob(f"*/{each}")}


MEMBERS: Final[dict[str, set[str]]] = {
    "mechanism": set(MECHANISMS),
    "publish": set(PUBLISH),
    "code": {*CODES, EACH, AXES},
    "answer": {*ANSWERS, RESIDUAL, RESIDUAL_LABELS},
    "unit": set(UNITS),
    "series": {"series", "alone"},
    "input": {"embeddings"}
    | {
        name
        for path in (ROOT / "pate/data/files").glob("[!_]*.py")
        for name in FORMATS.get(path.stem, (path.stem,))
    },
    "encoder": set(get_args(get_type_hints(Description.source.fget)["return"])),  # type: ignore[attr-defined]
    "transport": {*AGGREGATIONS, *folders("pate/masking", "__init__.py"), "ring"}
    | (folders("aggregator_server", "carrier.py") - {"exchange"})
    | {"envelopes"},
    "noise": {*NOISES, *IN_WORDS, "laplace"},
    "currency": set(COMPOSITIONS),
}  # fmt: skip
PROMISES: Final = ("once", "inside", "unmoved", "charged", "true", "killed", "bounded")
#: How a test may name a member, beside by its own name or its class.
ALSO: Final = {
    "each": ("TeacherLabels",), "axes": ("TeacherLabels", "arrays"), "tables": ("csv",),
    "images": ("PUBLIC", "Images", "image", "flat"), "idx": ("Images",),
    "json_lines": ("jsonl", "json"), "record": ("records",), "patient": ("patients",),
    "class": ("classes",), "alone": ("series",), "texts": ("text",),
    "ring": ("Outline", "Degree", "140", "parties"), "flower": ("Campaign", "Flower", "Link"),
    "envelopes": ("Play", "envelope"), "ahead": ("bundle", "bundles"),
    "gaussian": ("sigma", "DistributedGNMax", "GNMax"), "geometric": ("scale", "GeometricShares"),
    "laplace": ("LNMax", "lnmax"), "distributed": ("shares", "NoiseShares"), "dicom": ("dcm",),
    "embeddings": ("Embeddings", "embedding"), "proofs": ("proved", "prover", "links"),
    "plain": ("aggregation",), "party": ("parties", "RosterParty"), "dense": ("DENSE",),
    "series": ("monthly",),
}  # fmt: skip
#: Tests of every kind of campaign: the members come from the product's lists.
EVERY: Final = Path(test_every_campaign.__file__).relative_to(ROOT / "tests").as_posix()


@dataclass(frozen=True)
class Line:
    """A line of the table: some cells, and their test or why there is none."""

    promise: str
    column: str
    members: frozenset[str]
    whole: bool
    test: str
    why: str

    @classmethod
    def of(cls, text: str) -> Line:
        promise, column, members, said = (part.strip() for part in text.split("|", 3))
        every = MEMBERS[column]
        named = every if members == "*" else set(members.split())
        assert named <= every, f"{column} has no {named - every}"
        why = said[1:].strip() if said.startswith("-") else ""
        return cls(promise, column, frozenset(named), members == "*", "" if why else said, why)


def lines() -> Iterator[Line]:
    text = Path(__file__).with_name("table.txt").read_text("utf-8")
    for each in text.splitlines():
        if each and not each.startswith("#"):
            yield Line.of(each)


TABLE: Final = tuple(lines())


@cache
def module(path: Path) -> tuple[str, Module]:
    text = path.read_text("utf-8")
    return text, Module.of(text)


@cache
def text_of(test: str) -> str:
    """Return the text of a test, and of all that it uses of the tests' own modules."""
    file, _, name = test.partition("::")
    seen, waiting, found = set[tuple[Path, str]](), [(ROOT / "tests" / file, name)], []
    while waiting:
        path, called = waiting.pop()
        if (path, called) in seen or not path.is_file():
            continue
        seen.add((path, called))
        text, here = module(path)
        if called not in here.defined:
            continue
        node = here.defined[called]
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        found.append("\n".join(text.splitlines()[first - 1 : node.end_lineno]))
        for used in here.used(called):
            waiting.append((path, used))
            origin = here.origin.get(used, used)
            place, _, last = origin.rpartition(".")
            if place.startswith("tests."):
                waiting.append(((ROOT / place.replace(".", "/")).with_suffix(".py"), last))
    return "\n".join(found)


def names(column: str, member: str) -> tuple[str, ...]:
    of_class = (MECHANISMS[member].__name__,) if column == "mechanism" else ()
    return (member, *of_class, *ALSO.get(member, ()))


def test_every_cell_is_there_once() -> None:
    cells = Counter(
        (line.promise, line.column, member) for line in TABLE for member in line.members
    )
    wanted = {
        (promise, column, member)
        for promise in PROMISES
        for column, members in MEMBERS.items()
        for member in members
    }
    assert sorted(wanted - set(cells)) == [], "cells without a test or a reason"
    assert sorted(set(cells) - wanted) == []
    assert [cell for cell, times in cells.items() if times > 1] == []


def test_each_cell_names_a_test_about_it_or_says_why_not() -> None:
    wrong = {f"{line.promise} {line.column}": said for line in TABLE for said in faults(line)}
    assert not wrong


def faults(line: Line) -> Iterator[str]:
    """What is wrong with a line of the table."""
    if line.why:
        if len(line.why) <= 20:
            yield f"{line.why} is no reason"
        return
    file, _, name = line.test.partition("::")
    path = ROOT / "tests" / file
    if not path.is_file():
        yield f"there is no {file}"
        return
    here = module(path)[1]
    if not isinstance(here.defined.get(name), ast.FunctionDef):
        yield f"{file} has no {name}"
        return
    if "slow" in here.marks(name):
        yield f"`make test` leaves {line.test} out"
    if file == EVERY:
        return
    if line.whole and len(line.members) > 2:
        yield "only a test of every kind stands for all"
    text = text_of(line.test)
    for member in line.members:
        words = "|".join(map(re.escape, names(line.column, member)))
        if not re.search(rf"(?<![a-z])({words})", text):
            yield f"{line.test} does not name {member}"


def test_the_kinds_of_campaigns_have_the_members_that_they_stand_for() -> None:
    """Each column of the table, as far as kinds of campaigns have it."""
    kinds = covering()
    had = {name: {getattr(kind, name) for kind in kinds} for name in COLUMNS}
    found = {
        "mechanism": {kind.mechanism for kind in kinds},
        "code": had["code"]
        | {code_of(kind.spec().code).name for kind in kinds if "teacher-labels" in kind.mechanism},
        "noise": had["noise"] | had["law"] | {"laplace" for kind in kinds if kind.aggregator == "lnmax"},
        "transport": had["aggregation"] | {"proofs" for kind in kinds if kind.proofs == "proved"},
        "input": {"tables" if each == "table" else each for each in had["inputs"]},
        "currency": {kind.currency for kind in kinds},
    }  # fmt: skip
    for line in TABLE:
        if line.test.startswith(EVERY):
            assert line.members <= found.get(line.column, had.get(line.column, set())), line


def test_a_ring_is_another_transport_than_all_with_all() -> None:
    assert COMPLETE_UP_TO < 140
