"""Check of the ledger's database: connectivity and durable commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator_server.ledger.store import stores
from aggregator_server.ledger.store.place import ANCHOR_FILE, InDatabase, place_of
from pate.errors import StateError
from pate.preflight import Finding

if TYPE_CHECKING:
    from pathlib import Path


def wants_database(folder: Path, ledger: str | None) -> bool:
    """Return whether the ledger of the campaign in ``folder`` is, or will be, in a database."""
    return ledger is not None or (folder / ANCHOR_FILE).exists()


def check_database(folder: Path, ledger: str | None) -> Finding:
    """Connect as a start would, and check a ledger's requirements; nothing is written.

    Raises: PateError: as a start would.
    """
    place = place_of(folder, ledger)
    if not isinstance(place, InDatabase):
        return Finding.skipped("the ledger of this campaign is a file")
    from aggregator_server.ledger.store.postgres.session import facts_of

    facts = facts_of(place)
    if not facts.may_create and not stores.exists(place):
        return Finding.failed(
            StateError,
            f"the role {facts.role} may not make a schema in {place.address}",
            "as the database's owner: GRANT CREATE ON DATABASE … TO …",
        )
    text = (
        f"PostgreSQL {facts.version} {facts.way}: fsync and full_page_writes on, "
        f"synchronous_commit={facts.synchronous_commit}, schema {place.schema}"
    )
    if facts.logs_values:
        return Finding.warning(
            f"{text}; its log would hold what is written, sums of votes too",
            f"as the database's owner: ALTER ROLE {facts.role} SET log_parameter_max_length = 0, and "
            "leave log_parameter_max_length_on_error at 0",
        )
    return Finding.ok(f"{text}; a server has it open" if facts.in_use else text)
