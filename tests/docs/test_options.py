"""The page of options, made when the site is built, has each option of each program."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING

import click
import markdown  # type: ignore[import-untyped]

from aggregator_server.cli.main import app as server
from party.cli.main import app as party
from pate.runtime.command import program_of
from simulation.cli import app as pate
from student.cli import app as student
from tests.support.pages import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

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
