"""What a command shows while it works: lines and progress bars on the standard error.

On a terminal the bars move; into a file or a pipe each becomes a line now and then, so that a
log stays readable; where JSON is asked for, each is one object. The standard output is kept for
results.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from pate.runtime.log import Line, in_json, print_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_log = logging.getLogger(__name__)
#: Seconds between two lines of one piece of work where bars cannot move.
_LINE_EVERY_S = 5.0
#: Names that one line has at most.
_NAMED = 8
#: Columns of a table inside a JSON line.
_TABLE_WIDTH = 100
#: Set by a program that draws the bars of the programs it starts: they then speak more often.
EVERY = "PATE_PROGRESS_EVERY_S"


def listed(names: Sequence[str]) -> str:
    """Return names as one line of a screen can show them: the first few, and how many there are."""
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown}, … ({len(names)} in all)"


class Screen:
    """The standard error, shared by lines and bars."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._listeners: list[Callable[[Line], None]] = []

    @property
    def live(self) -> bool:
        """Whether bars move here."""
        return self._console.is_terminal and not in_json()

    def listen(self, callback: Callable[[Line], None]) -> Callable[[], None]:
        """Hand every line that is said from now on to ``callback`` as well.

        It is called in the thread that speaks, before the next line can be said there, so it must
        be quick. One that raises is not called again: who listens must not stop who works.

        Returns:
            What ends it; calling that twice does no harm.
        """
        self._listeners.append(callback)

        def end() -> None:
            if callback in self._listeners:
                self._listeners.remove(callback)

        return end

    def say(self, text: str, level: str = "info") -> None:
        """Print one line.

        Args:
            text: what to say.
            level: ``info``, ``warning`` or ``error``; only JSON and listeners show it.
        """
        line = Line.now(self._name, text, level)
        stamp = line.time.strftime("%H:%M:%S")
        if in_json():
            print_line(line)
        elif self.live:
            # Never as markup: what is said may hold brackets of a party's choosing.
            self._console.print(Text(f"{stamp} ", style="dim"), Text(text), sep="")
        else:
            self._console.print(f"{stamp} {self._name}: {text}", markup=False)
        for callback in tuple(self._listeners):
            try:
                callback(line)
            except Exception:  # noqa: BLE001 - whatever it is, the work goes on
                if callback in self._listeners:
                    self._listeners.remove(callback)
                _log.exception("a listener to the lines of %s is dropped", self._name)

    def show(self, renderable: object) -> None:
        """Print a table or another thing that rich can draw."""
        if not in_json():
            self._console.print(renderable)
            return
        drawn = io.StringIO()
        Console(file=drawn, highlight=False, width=_TABLE_WIDTH).print(renderable)
        print_line(Line.now(self._name, drawn.getvalue().rstrip("\n")))

    def _progress(self) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )

    @contextmanager
    def bars(self) -> Iterator[Callable[[str, int, int], None] | None]:
        """Show progress of many pieces of work; yields a function of (title, done, total).

        Where bars cannot move it yields None: whoever has progress to show prints it as lines.
        A bar goes when its work is done.
        """
        if not self.live:
            yield None
            return
        with self._progress() as bars:
            tasks: dict[str, TaskID] = {}

            def move(title: str, done: int, total: int) -> None:
                if title not in tasks:
                    tasks[title] = bars.add_task(title, total=total)
                bars.update(tasks[title], completed=done, total=total)
                if done >= total:
                    bars.remove_task(tasks.pop(title))

            yield move

    @contextmanager
    def bar(self, title: str) -> Iterator[Callable[[int, int], None]]:
        """Show progress of one piece of work; yields a function of (done, total)."""
        if self.live:
            with self._progress() as bars:
                task = bars.add_task(title, total=None)

                def move(done: int, total: int) -> None:
                    bars.update(task, completed=done, total=total)

                yield move
            return
        last = [0.0]
        every = float(os.environ.get(EVERY, _LINE_EVERY_S))

        def line(done: int, total: int) -> None:
            now = time.monotonic()
            if now - last[0] >= every or (done >= total and last[0]):
                last[0] = now
                self.say(f"{title}: {done} of {total}")

        yield line
