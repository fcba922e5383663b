"""The layout of ``--help``: commands, then options in panels, one line each if it fits."""

from __future__ import annotations

import inspect
import io
import shutil
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import click
import typer
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The panels, in display order; any other panel comes before the last three.
_FIRST: Final = (
    "Campaign", "Data", "Teachers", "Training", "Rows", "Privacy", "Mechanism", "Interactive-GNMax",
    "Gated release", "Masked sums", "Neighbour votes",
)  # fmt: skip
_LAST: Final = ("Network", "Storage", "Monitoring", "Output")
#: Columns of an option with its value; the choices of a longer one are printed below its help.
_LONGEST: Final = 30
_WIDEST: Final = 120
_COMMON: Final = frozenset({"--help", "--install-completion", "--show-completion"})
_VALUES: Final = {
    "text": "TEXT", "integer": "N", "integer range": "N", "float": "NUMBER", "float range": "NUMBER",
}  # fmt: skip


class _Command(TyperCommand):
    """A command with this module's help."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        # Click 8.5 drops the help that typer gives an argument.
        bare = [p for p in self.params if isinstance(p, TyperArgument) and p.help is None]
        if bare:
            hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True)  # type: ignore[arg-type] # typer gives one
            for param in bare:
                given = getattr(hints[param.name or ""], "__metadata__", ())
                param.help = next((each.help for each in given if hasattr(each, "help")), None)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(_drawn(self, ctx))


class _Group(TyperGroup):
    """A group of commands with this module's help."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(_drawn(self, ctx))


class Commands(typer.Typer):
    """A program, or a group of its commands, whose ``--help`` is the one of this module."""

    def __init__(self, **settings: Any) -> None:
        # Click itself suggests a command for a misspelt one; typer would do so again.
        ours: dict[str, Any] = {"cls": _Group, "suggest_commands": False}
        super().__init__(**ours | settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        """Register a command, as :meth:`typer.Typer.command` does."""
        return super().command(name, **{"cls": _Command} | settings)


def listed_choices(param: click.Parameter) -> str:
    """Return the values of an option that chooses among a few as ``a|b``, else an empty text."""
    return "|".join(map(str, param.type.choices)) if isinstance(param.type, click.Choice) else ""


def _drawn(command: click.Command, context: click.Context) -> str:
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    # Click drops colours if the output is not a terminal; frames use what its encoding can show.
    encoding = sys.stdout.encoding or "ascii"
    drawn = io.BytesIO()
    file = io.TextIOWrapper(drawn, encoding=encoding, errors="replace")
    console = Console(file=file, width=width, force_terminal=True, highlight=False)
    usage = " ".join(command.collect_usage_pieces(context))
    console.print(Padding(Text(f"Usage: {context.command_path} {usage}", style="bold"), (1, 1)))
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.strip():
            console.print(Padding(Text(" ".join(paragraph.split())), (0, 1, 1, 1)))
    if isinstance(command, click.Group):
        _show_commands(console, command, context)
    for name, rows in panels_of(command, context):
        console.print(_panel(name, rows, width))  # column widths are computed per panel
    file.flush()
    return drawn.getvalue().decode(encoding)


def panels_of(
    command: click.Command, context: click.Context
) -> list[tuple[str, list[tuple[Text, Text, str]]]]:
    """Return the panels in display order: the title, and of each option what is shown.

    That is the option as typed, its meaning, and choices to print below.
    """
    panels: defaultdict[str, list[click.Parameter]] = defaultdict(list)
    for param in command.get_params(context):
        if not getattr(param, "hidden", False):
            panels[panel_of(param)].append(param)
    return [
        (name, [_row(param, context) for param in panels[name]])
        for name in sorted(panels, key=place_of)
    ]


def panel_of(param: click.Parameter) -> str:
    """Return the title of the panel in which a parameter is shown."""
    if isinstance(param, click.Argument):
        return getattr(param, "rich_help_panel", None) or "Arguments"
    if not _COMMON.isdisjoint(param.opts):  # made by click and typer, without our panels
        return "Output"
    return getattr(param, "rich_help_panel", None) or "Options"


def place_of(name: str) -> tuple[int, int]:
    """Return by what panels are sorted."""
    if name in _LAST:
        return 2, _LAST.index(name)
    if name in _FIRST:
        return 1, _FIRST.index(name)
    return (0, 0) if name == "Arguments" else (1, len(_FIRST))


def _panel(title: str, rows: Sequence[tuple[Text, Text, str]], width: int) -> Panel:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    room = width - 4 - 2 - max(len(left) for left, _, _ in rows)  # the frame, and column gaps
    for left, right, below in rows:
        if below:  # folded at spaces, if necessary
            choices = below if len(below) <= room else below.replace("|", " | ")
            right.append(f"\n{choices}", style="yellow")
        table.add_row(left, right)
    return Panel(table, title=title, title_align="left", border_style="dim")


def _show_commands(console: Console, group: click.Group, context: click.Context) -> None:
    found = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    rows = [
        (Text(name, style="bold cyan"), Text(each.get_short_help_str(limit=200)), "")
        for name, each in found
        if each is not None and not each.hidden
    ]
    if rows:
        console.print(_panel("Commands", rows, console.width))


def _row(param: click.Parameter, context: click.Context) -> tuple[Text, Text, str]:
    """Return the option as typed, its meaning, and choices to print below."""
    names = "/".join(", ".join(each) for each in (param.opts, param.secondary_opts) if each)
    choices = listed_choices(param)
    value = param.metavar or choices or _VALUES.get(param.type.name, param.type.name.upper())
    if isinstance(param, click.Argument):
        names, value = value, ""
    elif getattr(param, "is_flag", False):
        value = ""
    left = Text(names, style="bold cyan")
    below = ""
    if value and len(names) + 1 + len(value) > _LONGEST and value == choices:
        value, below = "", choices
    if value:
        left.append(f" {value}", style="yellow")
    pieces = [Text(getattr(param, "help", None) or "")]
    if param.required and not isinstance(param, click.Argument):
        pieces.append(Text("Required", style="red"))
    if (default := _default(param, context)) and "Default: " not in pieces[0].plain:
        pieces.append(Text(f"Default: {default}", style="dim"))
    right = Text(" ").join(piece for piece in pieces if piece)
    return left, right, below


def _default(param: click.Parameter, context: click.Context) -> str:
    """Return a default as it would be typed, an empty text if there is nothing to show."""
    value = param.get_default(context, call=False)
    if not isinstance(param, click.Option) or param.required or value in (None, "", (), []):
        return ""
    if isinstance(value, bool):
        if not param.secondary_opts:
            return ""
        return (param.opts if value else param.secondary_opts)[0]
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
