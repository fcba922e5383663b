"""Simulated parties in separate processes: many per process, bytes in and bytes out.

So they use all cores, and memory and CPU time of the server and of the parties can be measured
separately. A process is ``python -m MODULE ARGUMENT ... FIRST STEP COUNT``; it ends its ``main`` with
:func:`serve` for the parties FIRST, FIRST + STEP, ... below COUNT. Frames travel through its
standard input and output, a header and a body, and nothing in them is code. Flower is not used: neither
:class:`~aggregator_server.exchange.carrier.Carrier` nor a voter depends on it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import resource
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

from pate.errors import ProcessError, ProtocolError
from pate.runtime.child import python, python_environment
from protos.bounds import MAX_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aggregator_server.exchange.carrier import Arrival

_log = logging.getLogger(__name__)
#: Number of the party, number of the message, whether it failed, bytes of the body.
_HEADER: Final = struct.Struct(">IQ?I")
#: Most unread answers of one process; with more, the process blocks.
_MOST_WAITING: Final = 16
#: Bytes buffered for one process; further sends block.
_MOST_BYTES: Final = 4 * 2**20
_A_MOMENT_S: Final = 0.02
_STOP_S: Final = 10.0


def default_processes(parties: int) -> int:
    """Return the default number of processes for the parties: one per core."""
    return max(1, min(parties, len(os.sched_getaffinity(0))))


def memory_peak() -> int:
    """Return the peak resident memory of this process, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    # For systems without /proc; elsewhere it would include the memory before exec.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- in the process of the parties -------------------------------------------------------


def serve(open_party: Callable[[int], Callable[[bytes], bytes]], numbers: range) -> None:
    """Answer for some parties until the other side closes the standard input.

    Args:
        open_party: returns a party's handler of messages; called once per party, at its first message.
        numbers: of this process's parties.

    Raises:
        ProtocolError: for a frame for another party.
    """
    open_: dict[int, Callable[[bytes], bytes]] = {}
    with contextlib.suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # prints must not mix with the frames
        for number, message, _, body in _frames(sys.stdin.buffer):
            if number not in numbers:
                raise ProtocolError(f"a message for party {number}, which is not in this process")
            try:
                if number not in open_:
                    open_[number] = open_party(number)
                reply, failed = open_[number](body), False
            except Exception as error:  # noqa: BLE001 - logged; the other side ends all processes
                _log.exception("simulated party %d could not answer", number)
                reply, failed = type(error).__name__.encode(), True
            answers.write(_HEADER.pack(number, message, failed, len(reply)))
            answers.write(reply)
            answers.flush()


def arguments_of(argv: Sequence[str]) -> tuple[list[str], range]:
    """Return a process's own arguments, and the numbers of its parties."""
    *own, first, step, count = argv
    return own, range(int(first), int(count), int(step))


def _frames(stream: IO[bytes]) -> Iterator[tuple[int, int, bool, bytes]]:
    while len(head := stream.read(_HEADER.size)) == _HEADER.size:
        number, message, failed, size = _HEADER.unpack(head)
        if size > MAX_MESSAGE:
            raise ProtocolError(f"a frame of {size} bytes")
        body = stream.read(size)
        if len(body) < size:
            return
        yield number, message, failed, body


# --- in the process of the server --------------------------------------------------------


