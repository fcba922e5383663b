"""Programs that tests start, wait for, and kill at a failpoint."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pate.errors import ProcessError
from simulation import programs
from simulation.programs import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

#: Deadline for steps that take seconds on an idle machine.
DEADLINE_S: Final = 300.0
_POLL_S: Final = 0.05


@dataclass(frozen=True)
class Surroundings:
    """Environment of one start of a command."""

    # of the environment, in addition to those of this process
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None  # working directory; None: the current one
    umask: int = -1


def until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {deadline_s:.0f} s still not: {what}")
        time.sleep(_POLL_S)


class Program(programs.Program):
    """One running command, of which there may be several of a name."""

    def __init__(
        self,
        folder: Path,  # for its output, in files named after it
        name: str,
        command: Sequence[str],
        *,
        failpoint: str | None = None,  # at which it is killed; None: none
        around: Surroundings | None = None,
    ) -> None:
        around = around or Surroundings()
        at = {} if failpoint is None else {"PATE_FAILPOINT": failpoint}
        variables = {**at, **around.variables}
        super().__init__(folder, name, command, variables, cwd=around.folder, umask=around.umask)

    def _named(self, folder: Path, name: str) -> None:
        super()._named(folder, name)
        number = 0
        while self.log.exists():
            number += 1
            super()._named(folder, f"{name}.{number}")
        self.name = name

    def says(self, words: str, times: int = 1) -> None:
        """Wait until these words are in its output."""

        def said() -> bool:
            ended = self.code  # checked first: its output before the end is then in the file
            if self.text.count(words) >= times:
                return True
            if ended is not None:
                message = f"{self.name} ended ({ended}) without {words!r}:"
                raise ProcessError(message).followed_by(self.text)
            return False

        until(said, f"{self.name} says {words!r}; it said:\n{self.text}")

    def ends(self, *codes: int, deadline_s: float = DEADLINE_S) -> int:
        """Wait until it ends by itself, and return its exit code (negative for a signal)."""
        deadline = time.monotonic() + deadline_s
        while (found := self.code) is None:
            self.family()  # its children must be known before it ends
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.name} still runs:").followed_by(self.text)
            self.pause(2 * _POLL_S)
        if found not in codes:
            message = f"{self.name} ended with {found}, not {codes}:"
            raise ProcessError(message).followed_by(self.text)
        return found

    def leaves_nobody(self) -> None:
        """Wait until none of its children runs."""
        family = self.family()
        until(lambda: not any(map(is_alive, family)), f"{self.name}'s children have ended")
