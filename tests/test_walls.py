"""Import rules and folder sizes, checked for every file in the tree.

Each import counts alike: at the top of a module, inside a function, and for type checkers only. What
is imported late to start faster, or for its name in an annotation, is needed all the same.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import pate

ROOT = Path(__file__).resolve().parents[1]
#: From the ground up. A package imports its own modules and what is below it, and nothing on its own level.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("pate",), ("protos",), ("party", "aggregator_server", "student"), ("simulation",),
    ("benchmarks", "deploy", "tests"),
)  # fmt: skip
#: The one door: pate/__init__ names for its users what is built of all roles, as text and for type checkers.
DOOR = {
    ("pate", "simulation.classifier"), ("pate", "simulation.library"), ("pate", "simulation.published"),
}  # fmt: skip
ROLES = FLOORS[2]
SHIPPED = ("pate", "protos", *ROLES, "simulation")
#: Beneath the roles, and the roles: what runs at the parties, the server and the student.
IN_USE = ("pate", "protos", *ROLES)
MOST_FILES = 16
#: Packages of pure mathematics, and their allowed imports besides the standard library and pate/.
MATHEMATICS = (
    "mechanisms", "accounting", "auditing", "planning", "noise", "rounds", "codes.py", "votes.py",
    "errors.py",
)  # fmt: skip
#: Modules that import flwr.
GLUE = {
    "aggregator_server/flower/fleet/requests.py", "aggregator_server/flower/fleet/traffic.py",
    "aggregator_server/flower/grid.py", "aggregator_server/flower/superlink.py",
    "aggregator_server/flower/internals.py",
    "aggregator_server/flower/carrier.py", "party/flower/internals.py",
    "party/flower/connection.py",
    "party/flower/supernode_process.py", "protos/flower/carriage.py", "protos/flower/runtime.py",
}  # fmt: skip

#: Takes a tenth of a second and more to import, and few tests need it: theirs import it themselves.
SLOW = {
    "matplotlib", "onnxruntime", "pandas", "safetensors.torch", "scipy.signal", "scipy.stats", "skops",
    "sklearn", "torch",
}  # fmt: skip


@dataclass(frozen=True)
class Import:
    """One module that names another."""

    by: str  # the module that imports, dotted
    of: str  # the module that is imported
    line: int  # where it says so

    def __str__(self) -> str:
        return f"{self.by}:{self.line} imports {self.of}"


# What is looked at.


def sources(root: Path, packages: Iterable[str]) -> dict[str, Path]:
    """All modules of some packages by their dotted names, without generated code."""
    found = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if "_pb2" not in path.name:
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def modules(*rooms: str) -> list[Path]:
    found = []
    for room in rooms:
        place = ROOT / room
        found += [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert found, f"no modules in {rooms}"
    return [path for path in found if "_pb2" not in path.name]


@cache
def statements(text: str) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The imports anywhere in a module, and those that run when it is imported."""
    tree = ast.parse(text)
    at_once: list[ast.stmt] = []
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            at_once.append(node)
        elif isinstance(node, ast.ClassDef):
            pending += node.body
        elif isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            pending += [*node.body, *node.orelse]
    return imports_below(tree), at_once


def imports_below(tree: ast.Module) -> list[ast.stmt]:
    """All imports of a module: only statements hold any, and expressions are most of a tree."""
    found: list[ast.stmt] = []
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        for held in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, held, ())
            pending += below if isinstance(below, list) else ()
    return found


def imported(path: Path) -> set[str]:
    """Dotted names that a module imports anywhere, inside functions too."""
    names: set[str] = set()
    for node in statements(path.read_text(encoding="utf-8"))[0]:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return names


