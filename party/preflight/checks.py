"""The checks of a party, in order."""

from __future__ import annotations

from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Final

from party.preflight import gpu, network, records, site
from party.preflight.network import meet, server_of
from pate.errors import DiskError, PateError, UnreachableError
from pate.preflight import Check, Finding, begin, machine, needed
from pate.runtime.child import LOCAL_SERVER, require_free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from party.options import CheckOptions
    from party.preflight.records import Records

#: PyTorch, Flower, and a few teachers in addition to the data.
_MEMORY: Final = 2 * 2**30
#: Reading data, a ledger, or Flower may take this many times as long as a request to a server.
_LONGER: Final = 12.0


def checks_of(options: CheckOptions) -> dict[str, tuple[Check, ...]]:
    """Return the checks by heading; reading the data and contacting the server start now."""
    home, short, long = options.place, options.timeout, _LONGER * options.timeout
    campaign = begin(partial(records.known, options))
    data = begin(partial(records.read, options, campaign))

    def read() -> Records:
        return needed(data, "the data cannot be read")

    return {
        "This machine": (
            Check("Python", machine.check_python, short),
            Check("packages", machine.check_packages, short),
            Check("Flower", _flower, long),
            Check("memory", lambda: machine.check_memory(_MEMORY), short),
            Check("GPU", lambda: gpu.check_gpu(options.device), gpu.TORCH_S + short),
            Check(
                "home",
                lambda: machine.check_home(home, "teachers, votes, keys and ledger"),
                short,
                DiskError,
            ),
            Check("SQLite", lambda: machine.check_sqlite(home), short, DiskError),
            *([Check("metrics port", lambda: _port(options), short)] * bool(options.metrics_port)),
        ),
        "Network": _network(options),
        "Identity": (
            Check("enrolment", lambda: site.check_enrolment(options, server_of(options)), short),
            Check("keys", lambda: site.check_keys(options), short),
        ),
        "Policy": (
            Check("policy", lambda: site.check_policy(options, server_of(options)), short),
            Check("own ledger", lambda: site.check_ledger(options), long),
        ),
        "Data": (
            Check("records", lambda: records.check_records(options, data.result()), long),
            Check("teachers", lambda: records.check_teachers(options, read().data), long),
            Check("schema", lambda: records.check_schema(options, campaign.result(), read()), long),
        ),
    }


def _flower() -> Finding:
    """Import every module of Flower that a party uses."""
    try:
        import party.flower.internals
        import party.flower.supernode_process  # noqa: F401
    except ImportError as error:
        return Finding.failed(
            PateError,
            f"this Flower lacks what a party uses: {error}",
            "install this software again",
        )
    return Finding.ok(f"{metadata.version('flwr')}, with all that a party uses of it")


def _port(options: CheckOptions) -> Finding:
    require_free_port(options.metrics_host, options.metrics_port or 0)
    return Finding.ok(f"{options.metrics_host}:{options.metrics_port} is free")


def _network(options: CheckOptions) -> tuple[Check, ...]:
    short, now = options.timeout, options.clock
    try:
        server = server_of(options)
    except PateError as error:
        broken = Finding.failed(type(error), str(error))
        return (Check("server", lambda: broken, short),)
    if server is None or options.offline:
        why = f"--server names none, and no bundle; a start without them asks {LOCAL_SERVER}"
        why = "--offline" if options.offline else why
        return (
            Check("server", lambda: Finding.skipped(why), short),
            Check("clock", lambda: network.check_clock(server, None, now()), short),
        )
    # Less than a check's own timeout, so that the finding names the server that did not answer.
    met = begin(lambda: meet(server, timeout=0.8 * short, clock=now))

    def check(name: str, look: Callable[[], Finding], steps: int = 2) -> Check:
        return Check(name, look, steps * short, UnreachableError)

    return (
        check("address", lambda: network.check_name(server), 1),
        check("proxy", lambda: network.check_proxy(server), 1),
        check("certificate", lambda: network.check_certificate(server, met.result(), now())),
        check("clock", lambda: network.check_clock(server, met.result(), now())),
        check("server", lambda: network.check_server(server, met.result())),
        check("other doors", lambda: network.check_exposed(server, met.result()), 4),
        check("admission", lambda: site.check_admission(options, server, met.result()), 4),
    )
