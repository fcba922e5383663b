"""What a release needs: each package is used or its reason is given, and all versions are written down."""

from __future__ import annotations

import ast
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("aggregator_server", "party", "pate", "protos", "simulation", "student")
#: Modules whose package is called otherwise.
PACKAGES = {
    "PIL": "pillow", "sklearn": "scikit-learn", "grpc": "grpcio", "grpc_health": "grpcio-health-checking",
    "google": "protobuf", "prometheus_client": "prometheus-client",
}  # fmt: skip
#: Run-time dependencies that no shipped module imports; pyproject.toml says why.
NOT_IMPORTED = {"h11"}
#: Imported, and brought by a dependency that is bounded: FastAPI's and Typer's own foundations.
BROUGHT = {"starlette", "click"}
#: Of optional extras.
OPTIONAL = {"psycopg", "ray"}
#: Of protos/generate.py, which is for developers.
DEVELOPMENT = {"grpc-tools"}


def imports() -> set[str]:
    """All packages that shipped modules import, inside functions too."""
    names: set[str] = set()
    for room in SHIPPED:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names.update(alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    names.add(node.module or "")
    tops = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - set(SHIPPED)
    return {canonicalize_name(PACKAGES.get(top, top)) for top in tops if top}


def declared() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    made = map(Requirement, project["dependencies"])
    return {canonicalize_name(each.name): each for each in made}


@pytest.mark.slow
def test_every_run_time_dependency_is_imported_or_its_reason_is_given() -> None:
    assert set(declared()) - imports() == NOT_IMPORTED
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    for name in NOT_IMPORTED:
        (at,) = (n for n, line in enumerate(lines) if line.strip().startswith(f'"{name}'))
        assert lines[at - 1].strip().startswith("#"), f"why {name}?"


@pytest.mark.slow
def test_every_package_that_is_imported_is_declared() -> None:
    assert imports() - set(declared()) == BROUGHT | OPTIONAL | DEVELOPMENT


def test_the_parser_of_strangers_requests_has_a_floor() -> None:
    assert "0.14.0" not in declared()["h11"].specifier
    assert "0.16.0" in declared()["h11"].specifier


def constraints() -> dict[str, str]:
    text = (ROOT / "deploy" / "constraints.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in lines)
    return dict(line.split("==") for line in lines)


@pytest.mark.slow
def test_all_versions_of_a_release_are_written_down_and_within_the_bounds() -> None:
    found = constraints()
    made = runpy.run_path(str(ROOT / "deploy" / "constraints.py"))
    for each in made["wanted"]():
        assert found[canonicalize_name(each.name)] in each.specifier, each
    header = (ROOT / "deploy" / "constraints.txt").read_text().splitlines()[1]
    here = f"Python {sys.version_info.major}.{sys.version_info.minor} on {sys.platform}"
    if here in header:  # elsewhere other packages are needed
        needed = set(made["closure"](made["wanted"]()))
        assert needed <= set(found), "make deploy/constraints.txt anew"


def test_no_file_says_where_packages_come_from() -> None:
    text = (ROOT / "deploy" / "constraints.txt").read_text() + (
        ROOT / "requirements-dev.txt"
    ).read_text()
    assert "://" not in text
    assert "index-url" not in text


def test_images_are_built_with_them() -> None:
    dockerfile = (ROOT / "deploy" / "containers" / "Dockerfile").read_text()
    installs = re.findall(r"pip install\b[^&\n]*", dockerfile)
    assert len(installs) == 3
    assert all("--constraint deploy/constraints.txt" in line for line in installs)
