"""What a command shows while it works: lines and progress bars on the standard error.

On a terminal the bars move; into a file or a pipe each becomes a line now and then, so that a
log stays readable. The standard output is kept for results.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LINE_EVERY_S = 5.0


class Screen:
    """The standard error, shared by lines and bars."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._bars: Progress | None = None

    @property
    def live(self) -> bool:
        """Whether bars move here."""
        return self._console.is_terminal

    def say(self, text: str) -> None:
        """Print one line."""
        stamp = time.strftime("%H:%M:%S")
        if self.live:
            # Never as markup: what is said may hold brackets of a party's choosing.
            self._console.print(Text(f"{stamp} ", style="dim"), Text(text), sep="")
        else:
            self._console.print(f"{stamp} {self._name}: {text}", markup=False)

    def show(self, renderable: object) -> None:
        """Print a table or another thing that rich can draw."""
        self._console.print(renderable)

    @contextmanager
    def bar(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """Show progress of one piece of work; yields a function of (done, total)."""
        if self.live:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            with Progress(*columns, console=self._console, transient=True) as bars:
                task = bars.add_task(title, total=None)

                def move(done: int, total: int) -> None:
                    bars.update(task, completed=done, total=total)

                yield move
            return
        last = [0.0]

        def line(done: int, total: int) -> None:
            now = time.monotonic()
            if now - last[0] >= _LINE_EVERY_S or (done >= total and last[0]):
                last[0] = now
                self.say(f"{title}: {done} of {total}")

        yield line
