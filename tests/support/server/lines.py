"""A server's screen that keeps its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Lines:
    """The lines of the server's screen."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str, level: str = "info") -> None:
        self.said.append(line)

    @contextmanager
    def bar(self, _: str, **__: bool) -> Iterator[Callable[[int, int], None]]:
        yield lambda *_: None

    @contextmanager
    def waiting(self, _: float) -> Iterator[Callable[[str], None]]:
        yield self.say
