"""README, pages, notebook and site: what they name, quote and show is there."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
import markdown  # type: ignore[import-untyped]
import pytest

from aggregator_server.cli.main import app as server
from party.cli.main import app as party
from pate.runtime.command import program_of
from simulation.cli import app as pate
from student.cli import app as student
from tests.support.notebook import cells_of, shown_by
from tests.support.pages import DOCS, ROOT
from tests.support.server.statuses import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = Path(sys.executable).parent

#: So short that it is read, as a limit that somebody has to raise by hand.
MOST_WORDS = 700


def test_it_is_short() -> None:
    assert len(README.split()) <= MOST_WORDS


def test_the_two_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "make demo" in README
    assert "make test" in README
    assert "\ndemo: $(VENV)/.installed\n\t$(BIN)/pate demo\n" in makefile
    assert (
        "\ntest: $(VENV)/.tools\n\t$(BIN)/python -m pytest --numprocesses $(PROCESSES) " in makefile
    )


def test_its_pictures_exist_in_light_and_dark() -> None:
    shown = re.findall(r'src(?:set)?="([^"]+)"|!\[[^]]*\]\(([^)]+)\)', README)
    pictures = [ROOT / (tag or link) for tag, link in shown]
    assert len(pictures) >= 2
    assert all(picture.is_file() for picture in pictures)
    assert "prefers-color-scheme: dark" in (DOCS / "overview.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_it_installs_from_its_folder(tmp_path: Path) -> None:
    assert "pip install ." in README
    # A copy, since building writes next to the sources; what it depends on is installed here already.
    left = shutil.ignore_patterns(
        ".*", "*.egg-info", "build", "site", "demo-output", "tests", "__pycache__"
    )
    shutil.copytree(ROOT, tmp_path / "source", ignore=left)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
         "--no-build-isolation", "--target", tmp_path / "there", "."],
        cwd=tmp_path / "source", check=True,
    )  # fmt: skip
    code = "import pate; print(pate.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "there")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.startswith(str(tmp_path / "there"))
    assert (
        tmp_path / "there" / "aggregator_server" / "monitoring" / "static" / "page.html"
    ).is_file()


@pytest.mark.slow
def test_the_demo_runs_both_campaigns(tmp_path: Path) -> None:
    ran = subprocess.run(
        [PROGRAMS / "pate", "demo", "--json", "--out", tmp_path / "out"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    shown = json.loads(ran.stdout)
    # Of 297 test digits; of eight students the worst was right for 93 %, by chance it is a tenth.
    assert min(each["student_accuracy"] for each in (shown, shown["neighbour"])) > 0.8
    for folder in ("student", "student-neighbour"):
        promised = json.loads((tmp_path / "out" / folder / "privacy.json").read_text())
        assert promised
        assert (tmp_path / "out" / folder / "evaluation.json").is_file()
    assert (tmp_path / "out" / "campaign.png").stat().st_size > 10_000


TREE = DOCS.parent
PAGES = sorted(
    [*DOCS.rglob("*.md"), TREE / "README.md", TREE / "SECURITY.md", TREE / "CONTRIBUTING.md"]
)

#: Folders at the root of which pages name files by their path.
FOLDERS = (
    "aggregator_server", "benchmarks", "deploy", "docs", "party", "pate", "protos", "simulation", "student",
    "tests",
)  # fmt: skip
_PATH = re.compile(
    r"(?:^|[\s`(\[])"
    r"((?:" + "|".join(FOLDERS) + r")(?:/[\w.-]+)+/?)"
    r"(?:::\w+)?(?=[`\s),.;:\]]|$)"
)
#: `test_x.py` by itself, after the folder was named.
_TEST = re.compile(r"`(test_\w+\.py)`")


def named(text: str) -> list[str]:
    """Paths, from the root, that a text names; what has a wildcard or a place to fill in is none."""
    return [path.rstrip(".") for path in _PATH.findall(text)]


def test_every_file_that_a_page_names_exists() -> None:
    tests = {each.name for each in (TREE / "tests").rglob("test_*.py")}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        gone = [path for path in named(text) if not (TREE / path).exists()]
        gone += [name for name in _TEST.findall(text) if name not in tests]
        assert not gone, f"{page.relative_to(TREE)} names {', '.join(sorted(set(gone)))}"


def test_names_are_found() -> None:
    text = "see `tests/pate/test_x.py`, party/voting/voter.py; `pate/accounting/` (docs/a.md) `test_a.py`"
    assert named(text) == [
        "tests/pate/test_x.py", "party/voting/voter.py", "pate/accounting/", "docs/a.md",
    ]  # fmt: skip
    assert _TEST.findall(text) == ["test_a.py"]
    assert named("https://example.org/docs/x.md and hospital/pate/x") == []
    assert sum(len(named(page.read_text(encoding="utf-8"))) for page in PAGES) > 50


#: Values that a program fills in, or the page omits.
_FILLED_IN = re.compile(r"…|hospital_\w|-?\d[\d.]*|[()]")
#: Shorter pieces are not significant.
_LEAST = 8


@cache
def _printed() -> tuple[str, ...]:
    """All text of the programs, as it is in one literal each."""
    files = [
        file
        for role in ("aggregator_server", "party", "pate")
        for file in (DOCS.parent / role).rglob("*.py")
    ]
    nodes = (
        node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    )
    return tuple(
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _quoted(page: str, column: str) -> list[str]:
    """The text in backticks in one column of a page's tables."""
    quotes: list[str] = []
    at: int | None = None
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split(" | ")] if line.startswith("|") else None
        if cells is None:
            at = None
            continue
        cells[0] = cells[0].lstrip("| ")
        if column in cells:
            at = cells.index(column)
        elif at is not None and at < len(cells):
            quotes += re.findall(r"`([^`]+)`", cells[at])
    return quotes


