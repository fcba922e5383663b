"""The programs' ``--help`` is typer's own; here is the order of its panels."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import click
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable

#: The panels, in display order; any other panel comes before the last three.
_FIRST: Final = (
    "Campaign", "Data", "Teachers", "Training", "Rows", "Privacy", "Mechanism", "Interactive-GNMax",
    "Gated release", "Masked sums", "Neighbour votes",
)  # fmt: skip
_LAST: Final = ("Network", "Storage", "Monitoring", "Output")
_COMMON: Final = frozenset({"--help", "--install-completion", "--show-completion"})


class _Command(TyperCommand):
    """A command with its panels in order."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.params.sort(key=lambda each: place_of(panel_of(each)))
        # Click 8.5 drops the help that typer gives an argument.
        bare = [p for p in self.params if isinstance(p, TyperArgument) and p.help is None]
        if bare:
            hints = get_type_hints(inspect.unwrap(self.callback), include_extras=True)  # type: ignore[arg-type] # typer gives one
            for param in bare:
                given = getattr(hints[param.name or ""], "__metadata__", ())
                param.help = next((each.help for each in given if hasattr(each, "help")), None)


class _Group(TyperGroup):
    """A group of commands with its panels in order."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.params.sort(key=lambda each: place_of(panel_of(each)))


class Commands(typer.Typer):
    """A program, or a group of its commands."""

    def __init__(self, **settings: Any) -> None:
        # Click itself suggests a command for a misspelt one; typer would do so again.
        ours: dict[str, Any] = {"cls": _Group, "suggest_commands": False}
        super().__init__(**ours | settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        """Register a command, as :meth:`typer.Typer.command` does."""
        return super().command(name, **{"cls": _Command} | settings)


def panel_of(param: click.Parameter) -> str:
    """Return the title of the panel of a parameter."""
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