class PartyProcesses:
    """The processes, and the carrier to the parties in them: the node of a party is its number.

    Args:
        module: to run; see the module's docstring.
        arguments: before the numbers.
        parties: total number.
        processes: number of processes that they are distributed over.
        log: a file for their output.
    """

    store: Final = None

    def __init__(
        self, module: str, arguments: Sequence[str], *, parties: int, processes: int, log: Path
    ) -> None:
        self._nodes = frozenset(range(parties))
        self._messages = 0
        self._under_way: dict[int, bytes] = {}  # digests of requests, by the number of the message
        self._lanes: list[_Lane] = []
        try:
            for first in range(min(processes, parties)):
                numbers = [str(each) for each in (first, min(processes, parties), parties)]
                command = python(module, *arguments, *numbers)
                self._lanes.append(_Lane(command, log))
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
        """Return the parties: all are present as long as their processes run.

        Raises:
            ProcessError: if one has ended.
        """
        for lane in self._lanes:
            lane.require_running()
        return self._nodes

    def returning(self) -> tuple[str, ...]:
        """Return nobody: all are here."""
        return ()

    def pause(self, seconds: float) -> None:
        """Wait that long."""
        time.sleep(seconds)

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        """Send a request to a party; see :class:`~aggregator_server.exchange.carrier.Carrier`."""
        self._messages += 1
        lane = self._lanes[node % len(self._lanes)]
        while not lane.has_room(_A_MOMENT_S):
            # This process, and any other, may itself be blocked on a full pipe.
            for each in self._lanes:
                each.read_early()
            self.nodes()
        self._under_way[self._messages] = digest
        lane.send(node, self._messages, body)

    def receive(self) -> list[Arrival]:
        """Return some of the arrived answers.

        Raises:
            ProcessError: if a process has ended, or a party's code raised: it would do so again.
        """
        # Not at the top: it imports Flower, which the parties' processes do not need.
        from aggregator_server.exchange.carrier import RAISED, Arrival

        arrivals = []
        for lane in self._lanes:
            for node, message, failed, body in lane.received():
                if failed:
                    raise ProcessError(
                        f"simulated party {node} failed ({RAISED} {body.decode()}); "
                        f"{lane.log} says why"
                    )
                arrivals.append(Arrival(node, self._under_way.pop(message), body, None))
        return arrivals

    def close(self) -> None:
        """End the processes."""
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.wait()


class _Lane:
    """One process, a thread that writes to it, and one that reads from it."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**python_environment(), "OMP_NUM_THREADS": "1"},
            )
        self._out: queue.SimpleQueue[tuple[bytes, bytes] | None] = queue.SimpleQueue()
        self._unwritten = 0
        self._room = threading.Condition()
        #: Answers that were read while waiting for room.
        self._early: deque[tuple[int, int, bool, bytes]] = deque()
        self._in: queue.Queue[tuple[int, int, bool, bytes]] = queue.Queue(_MOST_WAITING)
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=each, daemon=True, name=f"{self.process.pid}")
            for each in (self._write, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, node: int, message: int, body: bytes) -> None:
        with self._room:
            self._unwritten += len(body)
        self._out.put((_HEADER.pack(node, message, False, len(body)), body))

    def has_room(self, timeout: float) -> bool:
        """Return whether more may be written, after waiting at most this many seconds."""
        with self._room:
            return self._room.wait_for(lambda: self._unwritten <= _MOST_BYTES, timeout)

    def read_early(self) -> None:
        """Make room by reading answers ahead."""
        self._early.extend(self._arrived())

    def received(self) -> Iterator[tuple[int, int, bool, bytes]]:
        while self._early:
            yield self._early.popleft()
        yield from self._arrived()

    def _arrived(self) -> Iterator[tuple[int, int, bool, bytes]]:
        with contextlib.suppress(queue.Empty):
            for _ in range(_MOST_WAITING):
                yield self._in.get_nowait()

    def require_running(self) -> None:
        if self.process.poll() is not None and not self._closing.is_set():
            raise ProcessError(
                f"a process of simulated parties ended with exit code {self.process.returncode}; "
                f"{self.log} says why"
            )

    def stop(self) -> None:
        self._closing.set()
        self._out.put(None)

    def wait(self) -> None:
        try:
            self._threads[0].join(_STOP_S)
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for _ in self.received():  # a reader that waits for room now sees the end
            pass
        self._threads[1].join(_STOP_S)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _write(self) -> None:
        stream = self.process.stdin
        assert stream is not None  # noqa: S101 - asked for with PIPE
        with contextlib.suppress(BrokenPipeError, ValueError):
            while (frame := self._out.get()) is not None and not self._closing.is_set():
                stream.write(frame[0])
                stream.write(frame[1])
                stream.flush()
                with self._room:
                    self._unwritten -= len(frame[1])
                    self._room.notify_all()
            stream.close()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None  # noqa: S101 - asked for with PIPE
        with contextlib.suppress(ValueError):
            for frame in _frames(stream):
                while not self._closing.is_set():
                    try:
                        self._in.put(frame, timeout=0.2)
                        break
                    except queue.Full:
                        continue