@pytest.mark.parametrize(
    ("page", "column"), [("identities.md", "its line says"), ("operator.md", "what you see")]
)
def test_a_line_that_a_page_quotes_is_printed(page: str, column: str) -> None:
    quotes = _quoted(page, column)
    assert len(quotes) > 5
    pieces = [piece.strip(" ;:.,") for quote in quotes for piece in _FILLED_IN.split(quote)]
    unknown = [
        piece
        for piece in pieces
        if len(piece) >= _LEAST and not any(piece in text for text in _printed())
    ]
    assert not unknown, f"{page} quotes what no program says: {unknown}"


APPS = {"pate": pate, "pate-server": server, "pate-party": party, "pate-student": student}


def hooks() -> ModuleType:
    at = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    assert at is not None
    assert at.loader is not None
    at.loader.exec_module(found := importlib.util.module_from_spec(at))
    return found


def every(
    name: str, command: click.Command, above: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    context = click.Context(command, info_name=name, parent=above)
    yield context.command_path, command, context
    for below, each in getattr(command, "commands", {}).items():
        yield from every(below, each, context)


def test_each_option_of_each_program_is_on_the_page() -> None:
    made = markdown.markdown(hooks().options_page(), extensions=["tables", "fenced_code"])
    sections = dict(re.findall(r"<h[23][^>]*>([^<]+)</h[23]>(.*?)(?=<h[23]|\Z)", made, re.DOTALL))
    names = [each for name, app in APPS.items() for each in every(name, program_of(app))]
    assert set(sections) == {path for path, _, _ in names}
    for path, command, context in names:
        rows = re.findall(
            r"<tr>\s*<td><code>(.*?)</code></td>\s*<td>(.*?)</td>\s*</tr>",
            sections[path],
            re.DOTALL,
        )
        params = command.get_params(context)
        assert len(rows) == len(params), path
        typed = {word for cell, _ in rows for word in re.split(r"[\s,/]+", cell)}
        for param in params:
            if isinstance(param, click.Option):
                assert {*param.opts, *param.secondary_opts} <= typed, f"{path}: {param.opts}"
        assert all(meaning for _, meaning in rows), path


def test_what_helps_say_is_shown_as_it_is() -> None:
    as_text = hooks()._as_text
    text = "One of `a|b_c` or *, <x>, [y] and c_d."
    shown = markdown.markdown(as_text(text)).replace("&lt;", "<").replace("&gt;", ">")
    assert re.sub(r"</?(p|code)>", "", shown) == text.replace("`", "")


BOOK = DOCS / "first-steps.ipynb"


@pytest.mark.slow
def test_it_runs_and_shows_pictures() -> None:
    """How good its students are is chance, and tested elsewhere."""
    shown = shown_by(BOOK)
    texts = [each.get("text/plain", "") for each in shown]
    assert sum("image/png" in each for each in shown) == 2
    shares = [
        float(share) for text in texts for share in re.findall(r"([\d.]+)% (?:of|right)", text)
    ]
    assert len(shares) == 2
    assert "per record, towards the public" in "".join(texts)
    assert "Name: label, dtype: Int64" in texts[-1]


def test_what_it_shows_is_stored() -> None:
    book = json.loads(BOOK.read_text(encoding="utf-8"))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in code)
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert BOOK.stat().st_size < 400_000


