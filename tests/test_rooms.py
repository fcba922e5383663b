"""The walls of the house: who may import whom, read from every import in the tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROLES = {"party", "aggregator_server", "student"}
#: Rooms of pure mathematics, and what they may use besides the standard library and pate/ itself.
MATHEMATICS = (
    "mechanisms",
    "accounting",
    "auditing",
    "planning",
    "noise.py",
    "noise_shares.py",
    "simulated_noise.py",
    "votes.py",
    "errors.py",
)


def modules(*rooms: str) -> list[Path]:
    found = []
    for room in rooms:
        place = ROOT / room
        found += [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert found, f"no modules in {rooms}"
    return [path for path in found if "_pb2" not in path.name]


def imported(path: Path) -> set[str]:
    """Dotted names that a module imports anywhere, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return names


def top(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("role", sorted(ROLES))
def test_a_role_imports_no_other_role(role: str) -> None:
    for path in modules(role):
        others = top(imported(path)) & (ROLES - {role})
        assert not others, f"{path} imports {others}"


def test_pate_imports_no_role_no_flower_and_no_torch() -> None:
    for path in modules("pate"):
        if path.is_relative_to(ROOT / "pate" / "commands"):
            continue  # the composition root, which nothing imports
        wrong = top(imported(path)) & (ROLES | {"flwr", "torch", "torchvision", "protos"})
        assert not wrong, f"{path} imports {wrong}"


def test_masking_needs_numpy_and_cryptography_alone() -> None:
    import sys

    allowed = set(sys.stdlib_module_names) | {"numpy", "scipy", "cryptography", "pate"}
    for path in modules("pate/masking"):
        names = imported(path)
        assert top(names) <= allowed, f"{path} imports {top(names) - allowed}"
        # No clock, no files, no network, and randomness only as it is handed in.
        outside = {"random", "secrets", "time", "datetime", "os", "pathlib", "socket", "threading"}
        assert not top(names) & outside, f"{path} imports {top(names) & outside}"
        ours = {name for name in names if name.startswith(("pate.data", "pate.runtime"))}
        assert not ours, f"{path} imports {ours}"


def test_nothing_imports_the_composition_root() -> None:
    for path in modules("pate", *sorted(ROLES), "protos"):
        if path.is_relative_to(ROOT / "pate" / "commands") or path.name == "__main__.py":
            continue
        wrong = {name for name in imported(path) if name.startswith("pate.commands")}
        assert not wrong, f"{path} imports {wrong}"


def test_mathematics_needs_numpy_and_scipy_alone() -> None:
    import sys

    allowed = set(sys.stdlib_module_names) | {"numpy", "scipy", "pate"}
    for path in modules(*(f"pate/{room}" for room in MATHEMATICS)):
        names = imported(path)
        assert top(names) <= allowed, f"{path} imports {top(names) - allowed}"
        ours = {name for name in names if name.startswith(("pate.data", "pate.runtime"))}
        assert not ours, f"{path} imports {ours}"


def test_flower_is_imported_by_its_glue_alone() -> None:
    glue = {
        "aggregator_server/fleet/requests.py",
        "aggregator_server/fleet/signature.py",
        "aggregator_server/fleet/traffic.py",
        "aggregator_server/flower_internals.py",
        "aggregator_server/wire.py",
        "aggregator_server/local_grid.py",
        "party/client_app.py",
        "party/flower_internals.py",
        "party/pieces.py",
        "party/resident.py",
        "party/supernode_process.py",
        "protos/carriage.py",
        "protos/flower_runtime.py",
    }
    for path in modules("pate", *sorted(ROLES), "protos"):
        if path.is_relative_to(ROOT / "pate" / "commands"):
            continue
        name = path.relative_to(ROOT).as_posix()
        if "flwr" in top(imported(path)):
            assert name in glue, f"{name} imports flwr"


def test_no_pickle_anywhere() -> None:
    for path in modules("pate", *sorted(ROLES), "protos"):
        wrong = top(imported(path)) & {
            "pickle",
            "dill",
            "cloudpickle",
            "joblib",
            "shelve",
            "marshal",
        }
        assert not wrong, f"{path} imports {wrong}"
        text = path.read_text(encoding="utf-8")
        assert "allow_pickle=True" not in text, path
        assert "torch.load" not in text, path
