"""Output of a running command: lines and progress bars on the standard error.

On a terminal the bars move; in a file or a pipe each becomes an occasional line, so that a log stays
readable; with JSON, each is one object. The standard output is kept for
results. Whatever a text contains, only printable characters of it are shown, and a line stays a line.
"""

from __future__ import annotations

import io
import logging
import math
import os
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from pate.printable import printable, raw
from pate.runtime.log import Line, in_json, print_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import ConsoleOptions, RenderableType
    from rich.progress import Task, TaskID
    from rich.progress_bar import ProgressBar
    from rich.segment import Segment

_log = logging.getLogger(__name__)
#: Seconds between two progress lines of one task without moving bars.
_LINE_EVERY_S = 5.0
#: The next line follows after this share of the elapsed time, if that is longer.
_SHARE = 0.1
#: Columns of a table inside a JSON line.
_TABLE_WIDTH = 100
#: Set by a program that draws the bars of its child programs: they then print more often.
EVERY = "PATE_PROGRESS_EVERY_S"


class Display(Console):
    """A rich console that shows only printable characters of every text, each on its line."""

    def __init__(self, file: IO[str] | None = None, **settings: Any) -> None:
        # It writes terminal commands of its own, past the check of the stream.
        super().__init__(file=raw(file or sys.stdout), highlight=False, **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a text, a table or another object."""
        if isinstance(renderable, str):
            markup = None if options is None else options.markup
            renderable = self.render_str(renderable, highlight=False, markup=markup)
        if isinstance(renderable, Text) and not renderable.plain.isprintable():
            shown = renderable.blank_copy(printable(renderable.plain))
            return super().render(shown, options)
        return super().render(renderable, options)


class Screen:
    """The standard error, shared by lines and bars; ``party`` is named in each line if it is shared."""

    def __init__(self, name: str, party: str = "") -> None:
        self._name, self._party = name, printable(party)
        self._console = Display(file=sys.stderr, soft_wrap=True)
        self._listeners: list[Callable[[Line], None]] = []
        self._moving: Progress | None = None
        self._users, self._lock = 0, threading.Lock()

    @property
    def live(self) -> bool:
        """Whether bars move here."""
        return self._console.is_terminal and not in_json()

    def listen(self, callback: Callable[[Line], None]) -> Callable[[], None]:
        """Pass every further line to ``callback`` as well; returns a function that ends it.

        It is called in the printing thread, so it must be quick. One that raises is not called again: a
        listener must not stop the work.
        """
        self._listeners.append(callback)

        def end() -> None:
            if callback in self._listeners:
                self._listeners.remove(callback)

        return end

    def say(self, text: str, level: str = "info") -> None:
        """Print one line, its unprintable characters as escapes; only JSON and listeners show ``level``."""
        text = printable(text)
        line = Line.now(self._name, text, level, self._party)
        stamp = line.time.strftime("%H:%M:%S")
        if in_json():
            print_line(line)
        elif self.live:
            # Never as markup: a text may contain brackets chosen by a party.
            whose = f"{stamp} {self._party}: " if self._party else f"{stamp} "
            self._console.print(Text(whose, style="dim"), Text(text), sep="")
        else:
            name = f"{self._name} {self._party}".rstrip()
            self._console.print(f"{stamp} {name}: {text}", markup=False)
        for callback in tuple(self._listeners):
            try:
                callback(line)
            except Exception:  # noqa: BLE001 - whatever it is, the work goes on
                if callback in self._listeners:
                    self._listeners.remove(callback)
                _log.exception("a listener to the lines of %s is dropped", self._name)

    def show(self, renderable: object) -> None:
        """Print a table or another object that rich can draw."""
        if not in_json():
            self._console.print(renderable)
            return
        drawn = io.StringIO()
        Display(file=drawn, width=_TABLE_WIDTH).print(renderable)
        print_line(Line.now(self._name, drawn.getvalue().rstrip("\n"), party=self._party))

    @contextmanager
    def _live(self) -> Iterator[Progress]:
        """Yield the live display, shared by everything that is shown at the same time."""
        with self._lock:
            if self._moving is None:
                # Names first, whatever the width: a long line is cut where it ends.
                title = Column(ratio=1, no_wrap=True, overflow="ellipsis")
                self._moving = Progress(
                    TextColumn("{task.description}", table_column=title, markup=False),
                    _Bar(bar_width=16),
                    _Done(),
                    _Left(),
                    console=self._console,
                    transient=True,
                    expand=True,
                )
                self._moving.start()
            self._users += 1
            moving = self._moving
        try:
            yield moving
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    moving.stop()
                    self._moving = None

    @contextmanager
    def _task(self, title: str, *, late: bool = False, **fields: Any) -> Iterator[_Task]:
        with self._live() as moving:
            number = moving.add_task(title, total=None, visible=not late, **fields)
            try:
                yield _Task(moving, number, late=late)
            finally:
                moving.remove_task(number)

    @contextmanager
    def roles(self) -> Iterator[Roles | None]:
        """Show a live line for each of several programs; yields None without a terminal."""
        if not self.live:
            yield None
            return
        with ExitStack() as tasks:
            yield Roles(lambda name: tasks.enter_context(self._task(f"{name:<11}", waits=True)))

    @contextmanager
    def waiting(self, least: float = 0.0) -> Iterator[Callable[[str], None]]:
        """Show the reason of a wait, a live line or ever rarer ones; yields a function of that text."""
        if not self.live:
            yield Reminder(self.say, least=least).tell
            return
        with self._task("", late=True, waits=True) as task:
            yield task.say

    @contextmanager
    def bar(
        self, title: str, *, percent: bool = False, late: bool = False, timed: bool = True
    ) -> Iterator[Callable[[int, int], None]]:
        """Show progress of one task; yields a function of (done, total).

        Without moving bars it is an occasional line with the remaining time.

        ``late``: show nothing before the first call, nothing while done is total, and no line for a
        task of a moment; ``timed``: whether progress predicts the remaining time. If not, a short
        task is one line, its last.
        """
        if self.live:
            with self._task(title, late=late, percent=percent, timed=timed) as task:
                yield task.move
            return
        yield _Lines(self.say, title, percent=percent, late=late, timed=timed).move


class _Task:
    """One line of the live display."""

    def __init__(self, moving: Progress, number: TaskID, *, late: bool) -> None:
        self._moving, self._number, self._is_late = moving, number, late
        self._pace, self._done = Pace(), -1

    def say(self, text: str) -> None:
        """Show a text, and no bar."""
        self._moving.update(self._number, description=text, visible=True, waits=True)

    def move(self, done: int, total: int, **fields: Any) -> None:
        """Show the progress."""
        if done < self._done or self._done < 0:  # new, or begun again
            self._pace = Pace()
        self._done = done
        self._moving.update(
            self._number,
            completed=done,
            total=total,
            visible=not (self._is_late and done >= total),
            waits=False,
            left=self._pace.left(done, total),
            **fields,
        )


class Roles:
    """Live lines of programs."""

    def __init__(self, begin: Callable[[str], _Task]) -> None:
        self._begin = begin
        self._tasks: dict[str, _Task] = {}

    def say(self, name: str, text: str) -> None:
        """Show the last line of a program."""
        self._of(name).say(f"{name:<11} {text}")

    def move(self, name: str, title: str, done: int, total: int, *, timed: bool) -> None:
        """Show the progress of a program's task, and its remaining time if known."""
        self._of(name).move(done, total, description=f"{name:<11} {title}", timed=timed)

    def _of(self, name: str) -> _Task:
        if name not in self._tasks:
            self._tasks[name] = self._begin(name)
        return self._tasks[name]


class _Lines:
    """Progress as lines: the first one, and then ever more rarely, as long as there is progress."""

    def __init__(
        self, say: Callable[[str], None], title: str, *, percent: bool, late: bool, timed: bool
    ) -> None:
        self._say, self._title = say, title
        self._percent, self._late, self._timed = percent, late, timed
        self._drawn = EVERY in os.environ  # for another program, which needs each line
        self._every = float(os.environ.get(EVERY, _LINE_EVERY_S))
        self._pace, self._began, self._next = Pace(), 0.0, 0.0
        self._last: tuple[int, int] | None = None
        self._done: int | None = None

    def move(self, done: int, total: int) -> None:
        """Print the progress, if a line is due."""
        now = time.monotonic()
        if self._done is None or done < self._done:  # new, or begun again
            self._pace, self._began, self._last = Pace(), now, None
            # Of a task whose time cannot be predicted only a long wait, and the end, are worth a line.
            self._next = now + self._every * (self._late or not (self._timed or self._drawn))
        self._done, left = done, self._pace.left(done, total)
        is_soon = now < self._next and (done < total or self._late)
        # Zero progress is reported only after a while.
        is_new = not done and not self._drawn and now < self._began + self._every
        if (done, total) == self._last or is_soon or is_new:
            return
        gap = self._every if self._drawn else max(self._every, _SHARE * (now - self._began))
        self._last, self._next = (done, total), now + min(gap, HOUR)
        much = f"{100 * done // max(total, 1)} %" if self._percent else f"{done} of {total}"
        words = left_in_words(left) if self._timed and done < total else ""
        self._say(f"{self._title}: {much}{', ' if words else ''}{words}")


class _Bar(BarColumn):
    """A bar, if there is a measure."""

    def render(self, task: Task) -> ProgressBar | Text:  # type: ignore[override] # rich draws both
        return Text("") if task.fields.get("waits") else super().render(task)


class _Done(ProgressColumn):
    """The finished amount."""

    def render(self, task: Task) -> Text:
        if task.fields.get("waits") or task.total is None:
            return Text("")
        if task.fields.get("percent"):
            return Text(f"{100 * task.completed / max(task.total, 1):.0f} %")
        return Text(f"{task.completed:.0f}/{task.total:.0f}")


class _Left(ProgressColumn):
    """The remaining time."""

    def render(self, task: Task) -> Text:
        fields = task.fields
        if task.finished or fields.get("waits") or not fields.get("timed", True):
            return Text("")
        return Text(left_in_words(fields.get("left")))


MINUTE: Final = 60.0
HOUR: Final = 3600.0


class Reminder:
    """Prints the reason of a wait when it changes, then after a minute, and ever more rarely."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        least: float = 0.0,  # minimum seconds between two lines
        clock: Callable[[], float] = time.monotonic,  # seconds, monotonic
    ) -> None:
        self._say, self._least, self._clock = say, least, clock
        self._last: tuple[str, float] | None = None
        self._pause = MINUTE

    def tell(self, text: str, about: str | None = None) -> None:
        """Print ``text`` if a line is due, at once if ``about``, else the text, has changed."""
        now, about = self._clock(), text if about is None else about
        if self._last is not None:
            before, said = self._last
            if now - said < (self._least if about != before else self._pause):
                return
            self._pause = MINUTE if about != before else min(2 * self._pause, HOUR)
        self._last = about, now
        self._say(text)


class Pace:
    """The speed of a task since it was first measured; work done before does not count."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._first: tuple[float, int] | None = None

    def left(self, done: int, total: int) -> float | None:
        """Return the remaining seconds at the speed so far, None if unknown."""
        now = self._clock()
        if self._first is None:
            self._first = now, done
        began, before = self._first
        if done <= before or now <= began:
            return None
        return (total - done) * (now - began) / (done - before)


def left_in_words(seconds: float | None) -> str:
    """Return a remaining time in a few words, "" if it is not known.

    >>> left_in_words(7.2), left_in_words(95), left_in_words(7300), left_in_words(None)
    ('about 8 s left', 'about 2 min left', 'about 2.1 h left', '')
    """
    if seconds is None:
        return ""
    if seconds < 90:
        return f"about {math.ceil(seconds)} s left"
    if seconds < 90 * 60:
        return f"about {math.ceil(seconds / 60)} min left"
    return f"about {math.ceil(seconds / 360) / 10:g} h left"
