"""A test that starts processes is marked, so that `make quick` starts none: read from the tests' own text.

A process is started by whoever uses one of a few names of the standard library; by what uses that;
and so on, through the tests' support, and what runs children for the product.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
#: Of the standard library: whoever uses one of them starts a process.
STARTING = {
    *(f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")),
    *(f"os.{name}" for name in ("fork", "forkpty", "posix_spawn", "system")),
    "multiprocessing.Process", "multiprocessing.Pool", "multiprocessing.get_context",
    "concurrent.futures.ProcessPoolExecutor",
}  # fmt: skip
#: Whose text is read for what a test uses of it: all that starts processes but the commands themselves.
READ = (
    "tests", "pate.runtime", "aggregator_server.flower", "party.flower", "simulation",
)  # fmt: skip
MARKS = {"e2e", "postgres", "browser"}


@dataclass(frozen=True)
class Module:
    """What a module defines, and where its names come from.

    Attributes:
        defined: functions, classes and values at its top, by name.
        origin: dotted names of what it imports, by the name that it has here.
    """

    defined: dict[str, ast.stmt]
    origin: dict[str, str]

    @classmethod
    def of(cls, text: str) -> Module:
        tree = ast.parse(text)
        defined: dict[str, ast.stmt] = {}
        origin: dict[str, str] = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined[node.name] = node
            elif isinstance(node, ast.Assign):
                defined |= {each.id: node for each in node.targets if isinstance(each, ast.Name)}
        for each in ast.walk(tree):
            if isinstance(each, ast.Import):
                origin |= {name.asname or name.name: name.name for name in each.names}
            elif isinstance(each, ast.ImportFrom):
                origin |= {
                    name.asname or name.name: f"{each.module}.{name.name}" for name in each.names
                }
        return cls(defined, origin)

    def used(self, name: str) -> Iterator[str]:
        """Names that the text of one of its own uses, dotted: of its own, and those it imports."""
        for node in ast.walk(self.defined[name]):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                yield f"{self.origin.get(node.value.id, node.value.id)}.{node.attr}"
            elif isinstance(node, ast.Name):
                yield self.origin.get(node.id, node.id)
            elif isinstance(node, ast.arg):  # a fixture
                yield node.arg

    def marks(self, name: str) -> set[str]:
        """Markers of a test: its own, and the module's."""
        lists: list[ast.expr] = list(getattr(self.defined[name], "decorator_list", ()))
        if isinstance(whole := self.defined.get("pytestmark"), ast.Assign):
            lists.append(whole.value)
        return {
            each.attr
            for one in lists
            for each in ast.walk(one)
            if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "pytest.mark"
        }


@cache
def module(name: str) -> Module | None:
    path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
    is_read = any(name == each or name.startswith(f"{each}.") for each in READ)
    return Module.of(path.read_text()) if is_read and path.is_file() else None


def starts(here: Module, name: str) -> bool:
    """Say whether what a module calls by this name starts processes."""
    seen, waiting = set[tuple[int, str]](), [(here, name)]
    while waiting:
        where, called = waiting.pop()
        place, _, last = called.rpartition(".")
        if called in STARTING:
            return True
        if (id(where), called) in seen:
            continue
        seen.add((id(where), called))
        if called in where.defined:
            waiting += [(where, each) for each in where.used(called)]
        elif called in where.origin:
            waiting.append((where, where.origin[called]))
        elif place and (there := module(place)) is not None:
            waiting.append((there, last))
    return False


def unmarked(here: Module) -> list[str]:
    """Tests of a module that start processes and do not say so."""
    return [
        name
        for name in here.defined
        if name.startswith("test_") and not here.marks(name) & MARKS and starts(here, name)
    ]


def test_tests_that_start_processes_are_marked() -> None:
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    assert len(paths) > 200, "the tests were not read"
    wrong = {
        path.relative_to(ROOT).as_posix(): unmarked(Module.of(path.read_text())) for path in paths
    }
    assert not {path: names for path, names in wrong.items() if names}


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess\ndef test_it():\n    subprocess.run([])\n",
        "from subprocess import Popen as P\ndef test_it():\n    P([])\n",
        "import os\ndef test_it():\n    assert os.fork()\n",
        "import os\n@fixture\ndef made():\n    does()\ndef does():\n    os.fork()\ndef test_it(made): ...\n",
        "from tests.support.world.commands import Campaign\ndef test_it():\n    Campaign(1)\n",
        "from simulation.programs import Program\ndef test_it():\n    Program(1)\n",
        "from tests.support.world import commands\ndef test_it():\n    commands.Play(1)\n",
        "def test_it():\n    from multiprocessing import Pool\n    Pool()\n",
    ],
)  # fmt: skip
def test_one_that_is_not_marked_is_found(text: str) -> None:
    assert unmarked(Module.of(text)) == ["test_it"]
    for mark in ("pytestmark = pytest.mark.e2e\n", "pytestmark = [pytest.mark.e2e]\n"):
        assert unmarked(Module.of(mark + text)) == []
    assert unmarked(Module.of("pytestmark = pytest.mark.slow\n" + text)) == ["test_it"]
    assert unmarked(Module.of(text.replace("def test_it", "@pytest.mark.e2e\ndef test_it"))) == []


def test_one_that_starts_none_needs_no_mark() -> None:
    text = "from simulation.programs import until\ndef test_it():\n    until(bool, 'it')\n"
    assert unmarked(Module.of(text)) == []
