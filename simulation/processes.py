"""Simulated parties in other processes: many per process, bytes in and bytes out.

So they use all cores, and the server's memory and processor time can be measured by themselves. A process is
``python -m MODULE ARGUMENT ... FIRST STEP COUNT``; it ends its ``main`` with :func:`serve` for the parties
FIRST, FIRST + STEP, ... below COUNT. One request at a time goes through its standard input, and the answer
comes back through its standard output: a header and a body, of which nothing is code. Flower is not used:
neither :class:`~aggregator_server.exchange.wire.Wire` nor a voter depends on it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self, TypeAlias

from pate.errors import ProcessError, ProtocolError
from pate.runtime.child import python, python_environment
from protos.bounds import MAX_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aggregator_server.exchange.wire import Arrival

    #: Number of a party, whether its code raised, and a message or the name of the error.
    _Frame: TypeAlias = tuple[int, bool, bytes]

_log = logging.getLogger(__name__)
#: Number of the party, whether it failed, bytes of the body.
_HEADER: Final = struct.Struct(">I?I")
#: Most requests that wait for one process; with more, the sender waits.
_MOST_WAITING: Final = 16
_A_MOMENT_S: Final = 0.02
_STOP_S: Final = 10.0


# --- in the process of the parties -------------------------------------------------------


def serve(open_party: Callable[[int], Callable[[bytes], bytes]], numbers: range) -> None:
    """Answer for some parties until the other side closes the standard input.

    ``open_party``: returns a party's handler of messages; called once per party, at its first
    message.
    """
    open_: dict[int, Callable[[bytes], bytes]] = {}
    with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # prints must not mix with the frames
        while (frame := _read_frame(sys.stdin.buffer)) is not None:
            number, _, body = frame
            if number not in numbers:
                raise ProtocolError(f"a message for party {number}, which is not in this process")
            try:
                if number not in open_:
                    open_[number] = open_party(number)
                reply, failed = open_[number](body), False
            except Exception as error:  # noqa: BLE001 - logged; the other side ends all processes
                _log.exception("simulated party %d could not answer", number)
                reply, failed = type(error).__name__.encode(), True
            _write_frame(answers, number, failed, reply)


def arguments_of(argv: Sequence[str]) -> tuple[list[str], range]:
    """Return a process's own arguments, and the numbers of its parties."""
    *own, first, step, count = argv
    return own, range(int(first), int(count), int(step))


def _read_frame(stream: IO[bytes]) -> _Frame | None:
    if len(head := stream.read(_HEADER.size)) < _HEADER.size:
        return None
    number, failed, size = _HEADER.unpack(head)
    if size > MAX_MESSAGE:
        raise ProtocolError(f"a frame of {size} bytes")
    body = stream.read(size)
    return None if len(body) < size else (number, failed, body)


def _write_frame(stream: IO[bytes], number: int, failed: bool, body: bytes) -> None:
    stream.write(_HEADER.pack(number, failed, len(body)))
    stream.write(body)
    stream.flush()


# --- in the process of the server --------------------------------------------------------


def default_processes(parties: int) -> int:
    """Return the default number of processes for the parties: one per core."""
    return max(1, min(parties, len(os.sched_getaffinity(0))))


def memory_peak() -> int:
    """Return the peak resident memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


class PartyProcesses:
    """The processes, and the wire to the parties in them: the node of a party is its number."""

    def __init__(
        self,
        module: str,  # to run, with these arguments before the numbers; see this module's docstring
        arguments: Sequence[str],
        *,
        parties: int,
        processes: int,  # that the parties are distributed over
        log: Path,  # a file for their output
    ) -> None:
        self._nodes = frozenset(range(parties))
        self._log = log
        self._messages = 0
        self._arrived: queue.SimpleQueue[tuple[str, _Frame]] = queue.SimpleQueue()
        self._lanes: list[_Lane] = []
        try:
            for first in range(min(processes, parties)):
                numbers = [str(each) for each in (first, min(processes, parties), parties)]
                command = python(module, *arguments, *numbers)
                self._lanes.append(_Lane(command, log, self._arrived))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [lane.process.pid for lane in self._lanes]

    def nodes(self) -> frozenset[int]:
        """Return the parties: all are present as long as their processes run."""
        for lane in self._lanes:
            if (code := lane.process.poll()) is not None:
                raise ProcessError(
                    f"a process of simulated parties ended with exit code {code}; {self._log} says why"
                )
        return self._nodes

    def send(self, node: int, body: bytes) -> str:
        """Send a message to a party; see :class:`~aggregator_server.exchange.wire.Wire`."""
        self._messages += 1
        handle = str(self._messages)
        while not self._lanes[node % len(self._lanes)].takes(handle, node, body):
            self.nodes()
        return handle

    def receive(self) -> list[Arrival]:
        """Return the arrived answers. A party's code that raised is an error: it would do so again."""
        # Not at the top: it imports Flower, which the parties' processes do not need.
        from aggregator_server.exchange.wire import RAISED, Arrival

        arrivals = []
        with contextlib.suppress(queue.Empty):
            while True:
                handle, (node, failed, body) = self._arrived.get_nowait()
                if failed:
                    raise ProcessError(
                        f"simulated party {node} failed ({RAISED} {body.decode()}); "
                        f"{self._log} says why"
                    )
                arrivals.append(Arrival(handle, node, body, None))
        return arrivals

    def close(self) -> None:
        """End the processes."""
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.wait()


class _Lane:
    """One process, and the thread that exchanges frames with it."""

    def __init__(
        self, command: Sequence[str], log: Path, arrived: queue.SimpleQueue[tuple[str, _Frame]]
    ) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**python_environment(), "OMP_NUM_THREADS": "1"},
            )
        self._asked: queue.Queue[tuple[str, int, bytes] | None] = queue.Queue(_MOST_WAITING)
        self._arrived = arrived
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._exchange, daemon=True, name=f"{self.process.pid}"
        )
        self._thread.start()

    def takes(self, handle: str, node: int, body: bytes) -> bool:
        """Queue a message; return False if there is no room for a moment."""
        try:
            self._asked.put((handle, node, body), timeout=_A_MOMENT_S)
        except queue.Full:
            return False
        return True

    def stop(self) -> None:
        self._closing.set()
        with contextlib.suppress(queue.Full):  # else the thread sees that the end is near
            self._asked.put_nowait(None)

    def wait(self) -> None:
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._thread.join(_STOP_S)

    def _exchange(self) -> None:
        asks, answers = self.process.stdin, self.process.stdout
        assert asks is not None and answers is not None  # noqa: S101, PT018 - asked for with PIPE
        with contextlib.suppress(BrokenPipeError), asks, answers:
            while (asked := self._asked.get()) is not None and not self._closing.is_set():
                handle, node, body = asked
                _write_frame(asks, node, False, body)
                if (frame := _read_frame(answers)) is None:
                    return  # it has ended, which `nodes` reports
                self._arrived.put((handle, frame))