def test_pages_and_the_notebook_lead_to_each_other() -> None:
    assert f"({BOOK.name})" in (DOCS / "library.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", "".join(cells_of(BOOK, "markdown")))
    assert links
    assert all((DOCS / link).is_file() for link in links)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    # Not --quiet: mkdocs then counts no warnings, and --strict finds nothing to refuse.
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return out


@pytest.mark.slow
def test_every_page_is_built(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file(), page
    for name in ("SECURITY", "CONTRIBUTING", "CHANGELOG", "reference/options"):
        assert (site / f"{name}.html").is_file()


@pytest.mark.slow
def test_the_first_page_is_the_readme_with_its_pictures(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    assert "pate-server --aggregator interactive-gnmax" in re.sub("<[^>]*>", "", first)
    pictures = re.findall(r'<(?:img|source)[^>]*? src(?:set)?="([^"]+)"', first)
    assert {"overview.svg", "images/page.png", "images/page-dark.png"} <= set(pictures)
    assert all((site / each).is_file() for each in pictures)


@pytest.mark.slow
def test_the_reference_is_made_of_the_docstrings(site: Path) -> None:
    text = (site / "reference" / "mechanisms.html").read_text()
    assert "If max_j n_j + N_Z(0, sigma1^2) &gt;= threshold" in text


@pytest.mark.slow
def test_examples_are_code_and_roles_are_names(site: Path) -> None:
    examples = 0
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        examples += text.count('<span class="gp">&gt;&gt;&gt; </span>')
        prose = re.sub(r"<(pre|code)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert not re.search(r"(<blockquote>\s*){2}|&gt;&gt;&gt;", prose), page.name
        assert not re.search(r":(class|func|meth|mod|data|attr|exc|obj):", prose), page.name
    assert examples > 30


def test_a_formula_is_drawn_without_a_script() -> None:
    name = "pymdownx.arithmatex"
    written = "A cost of $\\delta < 1$, for $12 or less.\n\n$$\n\\int (P - e^E Q)^+\n$$\n"
    made = hooks().on_page_content(
        markdown.markdown(written, extensions=[name], extension_configs={name: {"generic": True}})
    )
    assert re.search(
        r'A cost of <math [^>]*display="inline">.*&#x003B4;.*&#x0003C;.*</math>, for', made
    )
    assert re.search(r'<math [^>]*display="block">.*&#x0222B;', made)
    assert "for $12 or less" in made


@pytest.mark.slow
def test_every_formula_of_every_page_is_set(site: Path) -> None:
    """A command that the converter does not know would stand in the page with its backslash."""
    formulas = 0
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"<(pre|code|script)\b.*?</\1>", "", text, flags=re.DOTALL)
        formulas += prose.count("<math ")
        assert "arithmatex" not in prose, page.name
        assert not re.search(r"\\[a-zA-Z]+|\$[^$\n]{1,80}\$", prose), page.name
    assert formulas > 2000


@pytest.mark.slow
def test_the_search_works_in_a_folder(site: Path) -> None:
    with chromium() as browser:
        page = browser.new_page()
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("/")  # opens the field
        page.locator("input[name=query]").press_sequentially("dropouts")
        page.wait_for_selector(".md-search-result__item", timeout=120_000)


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|link)[^>]*?(?:src|href)="(https?:[^"]+)"')
    for page in site.rglob("*.html"):
        text = page.read_text()
        for url in loads.findall(text):
            assert 'rel="canonical"' in text, url
            raise AssertionError(f"{page.name} fetches {url}")
