"""A real PostgreSQL server for tests, on its own port, durable as a ledger requires."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from aggregator_server.ledger.store.place import InDatabase
from pate.runtime.child import free_port
from tests.support.needs import require

_SETTINGS = """
fsync = on
full_page_writes = on
synchronous_commit = on
shared_buffers = 16MB
max_connections = 40
autovacuum = off
log_statement = all
log_parameter_max_length = 0
logging_collector = off
"""


def programs() -> Path | None:
    """The folder of the server's programs, of the newest version that is installed."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(versions, key=lambda path: int(path.parent.parent.name), default=None)
    return None if newest is None else newest.parent


class Cluster:
    """A server: its data, and the commands that start and stop it."""

    def __init__(self, folder: Path, bin_: Path, data: Path | None = None) -> None:
        self.folder, self.port = folder, free_port()
        self.data = data or folder / "data"
        self._bin = bin_
        # It ends with the tests, however they end.
        self._user: tuple[str, ...] = ("setpriv", "--pdeathsig=QUIT")
        if os.geteuid() == 0:  # which the server's programs refuse to be
            user = pwd.getpwnam("postgres")
            for each in (folder, self.data.parent):
                os.chown(each, user.pw_uid, user.pw_gid)
            self._user += (
                f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups",
            )  # fmt: skip
        self.folder.chmod(0o755)  # the socket is there
        self._run(
            "initdb", "-D", self.data, "-U", "admin", "-E", "UTF8", "--locale=C.UTF-8",
            "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync",
        )  # fmt: skip
        self.configure(_SETTINGS)
        self.start()
        self.ask("CREATE ROLE pate LOGIN PASSWORD 'correct-horse'")
        self.ask("CREATE DATABASE pate OWNER pate")

    @property
    def url(self) -> str:
        """The address of its database, over its socket, without a password."""
        return f"postgresql://pate@/pate?host={self.folder}&port={self.port}"

    @property
    def network_url(self) -> str:
        """The same over TCP: with a password, which is not in it."""
        return f"postgresql://pate@127.0.0.1:{self.port}/pate"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")

    def place(self, folder: Path) -> InDatabase:
        """An unused place, for a campaign in ``folder``."""
        from aggregator_server.ledger.store.place import ANCHOR_FILE, Address, InDatabase, schema_of

        name = schema_of(uuid.uuid4().hex)
        return InDatabase(Address.parse(self.url), name, folder / ANCHOR_FILE)

    def configure(self, settings: str) -> None:
        """Add to its configuration."""
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(settings)

    def reload(self) -> None:
        self._server.send_signal(signal.SIGHUP)

    def start(self) -> None:
        """Start it as a child of this process, which has to reap it, and wait until it answers."""
        command: list[str | Path] = [
            *self._user, self._bin / "postgres", "-D", self.data, "-p", str(self.port),
            "-c", f"unix_socket_directories={self.folder}", "-c", "listen_addresses=127.0.0.1",
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_environment(),
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self._server.poll() is None, f"the database ended:\n{self.log[-2000:]}"
            assert time.monotonic() < deadline, f"the database does not answer:\n{self.log[-2000:]}"
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it; clients are disconnected."""
        self._server.send_signal(how)
        self._server.wait(60)

    def kill(self) -> None:
        """As a power cut: the server and all its sessions are gone at once."""
        first = self._server.pid
        others = [
            int(pid) for pid in Path(f"/proc/{first}/task/{first}/children").read_text().split()
        ]
        for pid in (first, *others):
            os.kill(pid, signal.SIGKILL)
        self._server.wait(60)
        while any(map(_runs, others)):
            time.sleep(0.01)

    def _answers(self) -> bool:
        command: list[str | Path] = [
            self._bin / "pg_isready", "-q", "-h", self.folder, "-p", str(self.port),
        ]  # fmt: skip
        return subprocess.run(command, check=False, env=_environment()).returncode == 0

    def ask(self, question: str, *, database: str = "postgres") -> list[str]:
        """Ask it something as its owner; return the rows, columns divided by ``|``."""
        done = subprocess.run(
            [self._bin / "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", self.folder,
             "-p", str(self.port), "-U", "admin", "-d", database, "-c", question],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def until(self, question: str, answer: str) -> None:
        """Wait until it answers a question so."""
        deadline = time.monotonic() + 60
        while self.ask(question) != [answer]:
            assert time.monotonic() < deadline, f"{question}: still not {answer}"
            time.sleep(0.02)

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [*self._user, self._bin / program, *arguments],
            check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/",
            env=_environment(),
        )  # fmt: skip
        assert done.returncode == 0, f"{program} ended with {done.returncode}: {done.stderr}"


class LossyLink:
    """Between a server's ledger and its database, which is killed as it is to commit a charge, once.

    ``folder``: of its socket; ``cluster``: the database; ``committed``: whether the charge is
    committed by then, and only the answer lost.
    """

    def __init__(self, folder: Path, cluster: Cluster, *, committed: bool) -> None:
        folder.mkdir()
        self._cluster, self._committed = cluster, committed
        self.url = f"postgresql://pate@/pate?host={folder}&port={cluster.port}"
        self.done = threading.Event()
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / f".s.PGSQL.{cluster.port}"))
        self._door.listen()
        threading.Thread(target=self._welcome, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _welcome(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, far = self._door.accept()[0], socket.socket(socket.AF_UNIX)
                try:
                    far.connect(str(self._cluster.folder / f".s.PGSQL.{self._cluster.port}"))
                except OSError:
                    near.close()
                    far.close()
                    continue
                for carry in (self._ask, self._answer):
                    threading.Thread(target=carry, args=(near, far), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket) -> None:
        charges = False
        with near, far, contextlib.suppress(OSError):
            while body := near.recv(2**16):
                charges |= b"charge" in body
                lost = charges and b"COMMIT" in body and not self.done.is_set()
                if lost:
                    self.done.set()  # from here on no answer gets through
                if self._committed or not lost:
                    far.sendall(body)
                if lost:
                    if self._committed:
                        far.recv(1, socket.MSG_PEEK)
                    self._cluster.kill()
                    return

    def _answer(self, near: socket.socket, far: socket.socket) -> None:
        before = not self.done.is_set()
        with contextlib.suppress(OSError):
            while far.recv(1, socket.MSG_PEEK):
                if before and self.done.is_set():
                    return
                near.sendall(far.recv(2**16))
        with contextlib.suppress(OSError):
            near.shutdown(socket.SHUT_RDWR)


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("PG")}


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def running_cluster() -> Iterator[Cluster]:
    """A server for the tests that follow."""
    found = programs()
    if found is None or not shutil.which("setpriv"):
        require(condition=False, what="a PostgreSQL server (Debian: postgresql)")
        raise AssertionError
    try:
        import psycopg  # noqa: F401
    except ImportError:
        require(condition=False, what="psycopg (pip install federated-pate[postgres])")
    # Beside the folders of tests, into which the server's own user may not look.
    folder = Path(tempfile.mkdtemp(prefix="pate-postgres-"))
    cluster = Cluster(folder, found)
    try:
        yield cluster
    finally:
        try:
            cluster.stop(signal.SIGQUIT)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
