"""Print pip constraints for a release: the versions of its dependencies in this environment.

    python deploy/constraints.py > deploy/constraints.txt

Run it in the environment in which the tests passed, at every release. The output is the closure of the
project's dependencies with the extras below, without development tools. It names no package index: that is
the installer's configuration.
"""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
EXTRAS = ("postgres", "sim")
_HEADER = """\
# The versions that this release was tested with, made by: python deploy/constraints.py
# Python {python} on {platform}. To install just these: pip install --constraint deploy/constraints.txt .
"""


def wanted(extras: tuple[str, ...] = EXTRAS) -> list[Requirement]:
    """Return the project's own requirements, with some of its extras."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    optional = [text for extra in extras for text in project["optional-dependencies"][extra]]
    return [Requirement(text) for text in (*project["dependencies"], *optional)]


def closure(asked: list[Requirement]) -> dict[str, str]:
    """Return the installed versions of the required packages and their dependencies, by name.

    Raises:
        PackageNotFoundError: if a required one is not installed.
    """
    found = {canonicalize_name(each.name): metadata.version(each.name) for each in asked}
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
                pending.extend((canonicalize_name(each.name), more) for more in ("", *each.extras))
    return found


def main() -> None:
    """Print the constraints."""
    python = ".".join(map(str, sys.version_info[:2]))
    lines = [f"{name}=={version}\n" for name, version in sorted(closure(wanted()).items())]
    sys.stdout.write(_HEADER.format(python=python, platform=sys.platform) + "".join(lines))


if __name__ == "__main__":
    main()
