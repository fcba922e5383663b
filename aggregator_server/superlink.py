"""The SuperLink: Flower's server, as a child process that only this machine can reach.

Its state is in memory: with plain aggregation it holds votes in clear, and those may not touch a
disk. So a SuperLink that dies has forgotten everything, and :mod:`aggregator_server.deployment`
asks again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import httpx

from aggregator_server.flower_internals import SUPERLINK_MAIN
from pate.errors import ProcessError
from pate.runtime.home import new_secret
from pate.runtime.lifeline import Child, free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_HOST: Final = "127.0.0.1"
_POLL_S: Final = 0.1
#: How long a SuperLink may take to answer after its start, on a machine that is busy.
START_DEADLINE_S: Final = 90.0


class SuperLink:
    """A SuperLink that was started, and answers, at a free port of loopback.

    Attributes:
        address: where it listens, ``host:port``.
        secret: what allows this process, and no other, to take the tasks of its runs.
        child: its process.
    """

    def __init__(self, home: Path, *, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Start one and wait until it answers.

        Args:
            home: its directory, for its log and its secret.
            cancelled: asked while waiting; if it says yes, the start is given up.

        Raises:
            ProcessError: if it ends, does not answer in time, or the start is cancelled.
            DiskError: if ``home`` cannot be written.
        """
        self._secret_file = home.resolve() / "superexec.secret"
        self.secret = new_secret(self._secret_file)
        port = free_port(_HOST)
        self.address = f"{_HOST}:{port}"
        self.child = Child(
            "superlink",
            SUPERLINK_MAIN,
            [
                "--insecure",
                *("--host", _HOST, "--port", str(port)),
                *("--isolation", "process"),
                *("--superexec-auth-secret-file", str(self._secret_file)),
                "--disable-runtime-dependency-installation",
            ],
            home=home,
        )
        try:
            self._wait_until_it_answers(cancelled)
        except BaseException:
            self.stop()
            raise

    def answers(self) -> bool:
        """Say whether it answers its health check now."""
        try:
            return httpx.get(f"http://{self.address}/health", timeout=5, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        """End it, reap it, and remove its secret."""
        self.child.stop()
        self._secret_file.unlink(missing_ok=True)

    def _wait_until_it_answers(self, cancelled: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while not self.answers():
            if self.child.ended(_POLL_S):
                raise self.child.failure()
            if cancelled():
                raise ProcessError("the start of the SuperLink was given up")
            if time.monotonic() > deadline:
                raise ProcessError(
                    f"the SuperLink does not answer after {START_DEADLINE_S:.0f} s; "
                    f"its log is {self.child.log}:\n{self.child.last_words()}"
                )
