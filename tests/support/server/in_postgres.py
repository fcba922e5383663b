"""Helpers for tests of ledgers in a database."""

from __future__ import annotations

from pathlib import Path

from aggregator_server.ledger.store.place import InDatabase, place_of
from tests.support.postgres import Cluster


def again(place: InDatabase) -> InDatabase:
    """The same place, with what the folder knows of it now."""
    found = place_of(place.anchor.parent)
    assert isinstance(found, InDatabase)
    return found


def sessions(cluster: Cluster, place: InDatabase) -> list[str]:
    """The processes of the database that hold the lock of a campaign."""
    return cluster.ask(
        "SELECT l.pid FROM pg_locks l WHERE locktype = 'advisory' AND granted", database="pate"
    )


def tamper(cluster: Cluster, place: InDatabase, statement: str) -> None:
    """Change the tables like an expert attacker: without triggers, which are restored."""
    tables = ("entries", "releases", "batches", "predictions")
    before = "; ".join(f"ALTER TABLE {each} DISABLE TRIGGER ALL" for each in tables)
    after = "; ".join(f"ALTER TABLE {each} ENABLE TRIGGER ALL" for each in tables)
    always = cluster.ask(
        "SELECT format('ALTER TABLE %I.%I ENABLE ALWAYS TRIGGER %I', relnamespace::regnamespace::name,"  # noqa: S608
        " relname, tgname) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid "
        f"WHERE NOT tgisinternal AND relnamespace = '{place.schema}'::regnamespace",
        database="pate",
    )
    path = f'SET search_path = "{place.schema}"'
    cluster.ask(f"{path}; {before}; {statement}; {after}; {'; '.join(always)}", database="pate")


def copied(cluster: Cluster, kept: InDatabase, folder: Path) -> InDatabase:
    """A copy of a campaign, to be changed: carried to a file and back, as a backup is."""
    from aggregator_server.ledger.backup import back_up, restore

    back_up(kept.anchor.parent, folder / "copy")
    target = folder / cluster.place(folder).schema.removeprefix("pate_")
    restore(folder / "copy", target, head=None, close=False, database=cluster.url)
    found = place_of(target)
    assert isinstance(found, InDatabase)
    return found
