"""The physical bound: time to send the same number of bytes over the loopback interface."""

from __future__ import annotations

import socket
import threading
import time
from typing import Final

_CHUNK: Final = 1 << 20
_RUNS: Final = 7


def push_seconds(size: int) -> float:
    """Return the least of seven times, in seconds, to send ``size`` bytes over one TCP connection."""
    return min(_once(size) for _ in range(_RUNS))


def _once(size: int) -> float:
    with socket.create_server(("127.0.0.1", 0)) as client:
        sender = threading.Thread(target=_send, args=(client.getsockname()[1], size), daemon=True)
        sender.start()
        taken, _ = client.accept()
        room = bytearray(_CHUNK)
        with taken:
            began, left = time.perf_counter(), size
            while left > 0 and (got := taken.recv_into(room)):
                left -= got
            spent = time.perf_counter() - began
        sender.join()
    return spent


def _send(port: int, size: int) -> None:
    body = bytes(min(_CHUNK, max(size, 1)))
    with socket.create_connection(("127.0.0.1", port)) as link:
        while size > 0:
            part = min(size, len(body))
            link.sendall(memoryview(body)[:part])
            size -= part
