"""Commands of ``pate-server`` for the identities of the server and its parties."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aggregator_server.options import CODE_LIFE
from pate.errors import DataError, StateError
from pate.runtime.command import print_json
from pate.runtime.home import default_home, write_file
from pate.runtime.options import HomeOption, JsonOption, of_campaign, of_network, of_output
from pate.runtime.screen import Screen

if TYPE_CHECKING:
    from aggregator_server.identities.registry import Entry
    from aggregator_server.identities.store import Identities

NameArgument = Annotated[str, typer.Argument(help="The party's name.", metavar="NAME")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``pate-server``."""
    for command in (init, enroll, admit, parties, revoke, rotate, sign_schema):
        app.command()(command)


def init(
    host: Annotated[
        list[str] | None,
        of_network(
            help="Name or address for parties; repeat. Default: this machine", metavar="NAME"
        ),
    ] = None,
    port: Annotated[
        int, of_network(min=1, max=65535, help="Port that parties connect to.", metavar="PORT")
    ] = 9092,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make this server's keys and certificates, once.

    A certificate authority of its own, a certificate, and a signing key.

    From then on only parties that were enrolled can connect, over TLS.
    """
    from aggregator_server.identities.store import Identities  # cryptography, slow to import
    from pate.formats.enrolment import readable

    made = Identities.create(_home(home), host or (), port, _now())
    if as_json:
        print_json({"directory": str(made.directory), **_describe(made)})
        return
    screen = Screen("pate-server")
    screen.say(f"made {made.directory}; back it up: without it every party enrols again")
    screen.say(
        f"parties connect to {made.address}; the authority's fingerprint is "
        f"{readable(made.fingerprint)}"
    )
    screen.say("next: `pate-server enroll NAME` for each party")


def enroll(
    name: NameArgument,
    out: Annotated[
        Path | None,
        of_output(help="Where to write the bundle. Default: NAME.bundle.json", metavar="FILE"),
    ] = None,
    again: Annotated[
        bool,
        of_campaign("--again", help="Also if the party is enrolled, or was revoked."),
    ] = False,
    days: Annotated[
        int,
        of_campaign(min=1, max=365, help="How long the one-time code is valid.", metavar="DAYS"),
    ] = CODE_LIFE.days,
    server: Annotated[
        str | None,
        of_network(help="Another address, for this party only.", metavar="HOST:PORT"),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Write the bundle with which the party NAME enrols itself.

    Hand it over in private: until it is used, whoever has it can enrol in the party's name.
    """
    from pate.formats.enrolment import readable

    identities = _identities(home)
    path = out or Path(f"{name}.bundle.json")
    bundle = identities.invite(
        name,
        now=_now(),
        life=dt.timedelta(days=days),
        again=again,
        server=server,
        hand_over=lambda made: write_file(path, made.to_json()),
    )
    screen = Screen("pate-server")
    screen.say(
        f"{path} is for {name} alone, and good until {_date(bundle.expires)}: there, "
        f"`pate-party enroll {path.name}`"
    )
    screen.say(f"both screens show the authority as {readable(identities.fingerprint)}")


def admit(
    file: Annotated[
        Path, typer.Argument(help="The answer that `pate-party enroll` wrote.", metavar="FILE")
    ],
    home: HomeOption = None,
) -> None:
    """Enrol a party by FILE, the answer it could not send."""
    from pate.formats.enrolment import Answer

    try:
        body = file.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from error
    answer = Answer.from_json(body)
    new = _identities(home).admit(answer, _now())
    Screen("pate-server").say(
        f"{answer.name} is enrolled{'' if new else ' already, with these keys'}; its identity key "
        f"is {answer.identity.hex()}: compare it with the party's screen"
    )


def parties(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the parties and when certificates expire."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from aggregator_server.identities.registry import ENROLLED
    from pate.formats.enrolment import line_of_party

    identities = _identities(home)
    entries = list(identities.registry.parties().values())
    if as_json:
        print_json({**_describe(identities), "parties": [_entry(entry) for entry in entries]})
        return
    screen = Screen("pate-server")
    for line in identities.warnings(_now()):
        screen.say(line)
    table = Table("party", "state", "since", "open code until")
    for entry in entries:
        code = "" if entry.invitation is None else _date(entry.invitation.expires)
        table.add_row(entry.name, entry.state, _date(entry.changed), code)
    screen.show(table)
    if enrolled := [entry for entry in entries if entry.state == ENROLLED]:
        # Unabridged: a party may copy these lines into its policy.
        keys = (line_of_party(entry.name, entry.identity) for entry in enrolled)
        screen.show(Group("identity keys:", *map(Text, keys)))


def revoke(name: NameArgument, home: HomeOption = None) -> None:
    """Exclude the party NAME from now on.

    A running server disconnects it at once.
    """
    from aggregator_server.identities.registry import INVITED, REVOKED

    before = _identities(home).revoke(name, _now())
    done = {
        INVITED: f"{name} was never enrolled; its code is void",
        REVOKED: f"{name} was revoked before",
    }
    Screen("pate-server").say(done.get(before, f"{name} is revoked, and so are its keys"))


def rotate(home: HomeOption = None) -> None:
    """Make a new server key and certificate; parties need do nothing.

    A server that runs keeps the old one until it is started again.
    """
    identities = _identities(home, certified=False)
    until = identities.rotate(_now())
    screen = Screen("pate-server")
    screen.say(f"{identities.certificate} is good until {until:%Y-%m-%d}; start the server again")
    for line in identities.warnings(_now()):
        screen.say(line)


def sign_schema(
    schema: Annotated[
        Path, typer.Argument(help="The schema that was agreed on.", metavar="SCHEMA")
    ],
    out: Annotated[
        Path | None,
        of_output(help="Where to write the signature. Default: SCHEMA.sig", metavar="FILE"),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Sign SCHEMA, for synthetic queries.

    The key is the one that parties enrolled with. Hand both files to the parties: `pate-party
    synthesize --schema SCHEMA` looks for the signature beside it. Columns, bins and codes are
    public, so none may be read off anybody's records.
    """
    from pate.formats.synthesis_schema import MAX_SCHEMA, SUFFIX, sign

    identities = _identities(home, certified=False)
    try:
        with schema.open("rb") as file:
            content = file.read(MAX_SCHEMA + 1)
    except OSError as error:
        raise DataError(f"cannot read {schema}: {error.strerror or error}") from error
    path = out or schema.with_name(schema.name + SUFFIX)
    write_file(path, sign(content, identities.signing_key), mode=0o644)
    Screen("pate-server").say(
        f"{path} is the signature of {schema}: parties that are enrolled here take both"
    )


def _identities(home: Path | None, *, certified: bool = True) -> Identities:
    from aggregator_server.identities.store import Identities

    found = Identities.open(_home(home), certified=certified)
    if found is None:
        raise StateError(f"there is no identity in {_home(home)}; make one with `pate-server init`")
    return found


def _home(home: Path | None) -> Path:
    return home or default_home("server")


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _date(seconds: int) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d}"


def _describe(identities: Identities) -> dict[str, object]:
    return {
        "server": identities.address,
        "hosts": list(identities.hosts),
        "authority": identities.fingerprint.hex(),
        "campaign_key": identities.signing_key.public_key().public_bytes_raw().hex(),
        "warnings": identities.warnings(_now()),
    }


def _entry(entry: Entry) -> dict[str, object]:
    return {
        "name": entry.name,
        "state": entry.state,
        "since": entry.changed,
        "identity": entry.identity.hex(),
        "code_open_until": None if entry.invitation is None else entry.invitation.expires,
    }
