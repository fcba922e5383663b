"""Puts faults back, one by one, in a copy of the code, and expects a test to find each: ``make mutants``.

The faults are in ``mutants.toml``: a file, its old and new text, and the test that has to fail. A test that
passes, or one that cannot be run at all, has not found the fault.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.modules import ROOT

#: What pytest returns if tests were run and some have failed; 2 and more: they were not run.
_FAILED = 1
_DEADLINE_S = 900


@dataclass(frozen=True)
class Mutant:
    """A fault, and the test that finds it."""

    fault: str  # in words
    file: str  # in which it is, from the root of the project
    old: str  # text that occurs once in the file
    new: str  # the text in its place
    test: str  # from ``tests/``, as pytest names it

    def planted(self, text: str) -> str:
        """Return the text of the file with the fault."""
        if (times := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} has {times} times: {self.old}")
        return text.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    """Return all faults of the list."""
    text = Path(__file__).with_name("mutants.toml").read_text("utf-8")
    return [Mutant(**each) for each in tomllib.loads(text)["mutant"]]


def copied(folder: Path) -> None:
    """Copy the files that git tracks, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def found(mutant: Mutant, folder: Path) -> str:
    """Plant a fault in a copy, run its test, and remove it; return "" if it was found, else why not."""
    path = folder / mutant.file
    text = path.read_text("utf-8")
    path.write_text(mutant.planted(text), "utf-8")
    data = os.environ.get("PATE_TEST_DATA", str(ROOT.parent / "shared" / "data"))
    # The copy goes before the installed project, also in processes of the test.
    around = os.environ | {"PYTHONPATH": str(folder), "PATE_TEST_DATA": data}
    options = ("-q", "-x", "-p", "no:cacheprovider", "-m", "not slow")
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *options, f"tests/{mutant.test}"],
            cwd=folder, env=around, check=False, capture_output=True, text=True, timeout=_DEADLINE_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no result in {_DEADLINE_S} s"
    finally:
        path.write_text(text, "utf-8")
    if ran.returncode == _FAILED:
        return ""
    return "the test passes" if ran.returncode == 0 else f"the test did not run:\n{ran.stdout}"


def say(*lines: str) -> None:
    """Print lines at once."""
    print(*lines, sep="\n", flush=True)  # noqa: T201


def main() -> int:
    """Try all, or those with a word of the command line in them; return the exit code."""
    chosen = [each for each in mutants() if all(word in str(each) for word in sys.argv[1:])]
    with tempfile.TemporaryDirectory() as name:
        folders: SimpleQueue[Path] = SimpleQueue()
        for number in range(2):
            folder = Path(name, str(number))
            copied(folder)
            folders.put(folder)

        def tried(mutant: Mutant) -> str:
            folder = folders.get()
            try:
                return found(mutant, folder)
            finally:
                folders.put(folder)

        missed = 0
        with ThreadPoolExecutor(2) as pool:
            for mutant, why in zip(chosen, pool.map(tried, chosen), strict=True):
                missed += bool(why)
                say(
                    f"{'MISSED' if why else 'found '} {mutant.fault}: {mutant.test}",
                    *why.splitlines(),
                )
    say(f"{len(chosen) - missed} of {len(chosen)} faults were found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
