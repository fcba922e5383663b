"""A folder watched: each envelope that arrives is answered once, for those who move files by a robot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pate.envelopes.file import SUFFIX, opened
from pate.errors import DataError, PateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from party.envelopes.answering import Answers


class Watch:
    """Answers what arrives in a folder.

    A file that cannot be answered is named once and left where it is; it is tried again when it has
    changed, since a robot may still have been writing it.
    """

    def __init__(
        self,
        answers: Answers,
        inbox: Path,
        outbox: Path,
        say: Callable[[str], None],
    ) -> None:
        for folder in (inbox, outbox):
            if not folder.is_dir():
                raise DataError(f"there is no folder at {folder}")
        self._answers = answers
        self._inbox = inbox
        self._outbox = outbox
        self._say = say
        #: State of a file when it was last looked at, by its name.
        self._seen: dict[str, tuple[int, int]] = {}

    def look(self) -> list[PateError]:
        """Answer what is new, and return the errors of what could not be answered."""
        errors: list[PateError] = []
        for path in sorted(self._inbox.glob(f"*{SUFFIX}")):
            try:
                facts = path.lstat()
            except FileNotFoundError:
                continue
            state = (facts.st_size, facts.st_mtime_ns)
            if self._seen.get(path.name) == state:
                continue
            self._seen[path.name] = state
            try:
                self._one(path)
            except PateError as error:
                errors.append(error)
                self._say(f"{path.name} is not answered: {error}")
        return errors

    def once(self) -> list[PateError]:
        """Look until nothing new has arrived meanwhile."""
        errors: list[PateError] = []
        while True:
            before = dict(self._seen)
            errors += self.look()
            if self._seen == before:
                return errors

    def _one(self, path: Path) -> None:
        with opened(path) as envelope:
            if self._answers.sent(envelope.digest):
                return
        done = self._answers.answer(path, self._outbox)
        self._say(f"{path.name} is answered: {done.path}, SHA-256 {done.digest.hex()}")

    def run(self, every: float, pause: Callable[[float], None] = time.sleep) -> None:
        """Look until the process is stopped.

        ``every``: seconds between two looks.
        """
        while True:
            self.look()
            pause(every)
