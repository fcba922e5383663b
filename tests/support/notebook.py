"""Notebooks of the documentation: run as Jupyter runs them, in a process of their own, without Jupyter.

``python -m tests.support.notebook docs/first-steps.ipynb`` runs one and stores what its cells show.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.pages import ROOT

_PNG = "image/png"


def cells_of(path: Path, kind: str = "code") -> list[str]:
    """Return the sources of a notebook's cells."""
    held = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in held if cell["cell_type"] == kind]


def shown_by(path: Path) -> list[dict[str, str]]:
    """Run a notebook in a new process and an empty folder; return what each cell shows, by its type."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-m", "tests.support.notebook", "--cells"],
            input=json.dumps([str(Path(folder)), *cells_of(path)]), capture_output=True, text=True,
            cwd=ROOT, check=True,
        )  # fmt: skip
    shown: list[dict[str, str]] = json.loads(ran.stdout)
    return shown


def _run(cells: list[str]) -> list[dict[str, str]]:
    """Run cells one after the other in one namespace."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for number, cell in enumerate(cells, 1):
        tree, last, value = ast.parse(cell), None, None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        printed, shown = io.StringIO(), {}
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"cell {number}", "exec"), names)  # noqa: S102 - our own documentation
            if last is not None:
                value = eval(compile(last, f"cell {number}", "eval"), names)  # noqa: S307
        drawn = [plt.figure(at) for at in plt.get_fignums()]
        if value is not None and hasattr(value, "_repr_png_"):
            shown[_PNG] = base64.b64encode(value._repr_png_()).decode()
        elif drawn:
            picture = io.BytesIO()
            drawn[-1].savefig(picture, format="png", dpi=80)
            shown[_PNG] = base64.b64encode(picture.getvalue()).decode()
        plt.close("all")
        text = printed.getvalue() + ("" if value is None or drawn else f"{value!r}\n")
        if text:
            shown["text/plain"] = text
        found.append(shown)
    return found


def _store(path: Path) -> None:
    """Write what the cells show into the notebook, as Jupyter does."""
    book = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for number, (cell, shown) in enumerate(zip(code, shown_by(path), strict=True), 1):
        cell["execution_count"] = number
        cell["outputs"] = [{"output_type": "display_data", "metadata": {}, "data": shown}] * bool(
            shown
        )
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--cells":
        where, *sources = json.load(sys.stdin)
        os.chdir(where)
        sys.stdout.write(json.dumps(_run(sources)))
    else:
        _store(Path(sys.argv[1]))