def top(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def imports(root: Path, floors: Iterable[Iterable[str]] = FLOORS) -> list[Import]:
    """All imports of our own modules in a tree."""
    packages = [name for floor in floors for name in floor]
    found = []
    ours = sources(root, packages)
    for name, path in ours.items():
        for node in statements(path.read_text(encoding="utf-8"))[0]:
            named: list[str] = []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                whole = [f"{module}.{alias.name}" for alias in node.names]
                named = [each if each in ours else module for each in whole]
            found += [
                Import(name, each, node.lineno)
                for each in dict.fromkeys(named)
                if each != name and each.partition(".")[0] in packages
            ]
    return found


# The walls.


def upward(found: Iterable[Import], floors: tuple[tuple[str, ...], ...] = FLOORS) -> list[Import]:
    """Imports of a package that is above, or on the same floor: except on the top floor."""
    level = {name: at for at, floor in enumerate(floors) for name in floor}
    wrong = []
    for each in found:
        by, of = each.by.partition(".")[0], each.of.partition(".")[0]
        beside = level[of] == level[by] and of != by and level[by] < len(floors) - 1
        if level[of] > level[by] or beside:
            wrong.append(each)
    return wrong


def loops(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """Strongly connected parts of more than one node (R. Tarjan, 1972)."""
    number: dict[str, int] = {}
    least: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        number[node] = least[node] = len(number)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in number:
                visit(other)
                least[node] = min(least[node], least[other])
            elif other in stack:
                least[node] = min(least[node], number[other])
        if least[node] == number[node]:
            part = set(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(part)

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return found


def module_circles(found: Iterable[Import]) -> list[set[str]]:
    """Modules that import each other, directly or by way of others."""
    edges: dict[str, set[str]] = {}
    for each in found:
        edges.setdefault(each.by, set()).add(each.of)
    return loops(edges)


def room_circles(found: Iterable[Import]) -> dict[str, list[set[str]]]:
    """Of each package, the modules and packages in it that import each other, whatever is in them."""
    edges: dict[str, dict[str, set[str]]] = {}
    for each in found:
        by, of = each.by.split("."), each.of.split(".")
        same = 0
        while same < min(len(by), len(of)) and by[same] == of[same]:
            same += 1
        if 0 < same < min(len(by), len(of)):
            room = edges.setdefault(".".join(by[:same]), {})
            room.setdefault(by[same], set()).add(of[same])
    return {room: wrong for room, each in sorted(edges.items()) if (wrong := loops(each))}


def crowded(root: Path, packages: Iterable[str]) -> dict[str, int]:
    """Folders with more modules of their own than a reader takes in at a glance."""
    count: dict[str, int] = {}
    for path in sources(root, packages).values():
        if path.name != "__init__.py":
            folder = path.parent.relative_to(root).as_posix()
            count[folder] = count.get(folder, 0) + 1
    return {each: files for each, files in count.items() if files > MOST_FILES}


def unnamed(root: Path, packages: Iterable[str]) -> list[str]:
    """Packages that do not say in their first line what is in them."""
    wrong = []
    for package in packages:
        for folder in {path.parent for path in (root / package).rglob("*.py")}:
            init = folder / "__init__.py"
            if not init.is_file() or not ast.get_docstring(ast.parse(init.read_text())):
                wrong.append(folder.relative_to(root).as_posix())
    return sorted(wrong)


def loaded(root: Path, packages: Iterable[str]) -> dict[str, set[str]]:
    """What each of our modules loads when it is imported, others' modules too: dotted names."""
    ours = sources(root, packages)
    direct: dict[str, set[str]] = {}
    for name, path in ours.items():
        found: set[str] = set()
        for node in statements(path.read_text(encoding="utf-8"))[1]:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
        # Whoever imports a module imports the packages that it is in.
        direct[name] = {
            ".".join(each.split(".")[: end + 1])
            for each in found
            for end in range(each.count(".") + 1)
        }
    made = {}
    for name in ours:
        seen: set[str] = set()
        to_see = {name}
        while to_see:
            seen |= to_see
            to_see = set().union(*(direct.get(each, set()) for each in to_see)) - seen
        made[name] = seen
    return made


# They hold.


@pytest.fixture(scope="module")
def found() -> list[Import]:
    made = imports(ROOT)
    assert len(made) > 1000, "the tree was not read"
    return made


def test_no_import_runs_up(found: list[Import]) -> None:
    wrong = [each for each in upward(found) if (each.by, each.of) not in DOOR]
    assert not wrong, "\n".join(map(str, wrong))


def test_the_door_leads_up_and_opens_only_when_it_is_used(found: list[Import]) -> None:
    assert {(each.by, each.of) for each in upward(found)} == DOOR
    rooms = {room for room in pate._ROOMS.values() if not room.startswith("pate.")}
    assert {of for _, of in DOOR} == rooms
    assert not top(loaded(ROOT, ("pate",))["pate"]) & set(SHIPPED[1:])


def test_no_module_imports_itself_by_way_of_others(found: list[Import]) -> None:
    assert not module_circles(found)


def test_no_room_imports_itself_by_way_of_others(found: list[Import]) -> None:
    shipped = [each for each in found if each.by.partition(".")[0] != "tests"]
    assert not room_circles(shipped)


def test_no_folder_is_crowded() -> None:
    packages = [name for floor in FLOORS for name in floor]
    assert not crowded(ROOT, packages)


def test_each_package_says_what_is_in_it() -> None:
    assert not unnamed(ROOT, SHIPPED)


def test_no_test_loads_what_is_slow_before_it_runs() -> None:
    slow = {
        name: each & SLOW for name, each in loaded(ROOT, (*SHIPPED, "benchmarks", "tests")).items()
    }
    assert not {name: each for name, each in slow.items() if each and name.startswith("tests.")}


# They can fail: in a tree that is made up.


def tree(root: Path, files: Mapping[str, str]) -> list[Import]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return imports(root)


GOOD = {
    "pate/__init__.py": '"""The ground."""\n',
    "pate/votes.py": "",
    "pate/noise/__init__.py": '"""Noise."""\n',
    "pate/noise/exact.py": "from pate import votes\n",
    "protos/wire.py": "from pate.votes import Counts\n",
    "party/session.py": "from protos import wire\nimport pate.noise.exact\n",
    "student/session.py": "",
    "simulation/demo.py": "from party.session import run\n",
    "tests/test_demo.py": "import benchmarks.field\nfrom simulation import demo\n",
    "benchmarks/field.py": "",
}


def test_a_tree_with_walls_has_nothing_to_be_found(tmp_path: Path) -> None:
    found = tree(tmp_path, GOOD)
    assert len(found) == 7
    assert not upward(found)
    assert not module_circles(found)
    assert not room_circles(found)
    assert not crowded(tmp_path, ["pate"])
    assert not unnamed(tmp_path, ["pate"])


@pytest.mark.parametrize(
    ("by", "of"),
    [
        ("pate/votes.py", ("protos", "wire")),
        ("protos/wire.py", ("party", "session")),
        ("party/session.py", ("student", "session")),
        ("student/session.py", ("simulation", "demo")),
        ("simulation/demo.py", ("tests", "test_demo")),
    ],
)
def test_an_import_that_runs_up_is_found(tmp_path: Path, by: str, of: tuple[str, str]) -> None:
    for text in (
        "from {} import {}\n",
        "import {}.{}\n",
        "def late():\n    from {} import {}\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {}.{} import Name\n",
    ):
        found = tree(tmp_path, {**GOOD, by: text.format(*of)})
        assert [(each.by, each.of) for each in upward(found)] == [
            (by[:-3].replace("/", "."), ".".join(of))
        ]


def test_what_a_module_loads_is_found(tmp_path: Path) -> None:
    late = "if TYPE_CHECKING:\n    import skops\ndef late():\n    import sklearn\n"
    made = {**GOOD, "pate/noise/__init__.py": "import torch.nn\n", "pate/votes.py": late}
    tree(tmp_path, made)
    found = loaded(tmp_path, ["pate", "party", "simulation", "benchmarks", "tests"])
    assert found["tests.test_demo"] & {"torch", "skops", "sklearn"} == {"torch"}
    assert not found["benchmarks.field"] & SLOW


@pytest.mark.parametrize("late", [False, True])
def test_a_circle_of_modules_is_found(tmp_path: Path, late: bool) -> None:
    text = (
        "def late():\n    import pate.noise.exact\n" if late else "from pate.noise import exact\n"
    )
    found = tree(tmp_path, {**GOOD, "pate/votes.py": text})
    assert module_circles(found) == [{"pate.votes", "pate.noise.exact"}]
    assert room_circles(found) == {"pate": [{"votes", "noise"}]}


def test_a_circle_of_rooms_is_found_where_no_modules_make_one(tmp_path: Path) -> None:
    found = tree(
        tmp_path,
        {**GOOD, "pate/noise/shares.py": "", "pate/votes.py": "from pate.noise import shares\n"},
    )
    assert not module_circles(found)
    assert room_circles(found) == {"pate": [{"votes", "noise"}]}


def test_a_crowded_folder_is_found(tmp_path: Path) -> None:
    files = {f"pate/noise/part_{at}.py": "" for at in range(MOST_FILES - 1)}
    tree(tmp_path, {**GOOD, **files})
    assert not crowded(tmp_path, ["pate"])
    tree(tmp_path, {"pate/noise/one_more.py": ""})
    assert crowded(tmp_path, ["pate"]) == {"pate/noise": MOST_FILES + 1}


def test_a_package_that_says_nothing_is_found(tmp_path: Path) -> None:
    tree(tmp_path, {**GOOD, "pate/noise/__init__.py": "", "pate/data/idx.py": ""})
    assert unnamed(tmp_path, ["pate"]) == ["pate/data", "pate/noise"]


# What each room may use from elsewhere.


def test_pate_imports_no_flower_and_no_torch() -> None:
    for path in modules("pate"):
        wrong = top(imported(path)) & {"flwr", "torch"}
        assert not wrong, f"{path} imports {wrong}"


def test_masking_needs_numpy_and_cryptography_only() -> None:
    allowed = set(sys.stdlib_module_names) | {"numpy", "scipy", "cryptography", "pate"}
    for path in modules("pate/masking"):
        names = imported(path)
        assert top(names) <= allowed, f"{path} imports {top(names) - allowed}"
        # No clock, no files, no network, and randomness only as it is handed in.
        outside = {"random", "secrets", "time", "datetime", "os", "pathlib", "socket", "threading"}
        assert not top(names) & outside, f"{path} imports {top(names) & outside}"
        assert not of_the_machine(names), f"{path} imports {of_the_machine(names)}"


def test_mathematics_needs_numpy_and_scipy_only() -> None:
    allowed = set(sys.stdlib_module_names) | {"numpy", "scipy", "pate"}
    for path in modules(*(f"pate/{room}" for room in MATHEMATICS)):
        names = imported(path)
        assert top(names) <= allowed, f"{path} imports {top(names) - allowed}"
        assert not of_the_machine(names), f"{path} imports {of_the_machine(names)}"


def of_the_machine(names: set[str]) -> set[str]:
    """Those of our modules that read files, and that know disks, screens and processes."""
    rooms = ("pate.data", "pate.runtime", "pate.storage", "pate.preflight", "pate.cli")
    return {name for name in names if name.startswith(rooms)}


def test_flower_is_imported_by_its_glue_only() -> None:
    for path in modules(*IN_USE):
        name = path.relative_to(ROOT).as_posix()
        if "flwr" in top(imported(path)):
            assert name in GLUE, f"{name} imports flwr"


def openers(path: Path) -> set[int]:
    """Lines of a module that open a picture by Pillow's or another library's own reader."""
    text = path.read_text(encoding="utf-8")
    if not re.search("Image|PIL|imread|read_image|decode_image", text):
        return set()
    tree = ast.parse(text)
    named = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "PIL"
        for alias in node.names
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "PIL.Image":
            found |= {node.lineno for alias in node.names if alias.name == "open"}
        elif isinstance(node, ast.Attribute):
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            of = node.value.attr if isinstance(node.value, ast.Attribute) else of
            pillow = of in {*named, "Image"} and node.attr == "open"
            if pillow or node.attr in {"imread", "read_image", "decode_image"}:
                found.add(node.lineno)
    return found


def test_pictures_are_opened_in_one_place() -> None:
    """Where formats are stated, pixels are bounded, and no error of a decoder passes."""
    found = {
        path.relative_to(ROOT).as_posix()
        for path in modules(*SHIPPED, "benchmarks", "deploy", "docs")
        if openers(path)
    }
    assert found == {"pate/data/files/pictures.py"}


@pytest.mark.parametrize(
    "text",
    [
        "from PIL import Image\nImage.open(1)",
        "from PIL import Image as I\nwith I.open(1): pass",
        "import PIL.Image\nPIL.Image.open(1)",
        "from PIL.Image import open",
        "import matplotlib.pyplot as plt\nplt.imread(1)",
    ],
)
def test_another_place_that_opens_pictures_is_found(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(text)
    assert openers(tmp_path / "a.py")
    (tmp_path / "a.py").write_text("from PIL import Image\nImage.new('L', (1, 1)); p.open('rb')")
    assert not openers(tmp_path / "a.py")


def test_what_is_drawn_is_drawn_by_one_kind_of_console() -> None:
    """It shows printable characters only, whoever chose the text."""
    for path in modules(*SHIPPED):
        if path.parent != ROOT / "pate" / "runtime":
            assert not re.search(r"\bConsole\(", path.read_text(encoding="utf-8")), path


def test_foreign_bytes_have_one_reader() -> None:
    """What these parsers raise differs between versions of Python; one module decides what it means."""
    parsers = re.compile(
        r"json\.loads?\(|tomllib\.|literal_eval|np\.load\(|np\.lib\.format|genfromtxt|loadtxt|fromstring\("
        r"|\bZipFile\(|plistlib\.|ElementTree|tarfile\.open"
    )
    for path in modules(*SHIPPED):
        name = path.relative_to(ROOT).as_posix()
        for at, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            # Written archives are our own.
            if parsers.search(line) and not re.search(r'ZipFile\(.*, "w"', line):
                assert name == "pate/foreign.py", f"{name}:{at} parses by itself: {line.strip()}"


def test_connections_are_closed_by_their_block() -> None:
    """``with sqlite3.connect(…)`` is a transaction: it leaves the connection to the collector."""
    for path in modules(*SHIPPED, "benchmarks", "tests"):
        found = re.findall(r"(?<!closing\()sqlite3\.connect\(", path.read_text(encoding="utf-8"))
        # The ways to a connection that the product has; both close it.
        ours = path.relative_to(ROOT).as_posix() in {
            "pate/storage/durable_file.py",
            "tests/test_walls.py",
        }
        assert ours or not found, f"{path} opens a connection without closing()"


def test_one_module_starts_python() -> None:
    """With ``-P``, and where foreign bytes are taken apart with nothing of ours: see its docstring."""
    named = {
        path.relative_to(ROOT).as_posix()
        for path in modules(*SHIPPED, "benchmarks", "deploy")
        if re.search("executable|from sys", text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.Attribute) and node.attr in ("executable", "_base_executable"))
        or (isinstance(node, ast.ImportFrom) and node.module == "sys")
    }
    assert named == {"pate/runtime/child.py"}


def test_no_pickle_anywhere() -> None:
    for path in modules(*SHIPPED):
        wrong = top(imported(path)) & {
            "pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal",
        }  # fmt: skip
        assert not wrong, f"{path} imports {wrong}"
        text = path.read_text(encoding="utf-8")
        assert "allow_pickle=True" not in text, path
        assert "torch.load" not in text, path
