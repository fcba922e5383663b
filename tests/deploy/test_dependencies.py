"""What a release needs: each package is used or its reason is given, and all versions are written down."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.needs import require
from tests.test_walls import imports_below

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("aggregator_server", "party", "pate", "protos", "simulation", "student")
#: Modules whose package is called otherwise.
PACKAGES = {
    "PIL": "pillow", "sklearn": "scikit-learn", "grpc": "grpcio", "grpc_health": "grpcio-health-checking",
    "google": "protobuf", "prometheus_client": "prometheus-client",
}  # fmt: skip
#: Run-time dependencies that no shipped module imports; pyproject.toml says why.
NOT_IMPORTED = {"h11", "torchvision"}
#: Imported, and brought by a dependency that is bounded: FastAPI's and Typer's own foundations.
BROUGHT = {"starlette", "click"}
#: Of optional extras.
OPTIONAL = {"psycopg"}
#: Of who asks for a series of it: `Answers.to_series` says so where it is missing.
ASKED_FOR = {"pandas"}
#: Of protos/generate.py, which is for developers.
DEVELOPMENT = {"grpc-tools"}


def test_one_list_of_pythons() -> None:
    """What pyproject.toml names is what pages promise, from the oldest that pip admits."""
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert named[0] == "3.11"
    assert project["requires-python"] == f">={named[0]}"
    assert tomllib.loads(text)["tool"]["mypy"]["python_version"] == named[0]
    assert tomllib.loads(text)["tool"]["ruff"]["target-version"] == f"py{named[0].replace('.', '')}"
    assert f"Python {named[0]} or newer is needed" in (ROOT / "Makefile").read_text()
    words = f"Python {named[0]} to {named[-1]}, "
    for page in ("README.md", "docs/operator.md"):
        assert words in (ROOT / page).read_text(), page
    # CI takes the newest from the classifiers.
    ci = (ROOT / ".ci" / "run").read_text()
    assert "'Python :: 3\\.[0-9]+' pyproject.toml" in ci
    assert 'make test PYTHON="$newest"' in ci
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in named


@cache
def imports() -> set[str]:
    """All packages that shipped modules import, inside functions too."""
    names: set[str] = set()
    for room in SHIPPED:
        for path in (ROOT / room).rglob("*.py"):
            for node in imports_below(ast.parse(path.read_text(encoding="utf-8"))):
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


def test_every_run_time_dependency_is_imported_or_its_reason_is_given() -> None:
    assert set(declared()) - imports() == NOT_IMPORTED
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    for name in NOT_IMPORTED:
        (at,) = (n for n, line in enumerate(lines) if line.strip().startswith(f'"{name}'))
        assert lines[at - 1].strip().startswith("#"), f"why {name}?"


def test_every_package_that_is_imported_is_declared() -> None:
    assert imports() - set(declared()) == BROUGHT | OPTIONAL | ASKED_FOR | DEVELOPMENT


@pytest.mark.parametrize(
    ("name", "faulty", "mended"),
    [
        ("h11", "0.14.0", "0.16.0"), ("onnx", "1.20.1", "1.21.0"), ("pillow", "12.2.0", "12.3.0"),
        ("protobuf", "6.33.4", "6.33.5"), ("pyarrow", "23.0.0", "23.0.1"),
        ("pydicom", "3.0.1", "3.0.2"),
    ],
)  # fmt: skip
def test_readers_of_foreign_bytes_have_a_floor(name: str, faulty: str, mended: str) -> None:
    assert faulty not in declared()[name].specifier
    assert mended in declared()[name].specifier


@dataclass(frozen=True)
class Pin:
    """A package of the release: its version, hashes of its wheels, and what else needs it, or ""."""

    version: str
    hashes: tuple[str, ...]
    part: str


LINE = re.compile(
    r"([a-z0-9-]+)==([0-9][0-9a-z.]*)((?: --hash=sha256:[0-9a-f]{64})+)(?:  # (\w+))?"
)


def constraints() -> dict[str, Pin]:
    text = (ROOT / "deploy" / "constraints.txt").read_text()
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match, line
            name, version, hashes, part = match.groups()
            found[name] = Pin(version, tuple(re.findall("[0-9a-f]{64}", hashes)), part or "")
    return found


def test_all_versions_of_a_release_are_written_down_and_within_the_bounds() -> None:
    found = constraints()
    made = runpy.run_path(str(ROOT / "deploy" / "constraints.py"))
    for each in made["wanted"](*made["EXTRAS"]):
        assert found[canonicalize_name(each.name)].version in each.specifier, each
    assert {pin.part for pin in found.values()} == {"", "cuda", *made["EXTRAS"]}


def test_the_versions_of_a_release_are_those_that_are_tested() -> None:
    """On its Python. `.ci/run` installs them for it; elsewhere pip may have taken newer ones."""
    made = runpy.run_path(str(ROOT / "deploy" / "constraints.py"))
    header = (ROOT / "deploy" / "constraints.txt").read_text().splitlines()[1]
    here = f"Python {sys.version_info.major}.{sys.version_info.minor} on {sys.platform};"
    if here not in header:
        pytest.skip("another Python has packages of its own")
    told = {name: (pin.version, pin.part) for name, pin in constraints().items()}
    found = made["parts"]()
    assert set(found) <= set(told), "make deploy/constraints.txt anew"
    newer = {name: each for name, each in found.items() if each != told[name]}
    require(not newer, f"the versions of deploy/constraints.txt (here {newer}): make it anew")
    assert found == told


def test_no_file_says_where_packages_come_from() -> None:
    text = (ROOT / "deploy" / "constraints.txt").read_text()
    assert "://" not in text
    assert "index-url" not in text


def test_images_are_built_with_them() -> None:
    """And with nothing that no hash covers but PyTorch's CPU wheels, which another place serves."""
    dockerfile = (ROOT / "deploy" / "containers" / "Dockerfile").read_text()
    installs = [shlex.split(line)[2:] for line in re.findall(r"pip install\b[^&\\\n]*", dockerfile)]
    assert all("--no-deps" in each for each in installs)
    own = ["--no-deps", "--no-build-isolation", "."]
    hashed = [each for each in installs if each != own and "--require-hashes" not in each]
    assert hashed == [["--no-deps", "${TORCH_FROM}", "--requirement", "torch.txt"]]
    assert installs.count(own) == 2
    assert len(installs) == 5


def test_what_an_image_selects_of_them() -> None:
    """By the very commands of its file."""
    dockerfile = (ROOT / "deploy" / "containers" / "Dockerfile").read_text()
    greps = re.findall(r"(grep .* deploy/constraints\.txt) > (\w+)\.txt", dockerfile)
    chosen = {
        name: subprocess.run(
            shlex.split(command), cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for command, name in greps
    }
    pins = constraints()
    assert chosen["torch"] == [f"{name}=={pins[name].version}" for name in ("torch", "torchvision")]
    names = {
        name: {line.partition("==")[0] for line in lines if not line.startswith("#")}
        for name, lines in chosen.items()
    }
    parts = {name: {pins[each].part for each in found} for name, found in names.items()}
    assert parts == {"torch": {""}, "others": {"", "postgres"}}
    assert names["others"] | names["torch"] == {
        name for name, pin in pins.items() if pin.part in ("", "postgres")
    }
