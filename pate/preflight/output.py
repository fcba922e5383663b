"""Output of checks: one line each; coloured and folded on a terminal, plain in a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pate.preflight.finding import Status
from pate.preflight.runner import run_checks
from pate.runtime.command import print_json
from pate.runtime.screen import Display

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from pate.preflight.runner import Check, Report, Result

_STYLES: Final = {
    Status.OK: "green",
    Status.WARNING: "bold yellow",
    Status.FAILED: "bold red",
    Status.SKIPPED: "dim",
    Status.UNKNOWN: "bold yellow",
}
#: A longer text is split into its sentences.
_LONG: Final = 160
_TO_DO: Final = "to do: "


def present(
    groups: Mapping[str, Sequence[Check]], *, as_json: bool, console: Console | None = None
) -> int:
    """Run checks, print their findings on the standard output, and return the exit code.

    Args:
        groups: checks by heading, in order.
        as_json: whether to print only one JSON object, at the end.
        console: for the output; None: the standard output.
    """
    if as_json:
        report = run_checks(groups)
        print_json(report.to_dict())
        return report.exit_code
    console = console or Display()
    widest = max((len(check.name) for checks in groups.values() for check in checks), default=0)
    headings: list[str] = []

    def folded(result: Result) -> None:
        if result.group not in headings:
            headings.append(result.group)
            console.print()
            console.print(Text(result.group, style="bold"))
        console.print(_row(result, widest))

    def plain(result: Result) -> None:
        found = result.finding
        to_do = f" ({_TO_DO}{found.to_do})" if found.to_do else ""
        line = f"{found.status.value:<8} {result.name}: {found.text}{to_do}"
        for each in (line, *(f"{'':<8} {more}" for more in found.lines)):
            console.print(each, markup=False, soft_wrap=True)

    if console.is_terminal:
        with console.status("looking", spinner="line"):  # of plain characters
            report = run_checks(groups, folded)
    else:
        report = run_checks(groups, plain)
    line, style = _verdict(report)
    if console.is_terminal:
        console.print()
        console.print(Text(line, style=style))
    else:
        console.print(line, markup=False, soft_wrap=True)
    return report.exit_code


def _row(result: Result, widest: int) -> Table:
    found = result.finding
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=2 + len(Status.WARNING))
    row.add_column(width=widest)
    row.add_column(ratio=1, overflow="fold")
    style = _STYLES[found.status]
    quiet = "dim" if found.status is Status.SKIPPED else ""
    status = Text(f"  {found.status.value}", style=style)
    # Each sentence of a long text has its own line.
    texts = found.text.split("; ") if len(found.text) > _LONG else [found.text]
    sentences = Group(*(Text(each, style=quiet) for each in texts))
    row.add_row(status, Text(result.name, style=quiet), sentences)
    for line in found.lines:
        row.add_row("", "", Text(line, style="dim"))
    if found.to_do:
        row.add_row("", "", Text.assemble((_TO_DO, style), found.to_do))
    return row


def _verdict(report: Report) -> tuple[str, str]:
    """Return the closing line, and its style."""
    warnings, code = report.number(Status.WARNING), report.exit_code
    counts = (
        f"{report.number(Status.OK)} ok, {warnings} warning{'' if warnings == 1 else 's'}, "
        f"{report.number(Status.FAILED)} failed"
    )
    for status in (Status.SKIPPED, Status.UNKNOWN):
        counts += f", {number} {status.value}" if (number := report.number(status)) else ""
    first = report.first_failure
    if first is not None:
        return f"{counts}: not ready: {first.name} (exit code {code})", "bold red"
    if code:
        return f"{counts}: whether it is ready is not known (exit code {code})", "bold yellow"
    return f"{counts}: ready", "bold green"
