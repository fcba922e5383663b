"""Where the time of a campaign goes: the real commands, by phase, from what they log.

A server and enrolled parties run on this machine, over TLS on loopback, with trained teachers. All
phases but the labelling are processes that start, and messages that wait for one another; so beside
the seconds stands the processor time, which a busy machine inflates less. ``--at`` runs the commands
of another checkout, for a comparison in the same hour::

    python -m benchmarks.waiting [--parties 4] [--runs 3] [--at CHECKOUT]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Final

_POLICY: Final = """campaigns = "enrolled"
largest_epsilon = "none"
aggregation = ["masked"]
least_roster = 3
least_survivors = 2
least_colluders = 0
"""
#: Each phase ends with the first line of the server that begins so.
_PHASES: Final = (
    ("server imports and opens", "campaign "),
    ("SuperLink starts", "parties: "),
    ("parties join", "the roster is complete"),
    ("keys, with the public set", "key shares from parties: 0 "),
    ("four more steps", "votes on "),
    ("labelling", "round 1: "),
    ("farewell", "the campaign is finished"),
)
_LAST: Final = ("server closes", "parties leave after it")
_DEADLINE_S: Final = 600.0


@dataclass(frozen=True)
class Run:
    """One campaign.

    Attributes:
        seconds: of each phase.
        total: from the first process to the last one's end, in seconds.
        server: processor seconds of the server and its SuperLink.
        party: the same of a party and its SuperNode, on average.
        load: processes that wanted a processor, on average over the last minute, at the end.
    """

    seconds: dict[str, float]
    total: float
    server: float
    party: float
    load: float


class Stage:
    """An enrolled server and its parties, with trained teachers."""

    def __init__(self, folder: Path, at: Path, parties: int) -> None:
        self.folder, self.names = folder, [f"hospital_{chr(97 + i)}" for i in range(parties)]
        # Bytecode is stored, as an installation stores it: else each process compiles all of ours.
        environment = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith("PATE_") and k != "PYTHONDONTWRITEBYTECODE"
        }
        self.environment = {
            **environment, "PYTHONPATH": str(at), "OMP_NUM_THREADS": "1", "PATE_LOG": "json",
        }  # fmt: skip
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.home = folder / "server"
        self._does("simulation", "sample", folder / "sample", "--parties", parties)
        self._does("aggregator_server", "init", "--port", self.port, "--home", self.home)
        for name in self.names:
            bundle, answer, home = folder / f"{name}.json", folder / f"{name}.answer", folder / name
            self._does("aggregator_server", "enroll", name, "--out", bundle, "--home", self.home)
            self._does("party", "enroll", bundle, "--answer", answer, "--home", home)
            self._does("aggregator_server", "admit", answer, "--home", self.home)
            (home / "policy.toml").write_text(_POLICY)
        for name in self.names:  # they train, and give up a server that is not there
            self.starts(name, *self._party(name), "--max-wait", "0.1").wait()

    def play(self, number: int) -> Run:
        """Run one campaign."""
        began = time.time()
        server = self.starts(
            f"server{number}", "aggregator_server", "--public", self.folder / "sample/public.npz",
            "--parties", ",".join(self.names), "--campaign", f"c{number}", "--epsilon", "1000",
            "--delta", "1e-4", "--port", self.port, "--student-port", "0", "--no-page", "--linger",
            "0", "--aggregator", "gnmax", "--sigma2", "2", "--noise", "distributed", "--colluders",
            "0", "--min-parties", len(self.names) - 1, "--patience", "300", "--home", self.home,
        )  # fmt: skip
        parties = [self.starts(f"{name}-{number}", *self._party(name)) for name in self.names]
        # The server ends first or last, so each is waited for in turn, and its own end is noted.
        ends, cpu = self._wait([server, *parties])
        told = self.lines(f"server{number}")
        at, seconds = began, dict[str, float]()
        for phase, words in _PHASES:
            now = next(when for when, text in told if text.startswith(words) and when >= at)
            seconds[phase], at = now - at, now
        seconds[_LAST[0]] = ends[0] - at
        seconds[_LAST[1]] = max(0.0, max(ends[1:]) - ends[0])
        load = os.getloadavg()[0]
        return Run(seconds, max(ends) - began, cpu[0], sum(cpu[1:]) / len(parties), load)

    def _party(self, name: str) -> tuple[str | Path, ...]:
        return (
            "party", "start", "--data", self.folder / "sample" / name, "--teachers", "3",
            "--model", "linear", "--home", self.folder / name,
        )  # fmt: skip

    def starts(self, name: str, module: str | Path, *arguments: object) -> subprocess.Popen[bytes]:
        """Start one of the commands; what it says goes into a file of that name."""
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", str(module), *map(str, arguments)], cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment,
            )  # fmt: skip

    def lines(self, name: str) -> list[tuple[float, str]]:
        """Return what a command said, and when."""
        said = [json.loads(line) for line in (self.folder / f"{name}.log").read_text().splitlines()]
        return [(datetime.fromisoformat(line["time"]).timestamp(), line["text"]) for line in said]

    def _wait(self, programs: list[subprocess.Popen[bytes]]) -> tuple[list[float], list[float]]:
        """Wait for all; return when each ended, and its processor seconds with its children's."""
        ends, cpu = dict[int, float](), dict[int, float]()
        deadline = time.monotonic() + _DEADLINE_S
        while len(ends) < len(programs):
            if time.monotonic() > deadline:
                for program in programs:
                    program.kill()
                raise SystemExit(f"the campaign did not end; its logs are in {self.folder}")
            for at, program in enumerate(programs):
                if at not in ends:
                    pid, status, used = os.wait4(program.pid, os.WNOHANG)
                    if pid:
                        program.returncode = os.waitstatus_to_exitcode(status)
                        ends[at], cpu[at] = time.time(), used.ru_utime + used.ru_stime
            time.sleep(0.01)
        failed = [program.args for program in programs if program.returncode]
        if failed:
            raise SystemExit(f"these failed, see {self.folder}: {failed}")
        return [ends[i] for i in range(len(ends))], [cpu[i] for i in range(len(cpu))]

    def _does(self, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        subprocess.run(
            command, cwd=self.folder, env=self.environment, check=True, capture_output=True
        )


def main() -> None:
    """Run the campaigns, and print the seconds of each phase."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--parties", type=int, default=4)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--at", type=Path, default=Path(__file__).resolve().parents[1])
    options.add_argument("--keep", type=Path, help="keep homes and logs in this new folder")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="waiting-") as scratch:
        folder = Path(scratch) if asked.keep is None else asked.keep
        folder.mkdir(parents=True, exist_ok=True)
        stage = Stage(folder, asked.at.resolve(), asked.parties)
        runs = [stage.play(number) for number in range(asked.runs)]
    say = sys.stdout.write
    say(f"{asked.parties} parties x 500 queries, masked, noise by the parties; seconds\n")
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
