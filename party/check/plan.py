"""Which checks there are, in their order."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Final

from party.check import gpu, identity, records, rules
from party.check.asked import target_of
from pate.data.odd import Odd
from pate.errors import DiskError, PateError, UnreachableError
from pate.runtime.lifeline import require_free_port
from pate.runtime.preflight import Check, Finding, Once, machine, network, storage
from pate.runtime.preflight.meeting import meet

if TYPE_CHECKING:
    from collections.abc import Callable

    from party.check.asked import Asked

#: PyTorch, Flower, and a few teachers beside the data.
_MEMORY: Final = 2 * 2**30
#: Reading data, a ledger, or Flower takes so many times as long as a question to a server.
_LONGER: Final = 12.0


def checks_of(asked: Asked) -> list[Check]:
    """Return what to look at. Nothing is looked at before a check runs."""
    return [*_machine(asked), *_network(asked), *_identity(asked), *_rules(asked), *_data(asked)]


def _machine(asked: Asked) -> list[Check]:
    group, home, long = "This machine", asked.home, _LONGER * asked.timeout
    doors = []
    if asked.metrics_port:
        doors.append(Check(group, "metrics port", lambda: _metrics_port(asked), asked.timeout))
    return [
        Check(group, "Python", machine.check_python, asked.timeout),
        Check(group, "packages", machine.check_packages, asked.timeout),
        Check(group, "Flower", _flower, long),
        Check(group, "memory", lambda: machine.check_memory(_MEMORY), asked.timeout),
        Check(group, "GPU", lambda: gpu.check_gpu(asked.device), gpu.TORCH_S + asked.timeout),
        Check(
            group,
            "home",
            lambda: storage.check_home(home, "teachers, votes, keys and ledger"),
            asked.timeout,
            DiskError,
        ),
        Check(group, "SQLite", lambda: storage.check_sqlite(home), asked.timeout, DiskError),
        *doors,
    ]


def _metrics_port(asked: Asked) -> Finding:
    require_free_port(asked.metrics_host, asked.metrics_port or 0)
    return Finding.ok(f"{asked.metrics_host}:{asked.metrics_port} is free")


def _flower() -> Finding:
    """Load what a party uses of Flower, all by its name."""
    try:
        import party.flower_internals
        import party.supernode_process  # noqa: F401
    except ImportError as error:
        return Finding.failed(
            PateError,
            f"this Flower lacks what a party uses: {error}",
            "install this software again",
        )
    return Finding.ok(f"{metadata.version('flwr')}, with all that a party uses of it")


def _network(asked: Asked) -> list[Check]:
    group, now = "Network", asked.clock
    try:
        target = target_of(asked)
    except PateError as error:
        broken = Finding.of(error)
        return [Check(group, "server", lambda: broken, asked.timeout)]
    if target is None or asked.offline:
        why = "--offline" if asked.offline else "none is known: --server, --bundle, or enrol"
        return [
            Check(group, "server", lambda: Finding.skipped(why), asked.timeout),
            Check(group, "clock", lambda: network.check_clock(target, None, now()), asked.timeout),
        ]
    # Less than a check's own time, so that what did not answer is said and not only that it was late.
    meeting = Once(lambda: meet(target, timeout=asked.timeout * 0.8, clock=now))

    def check(name: str, look: Callable[[], Finding], steps: int = 2) -> Check:
        return Check(group, name, look, steps * asked.timeout, UnreachableError)

    return [
        check("address", lambda: network.check_name(target), 1),
        check("proxy", lambda: network.check_proxy(target), 1),
        check("certificate", lambda: network.check_certificate(target, meeting(), now())),
        check("clock", lambda: network.check_clock(target, meeting(), now())),
        check("server", lambda: network.check_fleet(target, meeting())),
        check("other doors", lambda: network.check_exposed(target, meeting()), 4),
        check("admission", lambda: identity.check_admission(asked, target, meeting()), 4),
    ]


def _identity(asked: Asked) -> list[Check]:
    group = "Identity"
    return [
        Check(
            group,
            "enrolment",
            lambda: identity.check_enrolment(asked, target_of(asked)),
            asked.timeout,
        ),
        Check(group, "keys", lambda: identity.check_keys(asked), asked.timeout),
    ]


def _rules(asked: Asked) -> list[Check]:
    group, long = "Policy", _LONGER * asked.timeout
    return [
        Check(group, "policy", lambda: rules.check_policy(asked, target_of(asked)), asked.timeout),
        Check(group, "own ledger", lambda: rules.check_books(asked), long),
    ]


def _data(asked: Asked) -> list[Check]:
    group, long = "Data", _LONGER * asked.timeout
    odd = Odd()
    data = Once(lambda: records.read(asked, odd))
    public = Once(lambda: records.read_public(asked))

    def following(look: Callable[[], Finding]) -> Callable[[], Finding]:
        """Skip what needs the data where they cannot be had: one fault is told once."""

        def run() -> Finding:
            if asked.data is None:
                return Finding.skipped("no data is named: --data")
            try:
                data()
            except PateError:
                return Finding.skipped("the data cannot be read")
            return look()

        return run

    def readable() -> Finding:
        if asked.data is None:
            return Finding.skipped("no data is named: --data")
        found = data()
        return records.check_records(asked, found, odd)

    return [
        Check(group, "records", readable, long),
        Check(group, "teachers", following(lambda: records.check_teachers(asked, data())), long),
        Check(
            group, "schema", following(lambda: records.check_schema(asked, data(), public())), long
        ),
    ]
