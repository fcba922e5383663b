"""Keeps connections open, and reopens closed ones: ``crowd.py PORT NUMBER KIND``.

They say nothing (``silent``), begin a handshake (``hello``) or complete it (``shaken``), and then wait.
Once that many are open this says so, and then runs until it is killed.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import sys


class Held:
    """One of them."""

    def __init__(self, port: int, kind: str, trust: ssl.SSLContext) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setblocking(False)
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trust.wrap_bio(self._came, self._goes)
        self._replies = kind == "shaken"
        if kind != "silent":
            self._shake()

    def _shake(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        if self._goes.pending:
            self.socket.send(self._goes.read())

    def is_over(self) -> bool:
        """Take what has come, and say whether that was the end."""
        try:
            came = self.socket.recv(2**16)
            if came and self._replies:
                self._came.write(came)
                self._shake()
        except (OSError, ValueError):
            return True
        return not came


def main(port: int, number: int, kind: str) -> None:
    """Hold them until killed."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    chosen = selectors.DefaultSelector()

    def come() -> None:
        try:
            held = Held(port, kind, trust)
        except OSError:
            return
        chosen.register(held.socket, selectors.EVENT_READ, held)

    opened = 0
    while True:
        for _ in range(min(50, number - len(chosen.get_map()))):
            come()
            opened += 1
            if opened == number:
                sys.stdout.write("all came\n")
                sys.stdout.flush()
        for key, _ in chosen.select(0.02):
            if key.data.is_over():
                chosen.unregister(key.fileobj)
                key.data.socket.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
