"""What the site does to pages: those of the repository's root, options, links, docstrings, formulas.

MkDocs calls the functions, and griffe, which reads the docstrings of the reference, the class.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import griffe
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

_ROOT: Final = Path(__file__).resolve().parents[1]
_PAGES: Final = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
#: The site's first page, and the page of the root that it is made of.
_FIRST: Final = ("index.md", "README.md")
#: A picture that is shown by a tag: MkDocs leaves its path as it is.
_PICTURE: Final = re.compile(r'(?<=src=")docs/|(?<=srcset=")docs/')
_LINK: Final = re.compile(r"\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
#: As Sphinx writes a name; the last part is enough where a tilde says so.
_ROLE: Final = re.compile(r":[a-z]+:`(?:~[\w.]*\.|!)?([^`]+)`")
#: An example of a session: from its first prompt to an empty line.
_EXAMPLE: Final = re.compile(r"^(?P<indent> *)>>> .*\n?(?:.*\S.*\n?)*", re.MULTILINE)
#: A formula, as the extension arithmatex marks it.
_FORMULA: Final = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
#: The name of a function whose argument is in no brackets: a browser sets no space between them.
_FUNCTION: Final = re.compile(r"(?<!<msub>)(?<!<msup>)<mi>(?:ln|log|exp|sin|cos)</mi>(?=<m(?!o\b))")
#: The page that is made of `--help`, and what is no plain text in Markdown.
_OPTIONS: Final = "reference/options.md"
_MARKUP: Final = re.compile(r"[*|\[\]_]")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of options, and those of the root; on the site they are next to those of docs/."""
    files.append(File.generated(config, _OPTIONS, content=options_page()))
    for name in _PAGES:
        text = (_ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_LINK.sub(_from_root, text)))
    name, made_of = _FIRST
    text = _PICTURE.sub("", (_ROOT / made_of).read_text(encoding="utf-8"))
    files.append(File.generated(config, name, content=_LINK.sub(_from_root, text)))
    return files


def options_page() -> str:
    """Return the page of all commands and options, made of what `--help` shows."""
    from aggregator_server.cli.main import app as server
    from party.cli.main import app as party
    from pate.runtime.command import program_of
    from simulation.cli import app as pate
    from student.cli import app as student

    apps = {"pate-server": server, "pate-party": party, "pate-student": student, "pate": pate}
    text = (
        "# Options\n\nAfter this page you can look up each option of each command. The page is made of what "
        "`--help` shows. `--config FILE` reads options from a TOML file, by their names without dashes.\n"
    )
    return text + "".join(
        part for name, app in apps.items() for part in _of_command(name, program_of(app), None)
    )


def _of_command(name: str, command: click.Command, above: click.Context | None) -> Iterator[str]:
    import click

    from pate.runtime.help import panels_of

    context = click.Context(command, info_name=name, parent=above)
    level = "##" if above is None else "###"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"\n{level} {context.command_path}\n\n```text\n{context.command_path} {usage}\n```\n"
    for paragraph in (command.help or "").split("\n\n"):
        yield f"\n{_as_text(' '.join(paragraph.split()))}\n"
    yield "\n| option | meaning |\n|---|---|\n"
    for panel, rows in panels_of(command, context):
        yield f"| **{panel}** | |\n"
        for left, right, below in rows:
            choices = f" `{below}`" if below else ""
            yield f"| `{left.plain}` | {_as_text(right.plain)}{choices} |\n"
    if isinstance(command, click.Group):
        for below_name in command.list_commands(context):
            below_command = command.get_command(context, below_name)
            if below_command is not None and not below_command.hidden:
                yield from _of_command(below_name, below_command, context)


def _as_text(text: str) -> str:
    """Return text of `--help` as Markdown that shows just that; in backticks it is code in both."""
    pieces = text.split("`")
    pieces[::2] = [_MARKUP.sub(r"\\\g<0>", each).replace("<", "&lt;") for each in pieces[::2]]
    return "`".join(pieces)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Rewrite links out of docs/ to the same pages on the site, or to their name only."""
    return _LINK.sub(_from_docs, markdown)


def on_page_content(content: str, **_: object) -> str:
    r"""Set formulas, `$...$` and `$$...$$`, as MathML, which browsers draw without a script."""
    return _FORMULA.sub(_as_mathml, content)


def _as_mathml(formula: re.Match[str]) -> str:
    from latex2mathml.converter import convert

    display = "block" if formula["tag"] == "div" else "inline"
    drawn = convert(html.unescape(formula["latex"]).strip(), display=display)
    drawn = drawn.replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')
    drawn = _FUNCTION.sub(r'\g<0><mspace width="0.17em" />', drawn)
    return drawn if display == "inline" else f'<div class="formula">{drawn}</div>'


class Docstrings(griffe.Extension):
    """Docstrings as Markdown: examples are code, and roles are names."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = _EXAMPLE.sub(_as_code, text)


def _as_code(example: re.Match[str]) -> str:
    indent, code = example["indent"], example[0].rstrip("\n")
    return f"{indent}```pycon\n{code}\n{indent}```\n"


def _from_root(link: re.Match[str]) -> str:
    target = link["target"].removeprefix("docs/")
    return f"]({target}{link['anchor'] or ''})"


def _from_docs(link: re.Match[str]) -> str:
    target = link["target"]
    first, made_of = _FIRST
    for name, on_site in (*zip(_PAGES, _PAGES, strict=True), (made_of, first)):
        if target.startswith("..") and target.endswith("/" + name):
            up = target.removesuffix(name).removeprefix("../")
            return f"]({up}{on_site}{link['anchor'] or ''})"
    return link[0]
