"""What the modules of the tests define, read from their text: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Module:
    """What a module defines, and where its names come from."""

    defined: dict[str, ast.stmt]  # functions, classes and values at its top, by name
    origin: dict[str, str]  # dotted names of what it imports, by the name that it has here

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
