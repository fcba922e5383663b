"""The faults that `make mutants` puts back, and those of ``README.md``: each has its place and its test."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from pate.runtime.failpoints import NAMES
from tests.mutants.__main__ import Mutant, mutants
from tests.mutants.modules import ROOT, Module

README = (ROOT / "tests" / "README.md").read_text("utf-8")
#: Of each line of its tables the last cell, a test.
TABLE = re.findall(r"\| `(\S+)` \|$", README, re.MULTILINE)


def test_there_are_thirty() -> None:
    assert len(mutants()) >= 30
    assert len({each.fault for each in mutants()}) == len(mutants())


def test_each_fault_can_be_planted_and_its_test_is_in_the_first_tier() -> None:
    for mutant in mutants():
        text = (ROOT / mutant.file).read_text("utf-8")
        assert mutant.planted(text) != text, mutant.fault
        compile(mutant.planted(text), mutant.file, "exec")
        assert not slow(mutant.test), mutant.fault


def test_a_text_that_occurs_twice_or_not_at_all_is_refused() -> None:
    mutant = Mutant("", "x.py", "a", "b", "")
    for text, times in (("aa", 2), ("", 0)):
        with pytest.raises(ValueError, match=f"{times} times"):
            mutant.planted(text)


def test_each_fault_of_the_table_has_a_test() -> None:
    for test in TABLE:
        slow(test)


def test_the_table_has_the_faults_that_are_put_back_and_all_failpoints() -> None:
    assert len(TABLE) > 100
    lines = [f"| {each.fault} | `{each.test.partition('[')[0]}` |" for each in mutants()]
    assert [line for line in lines if line not in README] == []
    assert sorted(name for name in NAMES if f"`{name}`" not in README) == []


@cache
def module(file: str) -> Module:
    return Module.of((ROOT / "tests" / file).read_text("utf-8"))


def slow(test: str) -> bool:
    """Whether only `make test-all` runs a test, which must exist."""
    file, *names = test.partition("[")[0].split("::")
    here = module(file)
    tree = here.defined.get(names[0])
    assert tree is not None, f"{file} has no {names[0]}"
    assert names[-1] in {getattr(each, "name", "") for each in ast.walk(tree)}, test
    return "slow" in here.marks(names[0])
