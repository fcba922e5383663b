"""``pate simulate --engine ray``: the parties in the worker processes of Flower's own engine."""

from __future__ import annotations

import importlib.util
import re
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from aggregator_server.results.report import verify
from simulation.programs import Program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPTIONS = ("--engine", "ray", "--parties", "6", "--teachers", "5", "--epsilon", "100")
#: Ray needs five seconds to start and three to stop on two idle cores.
DEADLINE_S = 400.0
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="Ray is not installed: pip install 'federated-pate[sim]'",
)


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Program]:
    command = [sys.executable, "-m", "simulation", "simulate", *OPTIONS, "--no-student", "--json"]
    program = Program(tmp_path, "simulate", [*command, "--out", str(tmp_path / "out")])
    yield program
    program.sweep()


def strangers(program: Program) -> list[str]:
    """The lines on the screen that are not of the campaign."""
    return [line for line in program.lines if not re.match(r"\d\d:\d\d:\d\d pate: ", line)]


@pytest.mark.slow
@needs_ray
def test_parties_in_worker_processes_vote_and_the_ledger_holds(
    simulation: Program, tmp_path: Path
) -> None:
    simulation.says("votes from parties: ")
    assert simulation.family(), "the engine's processes are children of the command"
    simulation.ends(0, deadline_s=DEADLINE_S)
    simulation.leaves_nobody()
    report = simulation.result()
    assert (report["parties"], report["teachers"]) == (6, 30)
    ledger = verify(tmp_path / "out" / "campaign", None)
    assert ledger["phase"] == "finished"
    assert ledger["labels_released"] == report["labels_answered"]
    accuracy = report["label_accuracy"]
    assert isinstance(accuracy, float)
    assert accuracy > 0.7  # of the local engine with these options: 0.95; by chance: 0.1
    # Flower and Ray have their say in a file; on the screen speaks the campaign.
    assert "run_simulation" in (tmp_path / "out" / "ray.log").read_text()
    assert strangers(simulation) == []


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_simulation_takes_ray_with_it(
    number: signal.Signals, simulation: Program
) -> None:
    simulation.says("waiting for parties")
    simulation.send(number)
    simulation.ends(130, deadline_s=DEADLINE_S)
    assert strangers(simulation) == ["pate: stopped"]
    simulation.leaves_nobody()


@pytest.mark.slow
@needs_ray
def test_what_an_actor_reads_is_there_until_it_has_ended(tmp_path: Path) -> None:
    """One is at work when the engine has to stop, for longer than anybody would wait."""
    code = (
        "import os, sys, threading; from pathlib import Path\n"
        "import simulation.ray_engine as ray_engine\n"
        "place = Path(sys.argv[1]); public = place / 'public.npz'; os.mkfifo(public)\n"
        "writers, hurried, real = [], [], threading.Thread.join\n"
        "def join(thread, timeout=None):\n"
        "    if getattr(thread, '_target', None) is ray_engine._run:\n"
        "        if timeout is not None: return\n"  # a time limit is over at once
        "        if not hurried: hurried.append(thread); raise KeyboardInterrupt\n"
        "        os.close(writers.pop())\n"  # only now it gets an end of file, which is no public set
        "    real(thread, timeout)\n"
        "threading.Thread.join = join\n"
        "with ray_engine.ray_wire(place, parties=1, teachers=1, log=place / 'ray.log') as wire:\n"
        "    while not (nodes := wire.nodes()): pass\n"
        "    wire.send(next(iter(nodes)), b'')\n"
        "    while not writers:\n"  # until the actor reads
        "        try: writers.append(os.open(public, os.O_WRONLY | os.O_NONBLOCK))\n"
        "        except OSError: threading.Event().wait(0.05)\n"
        "public.unlink()\n"
        "for writer in writers: os.close(writer)\n"
        "sys.exit('the engine has ended')\n"
    )
    program = Program(tmp_path, "engine", [sys.executable, "-c", code, str(tmp_path)])
    try:
        program.ends(1, deadline_s=DEADLINE_S)
        program.leaves_nobody()
    finally:
        program.sweep()
    assert program.lines == ["the engine has ended"]
    assert "File is not a zip file" in (tmp_path / "ray.log").read_text()


@pytest.mark.slow
@needs_ray
def test_a_party_that_fails_ends_the_simulation_with_one_line(tmp_path: Path) -> None:
    """No home, no party: what a worker process raises must not be waited out."""
    code = (
        "import sys; from pathlib import Path; from simulation.ray_engine import ray_wire\n"
        "from pate.errors import ProcessError\n"
        "place = Path(sys.argv[1])\n"
        "with ray_wire(place, parties=1, teachers=1, log=place / 'ray.log') as wire:\n"
        "    while not (nodes := wire.nodes()): pass\n"
        "    wire.send(next(iter(nodes)), b'')\n"
        "    try:\n"
        "        while not wire.receive(): pass\n"
        "    except ProcessError as error:\n"
        "        sys.exit(str(error))\n"
    )
    program = Program(tmp_path, "engine", [sys.executable, "-c", code, str(tmp_path)])
    try:
        program.ends(1, deadline_s=DEADLINE_S)
    finally:
        program.sweep()
    assert program.lines == [f"a simulated party failed; {tmp_path / 'ray.log'} says why"]
    assert "public.npz" in (tmp_path / "ray.log").read_text()


def test_without_ray_the_error_says_what_to_install(tmp_path: Path) -> None:
    # None is how Python itself marks a module that cannot be imported.
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from simulation.cli import main; sys.argv[0] = 'pate'; main()"
    )
    program = Program(
        tmp_path,
        "pate",
        [sys.executable, "-c", code, "simulate", "--engine", "ray", "--out", str(tmp_path / "out")],
    )
    program.ends(2)
    assert len(program.lines) == 1
    assert "pip install 'federated-pate[sim]'" in program.lines[0]
    assert not (tmp_path / "out").exists()
