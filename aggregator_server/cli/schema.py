"""``pate-server sign-schema``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pate.formats.synthesis_schema import MAX_SCHEMA, SUFFIX, sign
from pate.runtime.options import HomeOption
from pate.runtime.screen import Screen


def register(app: typer.Typer) -> None:
    """Add the command to ``pate-server``."""
    app.command()(sign_schema)


def sign_schema(
    schema: Annotated[
        Path, typer.Argument(help="The schema that was agreed on.", metavar="SCHEMA")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the signature. Default: SCHEMA.sig", metavar="FILE"),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Sign SCHEMA, by which parties make synthetic queries, with the key that they enrolled with.

    Hand both files to the parties: `pate-party synthesize --schema SCHEMA` looks for the signature
    beside it. Columns, bins and codes are public, so none may be read off anybody's records.
    """
    from aggregator_server.identities.store import Identities
    from pate.errors import DataError, StateError
    from pate.runtime.home import default_home, write_file

    place = home or default_home("server")
    identities = Identities.open(place, certified=False)
    if identities is None:
        raise StateError(f"there is no identity in {place}; make one with `pate-server init`")
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
