"""Simulated parties in other processes, many per process, or in threads: bytes in and bytes out.

In processes they use all cores, and the server's memory and processor time can be measured by themselves.
A process answers one request at a time. Flower is not used: neither
:class:`~aggregator_server.exchange.carrier.Carrier` nor a voter depends on it.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from aggregator_server.exchange.carrier import RAISED, Arrival, Carrier
from pate.errors import ProcessError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

#: Answers a message of one party.
Handler: TypeAlias = Callable[[bytes], bytes]

_log = logging.getLogger(__name__)
#: Most requests that wait for one process; with more, the sender waits.
_MOST_WAITING: Final = 16
_A_MOMENT_S: Final = 0.02
_STOP_S: Final = 10.0
#: Bytes of a party's number, before a message to it.
_NUMBER: Final = 4
#: Of each process: a core, and no module from the directory that it starts in.
_SURROUNDINGS: Final = {"OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}


def default_processes(parties: int) -> int:
    """Return the default number of processes for the parties: one per core."""
    return max(1, min(parties, len(os.sched_getaffinity(0))))


def memory_peak() -> int:
    """Return the peak resident memory of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


class PartyProcesses(Carrier):
    """The processes, and the carrier to the parties in them: the node of a party is its number."""

    def __init__(
        self,
        # returns what opens these parties in their process, each at its first message
        opener: Callable[[Sequence[int]], Callable[[int], Handler]],
        *,
        parties: int,
        processes: int,  # that the parties are distributed over
        log: Path,  # a file for their output
    ) -> None:
        self._nodes = frozenset(range(parties))
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)  # each process opens it in its own time
        self._arrived: queue.SimpleQueue[tuple[bytes, int, bytes]] = queue.SimpleQueue()
        self._lanes: list[_Lane] = []
        try:
            for first in range(min(processes, parties)):
                numbers = range(first, parties, min(processes, parties))
                self._lanes.append(_Lane(opener(numbers), log, self._arrived))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def nodes(self) -> frozenset[int]:
        """Return the parties: all are present as long as their processes run."""
        for lane in self._lanes:
            if (code := lane.process.exitcode) is not None:
                raise ProcessError(
                    f"a process of simulated parties ended with exit code {code}; {self._log} says why"
                )
        return self._nodes

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        """Send a request to a party; see :class:`~aggregator_server.exchange.carrier.Carrier`."""
        while not self._lanes[node % len(self._lanes)].takes(digest, node, body):
            self.nodes()

    def receive(self) -> list[Arrival]:
        """Return the arrived answers. A party's code that raised is an error: it would do so again."""
        arrivals = []
        with contextlib.suppress(queue.Empty):
            while True:
                digest, node, answer = self._arrived.get_nowait()
                if answer[:1] == _FAILED:
                    raise ProcessError(
                        f"simulated party {node} failed ({RAISED} {answer[1:].decode()}); "
                        f"{self._log} says why"
                    )
                arrivals.append(Arrival(node, digest, answer[1:], None))
        return arrivals

    def close(self) -> None:
        """End the processes."""
        for lane in self._lanes:
            lane.stop()
        for lane in self._lanes:
            lane.wait()


class PartyThreads(Carrier):
    """Parties in threads of this process, and the carrier to them: the node of a party is its number."""

    def __init__(self, handlers: Sequence[Handler], workers: int = 4) -> None:
        self._handlers = handlers
        self._busy = [threading.Lock() for _ in handlers]  # a party answers one message at a time
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="party")
        self._asked: deque[tuple[int, bytes, Future[bytes]]] = deque()

    def nodes(self) -> frozenset[int]:
        """Return the parties: all are present."""
        return frozenset(range(len(self._handlers)))

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        """Send a request to a party; see :class:`~aggregator_server.exchange.carrier.Carrier`."""
        self._asked.append((node, digest, self._pool.submit(self._answer, node, body)))

    def _answer(self, node: int, body: bytes) -> bytes:
        with self._busy[node]:
            return self._handlers[node](body)

    def receive(self) -> list[Arrival]:
        """Return the arrived answers. What a party's code raised is raised here: it would do so again."""
        arrivals = []
        for _ in range(len(self._asked)):
            node, digest, answer = asked = self._asked.popleft()
            if answer.done():
                arrivals.append(Arrival(node, digest, answer.result(), None))
            else:
                self._asked.append(asked)
        return arrivals

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)


#: The first byte of an answer: the rest is a reply, or the name of the error that a party's code raised.
_REPLY, _FAILED = b"\0", b"\1"


def _serve(link: Connection, open_party: Callable[[int], Handler], log: Path) -> None:
    """Answer for some parties, in their process, until the other side closes the link."""
    with log.open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    open_: dict[int, Handler] = {}
    with contextlib.suppress(EOFError, OSError):
        while True:
            asked = link.recv_bytes()
            number = int.from_bytes(asked[:_NUMBER])
            try:
                if number not in open_:
                    open_[number] = open_party(number)
                answer = _REPLY + open_[number](asked[_NUMBER:])
            except Exception as error:  # noqa: BLE001 - logged; the other side ends all processes
                _log.exception("simulated party %d could not answer", number)
                answer = _FAILED + type(error).__name__.encode()
            link.send_bytes(answer)


@contextlib.contextmanager
def _surroundings() -> Iterator[None]:
    """Have the processes' variables in the environment, from which a new process gets its own."""
    before = {name: os.environ.get(name) for name in _SURROUNDINGS}
    os.environ.update(_SURROUNDINGS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Lane:
    """One process, and the thread that asks it."""

    def __init__(
        self,
        open_party: Callable[[int], Handler],
        log: Path,
        arrived: queue.SimpleQueue[tuple[bytes, int, bytes]],
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._link, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, open_party, log), daemon=True)
        with theirs, _surroundings():
            self.process.start()
        self._asked: queue.Queue[tuple[bytes, int, bytes] | None] = queue.Queue(_MOST_WAITING)
        self._arrived = arrived
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._ask, daemon=True, name=f"party process {self.process.pid}"
        )
        self._thread.start()

    def takes(self, digest: bytes, node: int, body: bytes) -> bool:
        """Queue a message; return False if there is no room for a moment."""
        try:
            self._asked.put((digest, node, body), timeout=_A_MOMENT_S)
        except queue.Full:
            return False
        return True

    def stop(self) -> None:
        self._closing.set()
        with contextlib.suppress(queue.Full):  # then the thread looks at the event
            self._asked.put_nowait(None)

    def wait(self) -> None:
        self.process.join(_STOP_S)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self._thread.join(_STOP_S)

    def _ask(self) -> None:
        # The link ends with the process, which `nodes` reports.
        with self._link, contextlib.suppress(EOFError, OSError):
            while (asked := self._asked.get()) is not None and not self._closing.is_set():
                digest, node, body = asked
                self._link.send_bytes(node.to_bytes(_NUMBER) + body)
                self._arrived.put((digest, node, self._link.recv_bytes()))
