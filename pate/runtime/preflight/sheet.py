"""How checks are shown: one line each; on a terminal with colours and folded, in a pipe plain."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pate.runtime.command import print_json
from pate.runtime.preflight.finding import Status
from pate.runtime.preflight.runner import run_checks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pate.runtime.preflight.finding import Check
    from pate.runtime.preflight.runner import Report, Result

_STYLES: Final = {
    Status.OK: "green",
    Status.WARNING: "bold yellow",
    Status.FAILED: "bold red",
    Status.SKIPPED: "dim",
}
_TO_DO: Final = "to do: "


def present(checks: Sequence[Check], *, as_json: bool, console: Console | None = None) -> int:
    """Run checks, show what they find on the standard output, and return the exit code.

    Args:
        checks: in their order.
        as_json: whether to print one JSON object at the end, and nothing else.
        console: where to show it; the standard output if left out.
    """
    if as_json:
        report = run_checks(checks)
        print_json(report.to_dict())
        return report.exit_code
    sheet = Sheet(checks, console)
    with sheet.busy():
        report = run_checks(checks, sheet.show)
    sheet.sum_up(report)
    return report.exit_code


class Sheet:
    """The standard output, where the results go."""

    def __init__(self, checks: Sequence[Check], console: Console | None = None) -> None:
        """Show the results of ``checks``."""
        self._console = console or Console(highlight=False)
        self._widest = max((len(check.name) for check in checks), default=0)
        self._group = ""

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Show on a terminal that something is going on, below what was shown so far."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status("looking", spinner="line"):  # of plain characters
            yield

    def show(self, result: Result) -> None:
        """Show one result."""
        found = result.finding
        if not self._console.is_terminal:
            todo = f" ({_TO_DO}{found.mend})" if found.mend else ""
            line = f"{found.status.value:<8} {result.name}: {found.text}{todo}"
            self._console.print(line, markup=False, soft_wrap=True)
            return
        if result.group != self._group:
            self._group = result.group
            self._console.print(Text(f"\n{result.group}", style="bold"))
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_column(width=2 + len(Status.WARNING))
        row.add_column(width=self._widest)
        row.add_column(ratio=1, overflow="fold")
        style = _STYLES[found.status]
        quiet = "dim" if found.status is Status.SKIPPED else ""
        row.add_row(
            Text(f"  {found.status.value}", style=style),
            Text(result.name, style=quiet),
            Text(found.text, style=quiet),
        )
        if found.mend:
            row.add_row("", "", Text.assemble((_TO_DO, style), found.mend))
        self._console.print(row)

    def sum_up(self, report: Report) -> None:
        """Show the last line."""
        counts = [
            f"{report.count(Status.OK)} ok",
            _many(report.count(Status.WARNING), "warning"),
            f"{report.count(Status.FAILED)} failed",
        ]
        if skipped := report.count(Status.SKIPPED):
            counts.append(f"{skipped} skipped")
        first = report.first_failure
        verdict, style = "ready", "bold green"
        if first is not None:
            verdict, style = f"not ready: {first.name} (exit code {report.exit_code})", "bold red"
        line = f"{', '.join(counts)}: {verdict}"
        if self._console.is_terminal:
            self._console.print(Text(f"\n{line}", style=style))
        else:
            self._console.print(line, markup=False, soft_wrap=True)


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
