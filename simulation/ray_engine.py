"""Flower's own simulation engine: the parties' app runs in Ray's worker processes.

The campaign runs in this process. Flower starts our ServerApp in a thread, and the ServerApp lends its
grid to the campaign until it ends. The parties run in Ray actors, at most one per core. An actor serves
the party that a message is for: it opens that party from its home directory, which has the records and
the trained teachers.

Ray serialises apps, messages and contexts between its own processes with pickle. This stays within
processes that this one started; of our data only the closure of :func:`_client_app`, two paths and a
number, is pickled.

``run_simulation`` is used although Flower calls it deprecated: its successor, a SuperLink with
``--simulation``, requires both apps as code in a bundle and runs the ServerApp in a separate process,
without access to the ledger, the screen and the student.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import secrets
import signal
import tempfile
import threading
from typing import TYPE_CHECKING, Final

from pate.errors import ProcessError, UsageError
from simulation.party import (
    PUBLIC_FILE,
    load_inputs,
    load_records,
    open_party,
    party_home,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

    from aggregator_server.exchange.wire import Arrival, Wire
    from aggregator_server.flower.wire import GridWire, SwitchableWire
    from pate.data.values import Inputs

#: Each takes about 400 MB; if CPU quotas apply, Ray and Python count cores differently.
_MOST_ACTORS: Final = 8
#: Parties that one actor caches; others are opened again from their homes.
_OPEN_PARTIES: Final = 64
_POLL_S: Final = 0.05


def require_ray() -> None:
    """Check that Ray is installed.

    Raises:
        UsageError: if it is not.
    """
    if importlib.util.find_spec("ray") is None:
        raise UsageError(
            "--engine ray needs Ray, which is not installed: "
            "pip install 'federated-pate[sim]', or use --engine local"
        )


@contextlib.contextmanager
def ray_wire(place: Path, *, parties: int, teachers: int, log: Path) -> Iterator[Wire]:
    """Run Flower's simulation engine for as long as the block, and yield the wire to its parties.

    Args:
        place: holds the public set, :data:`PUBLIC_FILE`, and the homes of the parties with their
            records and teachers; see :mod:`simulation.party`.
        parties: number of parties.
        teachers: of each.
        log: of Flower, Ray and the parties.

    Raises:
        ProcessError: from the use of the wire, if the engine stops by itself or a party's code
            raises: a dead actor still accepts messages and answers none.
    """
    # Ray makes sockets below its directory, and a socket's path has at most 107 bytes.
    short = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
    log = log.resolve()
    with _environment(_quiet_and_closed()), _logged_to(log), short as directory:
        import ray

        from aggregator_server.flower.wire import SwitchableWire

        link = SwitchableWire(suspect=lambda _: None)
        over = threading.Event()
        client_app = _client_app(place, teachers, log)
        # Not in the main thread: there Ray would handle SIGTERM, and Ctrl-C would interrupt Flower's
        # loop instead of the campaign.
        engine = threading.Thread(
            target=_run, args=(link, over, client_app, parties, directory, log), daemon=True
        )
        engine.start()
        try:
            # Ray forks at its start, when gRPC must not be active in this process.
            while not (ray.is_initialized() or over.wait(_POLL_S)):
                pass
            _take_back_sigterm()
            yield link
        finally:
            over.set()
            _await_end(engine)


def _await_end(engine: threading.Thread) -> None:
    """Wait until a stopping engine, and Ray's processes, have ended.

    An actor finishes its request, or first its start: minutes on a busy machine. Only then may its
    files be removed; its errors go to the log. A second Ctrl-C does not shorten the wait.
    """
    while engine.is_alive():
        with contextlib.suppress(KeyboardInterrupt):
            engine.join()


def _run(
    link: SwitchableWire,
    over: threading.Event,
    client_app: ClientApp,
    parties: int,
    directory: str,
    log: Path,
) -> None:
    """Run the engine until ``over`` is set; if it ends earlier, fail the link and set it."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    server_app = ServerApp()

    @server_app.main()
    def lend(grid: Grid, _context: Context) -> None:
        link.attach(_strict_wire(grid, log))
        over.wait()

    reason = "it ended"
    try:
        run_simulation(
            server_app,
            client_app,
            parties,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {
                    "address": "local",  # never a cluster that the environment names
                    "num_cpus": min(parties, os.cpu_count() or 1, _MOST_ACTORS),
                    "num_gpus": 0,
                    "log_to_driver": False,
                    "_temp_dir": directory,
                },
            },
        )
    except Exception as error:  # noqa: BLE001 - whatever it was, the campaign must not wait for it
        reason = _first_cause(error)
    finally:
        if not over.is_set():
            link.fail(ProcessError(f"Flower's simulation engine stopped: {reason} (see {log})"))
        over.set()  # `lend` waits for it in a thread that would keep this process alive


def _strict_wire(grid: Grid, log: Path) -> GridWire:
    from aggregator_server.exchange.wire import RAISED
    from aggregator_server.flower.wire import GridWire

    class StrictWire(GridWire):
        """Ends the simulation where a campaign between sites would wait for the repair of a party."""

        def receive(self) -> list[Arrival]:
            arrivals = super().receive()
            if any((arrival.failure or "").startswith(RAISED) for arrival in arrivals):
                raise ProcessError(f"a simulated party failed; {log} says why")
            return arrivals

    return StrictWire(grid)


def _client_app(place: Path, teachers: int, log: Path) -> ClientApp:
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        _write_errors(log)
        home = party_home(place, int(context.node_config["partition-id"]))
        return _party_app(home, teachers)(message, context)

    return app


# --- in the actors -----------------------------------------------------------------------


@functools.lru_cache(_OPEN_PARTIES)
def _party_app(home: Path, teachers: int) -> ClientApp:
    """Return the app that a party's process has in a deployment, with what lies in its home."""
    from party.flower.client_app import make_client_app

    # A party that is sent the public set gathers its pieces in memory, and here each piece could
    # go to another actor: so every party has its own copy.
    public = _public_set(home.parent / PUBLIC_FILE)
    return make_client_app(
        open_party(home, load_records(home), teachers=teachers, public=public, shared=True).handle
    )


@functools.lru_cache(1)
def _public_set(path: Path) -> Inputs:
    return load_inputs(path)


@functools.lru_cache(1)
def _write_errors(log: Path) -> None:
    handler = logging.FileHandler(log, encoding="utf-8")
    handler.setLevel(logging.ERROR)
    logging.getLogger().addHandler(handler)


# --- quiet, and to themselves ------------------------------------------------------------


@functools.cache
def _token() -> str:
    """Return the token of this process's Ray, which reads it once."""
    return secrets.token_hex(32)


def _quiet_and_closed() -> dict[str, str]:
    """Return what Ray must find in the environment when it is imported."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns that this will be the default
        # It listens on every address: without a token anyone who reaches it could run code here.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": _token(),
        # Set by Flower for Ray's processes; named here so that it is put back.
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    saved = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _take_back_sigterm() -> None:
    """Let Python handle SIGTERM again, which Ray's library makes an immediate end."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


@contextlib.contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """Let Flower and Ray write to a file instead of the screen."""
    # On import each gives its logger a handler for the screen.
    import ray  # noqa: F401
    from flwr.simulation import run_simulation  # noqa: F401

    path.unlink(missing_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    handler.setLevel(logging.INFO)
    loggers = [logging.getLogger(name) for name in ("flwr", "ray")]
    saved = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        for logger, handlers, propagate in saved:
            logger.handlers, logger.propagate = handlers, propagate
        handler.close()


def _first_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
