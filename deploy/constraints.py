"""Print the versions of a release: its dependencies in this environment, with the hashes of their wheels.

    python deploy/constraints.py > deploy/constraints.txt

Run it in the environment in which the tests passed, at every release. The output is the closure of the
project's dependencies with the extras below and of what builds it, without development tools, one package a
line. It names no package index: that is the installer's configuration, and pip asks there for the hashes,
for the platforms below. Take pip 25 or newer: an older one downloads all wheels. ``--no-hashes`` asks nobody.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from pate.runtime.child import python

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
EXTRAS = ("postgres",)
#: Of wheels, by pip: machines, and versions of glibc. A newer system may choose a newer wheel.
MACHINES = ("x86_64", "aarch64")
GLIBC = (28, 36)
_HEADER = """\
# The versions that this release was tested with, made by: python deploy/constraints.py
# Python {python} on {platform}; wheels of {machines}, glibc 2.{least} or newer. To install just these:
#   pip install --require-hashes --no-deps --requirement deploy/constraints.txt
#   pip install --no-deps --no-build-isolation .
# A word after # says what else needs a package: an extra, or CUDA. grep -v '# postgres$' leaves lines out.
"""


def wanted(*extras: str) -> list[Requirement]:
    """Return what installs and builds the project, with some of its extras."""
    made = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    texts = [*made["project"]["dependencies"], *made["build-system"]["requires"]]
    for extra in extras:
        texts += made["project"]["optional-dependencies"][extra]
    return [Requirement(text) for text in texts]


def closure(asked: list[Requirement], without: str | None = None) -> dict[str, str]:
    """Return the installed versions of the required packages and their dependencies, by name.

    Args:
        asked: requirements.
        without: a variable of markers; what is needed only where it has some value is left out.

    Raises:
        PackageNotFoundError: if a required one is not installed.
    """
    found: dict[str, str] = {
        canonicalize_name(each.name): metadata.version(each.name) for each in asked
    }
    seen: set[tuple[str, str]] = set()
    pending = [(each.name, extra) for each in asked for extra in ("", *each.extras)]
    while pending:
        name, extra = pending.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # an optional dependency that is not installed
        # The local part, as in 2.11.0+cpu, names the build: another build is equivalent.
        found[canonicalize_name(name)] = Version(package.version).public
        for text in package.requires or ():
            each = Requirement(text)
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                if without is not None and without in str(each.marker):
                    continue
                pending.extend((canonicalize_name(each.name), more) for more in ("", *each.extras))
    return found


def parts() -> dict[str, tuple[str, str]]:
    """Return the version of each package, and what else than every installation needs it, or ""."""
    found = {name: (version, "") for name, version in closure(wanted(), "platform_system").items()}
    # Only PyTorch's wheels with CUDA need more by the system that they are for.
    for what, more in (
        ("cuda", closure(wanted())), *((extra, closure(wanted(extra))) for extra in EXTRAS)
    ):  # fmt: skip
        for name, version in more.items():
            found.setdefault(name, (version, what))
    return found


def hashes(pins: list[str], machine: str, glibc: int) -> dict[str, str]:
    """Return the hash of the wheel of each pinned package that pip would install on a machine."""
    own = f"{sys.version_info.major}{sys.version_info.minor}"
    command = python(
        "pip", "--disable-pip-version-check", "install", "--quiet", "--dry-run",
        "--ignore-installed", "--no-deps", "--only-binary=:all:", "--python-version", own,
    )  # fmt: skip
    older = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    for version in range(glibc, 4, -1):
        command += ["--platform", f"manylinux_2_{version}_{machine}"]
        if version in older:
            command += ["--platform", f"{older[version]}_{machine}"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command += [
            "--target",
            folder,
            "--report",
            str(report),
        ]  # pip wants a target, and writes nothing
        subprocess.run([*command, *pins], check=True, stdout=sys.stderr)
        told = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {
        canonicalize_name(each["metadata"]["name"]):
            each["download_info"]["archive_info"]["hashes"]["sha256"]
        for each in told
    }  # fmt: skip


def main() -> None:
    """Print them."""
    found = parts()
    pins = [f"{name}=={version}" for name, (version, _) in sorted(found.items())]
    told: list[dict[str, str]] = []
    if "--no-hashes" not in sys.argv:
        told = [hashes(pins, machine, glibc) for machine in MACHINES for glibc in GLIBC]
    header = _HEADER.format(
        python=".".join(platform.python_version_tuple()[:2]),
        platform=sys.platform,
        machines=" and ".join(MACHINES),
        least=min(GLIBC),
    )
    lines = [header]
    for pin in pins:
        name = pin.partition("==")[0]
        kinds = sorted({each[name] for each in told})
        lines.append(pin + "".join(f" --hash=sha256:{each}" for each in kinds))
        lines.append(f"  # {found[name][1]}\n" if found[name][1] else "\n")
    sys.stdout.write("".join(lines))


if __name__ == "__main__":
    main()
