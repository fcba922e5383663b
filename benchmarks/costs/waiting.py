"""Wall-clock and CPU time of a campaign by phase, from the logs of the real commands.

A server and enrolled parties run on this machine, over TLS on loopback, with trained teachers. All phases but
the labelling consist of starting processes and waiting for messages, so CPU time is also reported: other load
affects it less. ``--at`` runs the commands of another checkout, for a comparison in the same hour; the
parties are enrolled by this one's::

    python -m benchmarks.costs.waiting [--parties 4] [--runs 3] [--at CHECKOUT]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Final, Self

from benchmarks.record import ROOT
from pate.errors import DataError
from pate.runtime.child import python
from simulation.datasets import digits_like, write_inputs
from simulation.programs import Program, Surroundings, until
from tests.support.world.commands import Commands
from tests.support.world.sites import Sites, lenient

_QUERIES: Final = 500
#: Each phase ends with the first line of the server with this beginning.
_PHASES: Final = (
    ("server imports and opens", "new campaign "),
    ("SuperLink starts", "waiting for parties: "),
    ("parties join", "the roster is complete"),
    ("keys, with the public set", "key shares from parties: "),
    ("four more steps", "votes on "),
    ("labelling", f"round 1: {_QUERIES} queries asked"),
    ("farewell", "the campaign is finished"),
)
_LAST: Final = ("server closes", "parties leave after it")
_POLL_S: Final = 0.01


@dataclass(frozen=True)
class Run:
    """One campaign.

    Attributes:
        seconds: of each phase.
        total: from the first process to the last one's end, in seconds.
        server: CPU seconds of the server and its SuperLink.
        party: the same of a party and its SuperNode, on average.
        load: load average of the last minute, at the end.
    """

    seconds: dict[str, float]
    total: float
    server: float
    party: float
    load: float


class Timed(Program):
    """A program with its end time, and CPU seconds including its children."""

    ended: float
    processor: float

    @property
    def code(self) -> int | None:
        if self._process.returncode is None:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self.ended, self.processor = time.time(), used.ru_utime + used.ru_stime
        return self._process.returncode

    def pause(self, seconds: float) -> None:
        time.sleep(min(seconds, _POLL_S))


@dataclass
class Stage(Commands):
    """An enrolled server and its parties, with trained teachers.

    Attributes:
        at: the checkout whose commands are run.
    """

    at: Path = field(kw_only=True)

    @classmethod
    def make(cls, folder: Path, at: Path, parties: int) -> Self:
        """Deal the data, enrol the parties and train their teachers."""
        sites = Sites(folder, tuple(f"hospital_{chr(97 + i)}" for i in range(parties))).deal()
        with cls(folder, sites, at=at) as stage:
            stage.enrol(lenient(3, 2))
            stage.train()
        return stage

    def _program(self, name: str, module: str, *arguments: object, failpoint: str | None) -> Timed:
        variables = {"PYTHONPATH": str(self.at), "PATE_LOG": "json"}
        # Bytecode is stored, as in an installation: otherwise each process would compile our modules.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        return Timed(
            self.folder, name, python(module, *arguments), failpoint=failpoint,
            around=Surroundings(variables, self.folder),
        )  # fmt: skip

    def play(self, number: int) -> Run:
        """Run one campaign."""
        public = write_inputs(self.folder / "public", digits_like(_QUERIES).inputs)
        began, names = time.time(), self.sites.names
        with self:
            server = self.run(
                "server", "aggregator_server", "--public", public,
                "--parties", ",".join(names), "--campaign", f"c{number}", "--epsilon", "1000",
                "--delta", "1e-4", "--student-port", "0", "--no-page", "--linger", "0",
                "--aggregator", "gnmax", "--sigma2", "2", "--noise", "distributed",
                "--colluders", "0", "--min-parties", len(names) - 1, "--patience", "300",
                "--home", self.home,
            )  # fmt: skip
            programs = [server, *(self.party(name) for name in names)]
            # The order of ends is unknown, and each is recorded, so all are polled in turn.
            until(lambda: None not in [each.code for each in programs], "all have ended")
        for each in programs:
            each.ends(0)
        timed = [each for each in programs if isinstance(each, Timed)]
        ends, cpu = [each.ended for each in timed], [each.processor for each in timed]
        seconds = phases([json.loads(line) for line in server.lines], began)
        at = began + sum(seconds.values())
        seconds[_LAST[0]] = ends[0] - at
        seconds[_LAST[1]] = max(0.0, max(ends[1:]) - ends[0])
        load = os.getloadavg()[0]
        return Run(seconds, max(ends) - began, cpu[0], sum(cpu[1:]) / len(names), load)


def phases(told: Iterable[Mapping[str, str]], began: float) -> dict[str, float]:
    """Return the seconds of each phase that the server's lines tell.

    Args:
        told: its lines in order: ``time`` (ISO 8601) and ``text``.
        began: when the first process began, in seconds since 1970.

    Raises:
        DataError: naming the phase whose end is not told.
    """
    lines = [(datetime.fromisoformat(line["time"]).timestamp(), line["text"]) for line in told]
    seconds: dict[str, float] = {}
    at = began
    for phase, words in _PHASES:
        now = next((when for when, text in lines if when >= at and text.startswith(words)), None)
        if now is None:
            raise DataError(f"no line of the server begins with {words!r}: the end of {phase!r}")
        seconds[phase], at = now - at, now
    return seconds


def main() -> None:
    """Run the campaigns, and print the seconds of each phase."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--parties", type=int, default=4)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--at", type=Path, default=ROOT)
    options.add_argument("--keep", type=Path, help="keep homes and logs in this new folder")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="waiting-") as scratch:
        folder = Path(scratch) if asked.keep is None else asked.keep
        folder.mkdir(parents=True, exist_ok=True)
        stage = Stage.make(folder.resolve(), asked.at.resolve(), asked.parties)
        runs = [stage.play(number) for number in range(asked.runs)]
    say = sys.stdout.write
    say(f"{asked.parties} parties x {_QUERIES} queries, masked, noise by the parties; seconds\n")
    say(f"{'':28}" + "".join(f"{f'run {i + 1}':>9}" for i in range(len(runs))) + f"{'median':>9}\n")
    rows = {phase: [run.seconds[phase] for run in runs] for phase in runs[0].seconds}
    rows["total"] = [run.total for run in runs]
    rows["CPU: server, SuperLink"] = [run.server for run in runs]
    rows["CPU: a party, SuperNode"] = [run.party for run in runs]
    rows["CPU: all"] = [run.server + run.party * asked.parties for run in runs]
    rows["load of the machine"] = [run.load for run in runs]
    for title, row in rows.items():
        say(f"{title:28}" + "".join(f"{value:9.1f}" for value in [*row, median(row)]) + "\n")


if __name__ == "__main__":
    main()
