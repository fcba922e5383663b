"""The list of checks, in order."""

from __future__ import annotations

from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aggregator_server.identities import require_identities, told_port
from aggregator_server.preflight import campaign, identity
from pate.errors import DiskError, PateError, PortInUseError, UnreachableError
from pate.listening.bounded_listener import raise_file_limit, room_for_connections
from pate.preflight import Check, Finding, Skipped, begin, machine, needed
from pate.runtime.child import require_free_port

if TYPE_CHECKING:
    from concurrent.futures import Future

    from aggregator_server.options import CheckOptions
    from pate.campaign.spec import CampaignSpec

#: Memory of a SuperLink, sums of votes, and the page.
_MEMORY: Final = 2**30
#: Connections that a server should support: a few per party.
_CONNECTIONS: Final = 256
#: Weight of reading data, a ledger or Flower, relative to checking a file.
_LONGER: Final = 12.0
_LOOPBACK: Final = "127.0.0.1"


def checks_of(options: CheckOptions) -> dict[str, tuple[Check, ...]]:
    """Return the checks by heading; the public set is read from now on."""
    folder, home = options.folder, options.place
    short, long = options.timeout, _LONGER * options.timeout
    notes: list[str] = []
    inputs = begin(partial(campaign.read_public, options, notes.append))
    spec = begin(lambda: campaign.specification(options, inputs.result()))
    unused = "the settings, or the public set, cannot be used"

    def settings() -> CampaignSpec:
        needed(inputs, "the public set cannot be read")
        return spec.result()

    ports: list[tuple[str, str, int | None]] = [
        ("port", options.host, options.port),
        ("student port", _LOOPBACK, options.student_port),
    ]
    if options.page and options.page_port is not None:
        ports.append(("page port", options.page_host, options.page_port))
    return {
        "This machine": (
            Check("Python", machine.check_python, short),
            Check("packages", machine.check_packages, short),
            Check("SuperLink", _superlink, long),
            Check("memory", lambda: machine.check_memory(_MEMORY), short),
            Check("open files", check_open_files, short),
            Check("home", lambda: machine.check_home(home, "the privacy ledger"), short, DiskError),
            Check("SQLite", lambda: machine.check_sqlite(home), short, DiskError),
            *(
                [
                    Check(
                        "database",
                        lambda: campaign.check_database(folder, options.ledger),
                        long,
                        UnreachableError,
                    )
                ]
                * campaign.wants_database(folder, options.ledger)
            ),
        ),
        "Doors": (
            *(
                Check(name, partial(_free, options, host, port), short)
                for name, host, port in ports
            ),
            Check("address", lambda: identity.check_address(options), short),
            Check("name", lambda: identity.check_told_name(options), short),
        ),
        "Identity": (
            Check("certificates", lambda: identity.check_identity(options), short),
            Check("handshake", lambda: identity.check_handshake(options), short),
            Check("parties", lambda: identity.check_parties(options), short),
        ),
        "Campaign": (
            Check("public set", lambda: campaign.check_public(inputs.result(), notes), long),
            Check("settings", lambda: campaign.check_settings(settings()), long),
            Check("budget", lambda: campaign.check_budget(options, needed(spec, unused)), long),
            Check("ledger", lambda: campaign.check_ledger(options, _known(spec)), long),
        ),
    }


def _known(spec: Future[CampaignSpec]) -> CampaignSpec | None:
    """Return the specification; None if there is none, or other checks report it as invalid."""
    try:
        return spec.result()
    except (PateError, Skipped):
        return None


def _superlink() -> Finding:
    """Import all that the server uses of Flower, and find the executables that it starts."""
    try:
        from aggregator_server.flower.internals import SUPERLINK_MAIN
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


def check_open_files() -> Finding:
    """Report how many connections fit the limit of open files, as the server would raise it."""
    raise_file_limit()  # the limit the limit of this process, which ends with the check
    room = room_for_connections()
    text = f"room for {room.all} connections, {room.per_address} of strangers at one address"
    if room.all < _CONNECTIONS:
        return Finding.warning(
            text, "raise the hard limit of open files (`ulimit -Hn`, LimitNOFILE= of a service)"
        )
    return Finding.ok(text)


def _free(options: CheckOptions, host: str, asked: int | None) -> Finding:
    """Report whether a port is free; None: the port that parties are given."""
    identities = identity.identities_of(options)
    require_identities(host, identities)
    port = told_port(identities) if asked is None else asked
    try:
        require_free_port(host, port)
    except PortInUseError as error:
        return Finding.failed(PortInUseError, str(error), "does a `pate-server` run already?")
    return Finding.ok(f"{host}:{port} is free" if port else "any free one")
