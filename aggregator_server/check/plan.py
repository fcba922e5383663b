"""Which checks there are, in their order."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aggregator_server.bounded_listener import raise_file_limit, room_for_connections
from aggregator_server.check import campaign, database, identity
from aggregator_server.check.asked import identities_of, port_of, read_public, spec_of
from aggregator_server.identities import require_identities
from pate.errors import DiskError, PateError, PortInUseError, UnreachableError
from pate.runtime.lifeline import require_free_port
from pate.runtime.preflight import Check, Finding, Once, machine, storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aggregator_server.check.asked import Asked
    from aggregator_server.spec import CampaignSpec

#: A SuperLink, sums of votes, and a page.
_MEMORY: Final = 2**30
#: Connections that a server should have room for: a few per party.
_CONNECTIONS: Final = 256
#: Reading data, a ledger, or Flower takes so many times as long as a look at a file.
_LONGER: Final = 12.0
_LOOPBACK: Final = "127.0.0.1"


def checks_of(asked: Asked) -> list[Check]:
    """Return what to look at. Nothing is looked at before a check runs."""
    return [
        *_machine(asked), *_database(asked), *_doors(asked), *_identity(asked), *_campaign(asked)
    ]  # fmt: skip


def _machine(asked: Asked) -> list[Check]:
    group, home, short = "This machine", asked.home, asked.timeout
    return [
        Check(group, "Python", machine.check_python, short),
        Check(group, "packages", machine.check_packages, short),
        Check(group, "SuperLink", _superlink, _LONGER * short),
        Check(group, "memory", lambda: machine.check_memory(_MEMORY), short),
        Check(group, "open files", _open_files, short),
        Check(
            group, "home", lambda: storage.check_home(home, "the privacy ledger"), short, DiskError
        ),
        Check(group, "SQLite", lambda: storage.check_sqlite(home), short, DiskError),
    ]


def _database(asked: Asked) -> list[Check]:
    """Return the check of the database, if there is to be one."""
    if not database.wants_database(asked):
        return []
    look = lambda: database.check_database(asked)  # noqa: E731 - as the others are
    return [Check("This machine", "database", look, _LONGER * asked.timeout, UnreachableError)]


def _superlink() -> Finding:
    """Load what the server uses of Flower, all by its name, and look for what it starts."""
    try:
        from aggregator_server.flower_internals import SUPERLINK_MAIN
    except ImportError as error:
        return Finding.failed(
            PateError,
            f"this Flower lacks what the server uses: {error}",
            "install this software again",
        )
    module, _, _ = SUPERLINK_MAIN.partition(":")
    place = metadata.distribution("flwr").locate_file(f"{module.replace('.', '/')}.py")
    if not Path(str(place)).is_file():
        return Finding.failed(
            PateError, f"there is no SuperLink at {place}", "install this software again"
        )
    return Finding.ok(f"of Flower {metadata.version('flwr')}, with all that the server uses of it")


def _open_files() -> Finding:
    """Say how many connections there is room for, once the server has raised its limit."""
    raise_file_limit()  # of this process, which ends with the check
    room = room_for_connections()
    text = f"room for {room.all} connections, {room.per_address} of strangers at one address"
    if room.all < _CONNECTIONS:
        return Finding.warning(
            text, "raise the hard limit of open files (`ulimit -Hn`, LimitNOFILE= of a service)"
        )
    return Finding.ok(text)


def _doors(asked: Asked) -> list[Check]:
    group, short = "Doors", asked.timeout
    doors: list[tuple[str, str, int | None]] = [
        ("port", asked.host, asked.port),
        ("student port", _LOOPBACK, asked.student_port),
    ]
    if asked.page and asked.page_port is not None:
        doors.append(("page port", asked.page_host, asked.page_port))

    def free(host: str, asked_port: int | None) -> Callable[[], Finding]:
        def look() -> Finding:
            require_identities(host, identities_of(asked))
            port = port_of(asked) if asked_port is None else asked_port
            try:
                require_free_port(host, port)
            except PortInUseError as error:
                return Finding.of(error, "does a `pate-server` run already?")
            return Finding.ok(f"{host}:{port} is free" if port else "any free one")

        return look

    return [
        *(Check(group, name, free(host, port), short) for name, host, port in doors),
        Check(group, "address", lambda: identity.check_address(asked), short),
        Check(group, "name", lambda: identity.check_told_name(asked), short),
    ]


def _identity(asked: Asked) -> list[Check]:
    group, short = "Identity", asked.timeout
    return [
        Check(group, "certificates", lambda: identity.check_identity(asked), short),
        Check(group, "handshake", lambda: identity.check_handshake(asked), short),
        Check(group, "parties", lambda: identity.check_parties(asked), short),
    ]


def _campaign(asked: Asked) -> list[Check]:
    group, long = "Campaign", _LONGER * asked.timeout
    inputs = Once(lambda: read_public(asked))
    spec = Once(lambda: spec_of(asked, inputs()))
    nothing = Finding.skipped("no public set is named: --public")

    def with_set(look: Callable[[], Finding]) -> Callable[[], Finding]:
        return lambda: nothing if asked.public is None else look()

    def with_spec(look: Callable[[CampaignSpec], Finding]) -> Finding:
        """Skip what needs the settings where they do not fit: one fault is told once."""
        if asked.public is None:
            return nothing
        try:
            made = spec()
        except PateError:
            return Finding.skipped("the settings, or the public set, cannot be used")
        return look(made)

    def settings() -> Finding:
        try:
            inputs()
        except PateError:
            return Finding.skipped("the public set cannot be read")
        return campaign.check_settings(spec())

    def ledger() -> Finding:
        made = None
        if asked.public is not None:
            try:
                made = spec()
            except PateError:
                made = None  # told by the checks above
        return campaign.check_ledger(asked, made)

    return [
        Check(group, "public set", with_set(lambda: campaign.check_public(inputs())), long),
        Check(group, "settings", with_set(settings), long),
        Check(
            group,
            "budget",
            lambda: with_spec(lambda made: campaign.check_budget(asked, made)),
            long,
        ),
        Check(group, "ledger", ledger, long),
    ]
