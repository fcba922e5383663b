"""Tables of a ledger in PostgreSQL: append-only, and every change is detected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store.place import InDatabase
from aggregator_server.ledger.verify import verify
from pate.errors import LedgerError, StateError
from pate.mechanisms import Outcome
from tests.support.postgres import Cluster
from tests.support.server.campaigns import make_spec, start
from tests.support.server.in_postgres import again, copied, tamper


@pytest.fixture(scope="module")
def kept(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> InDatabase:
    """A finished campaign, which no test changes."""
    place = cluster.place(tmp_path_factory.mktemp("kept"))
    with start(place, make_spec(queries=20)) as ledger:
        charge = ledger.charge([5, 1])
        answers = [Outcome(2, "teachers", charge.events), Outcome(None, None, charge.events[:1])]
        ledger.release(charge, answers)
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    return again(place)


REFUSED = (
    "UPDATE entries SET written_at = 'never' WHERE seq = 1",
    "DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)",
    "DELETE FROM releases",
    "TRUNCATE releases",
    "TRUNCATE entries CASCADE",
    "UPDATE releases SET label = 0",
    "INSERT INTO releases VALUES (5, 0, 1, 'teachers', 1) ON CONFLICT (query) DO UPDATE SET label = 0",
    "INSERT INTO releases VALUES (5, 0, 1, 'teachers', 1)",
    "INSERT INTO releases VALUES (6, 0, 1, 'teachers', 99)",
    "INSERT INTO entries SELECT 99, kind, body, previous, '\\x00', written_at FROM entries LIMIT 1",
    "SET session_replication_role = replica; DELETE FROM batches",
    "UPDATE batches SET teachers = 1",
)


def test_the_tables_themselves_are_append_only(kept: InDatabase, cluster: Cluster) -> None:
    head = verify(kept).head
    for statement in REFUSED:
        with pytest.raises(
            AssertionError, match=r"append-only|without gaps|duplicate key|foreign key"
        ):
            cluster.ask(f'SET search_path = "{kept.schema}"; {statement}', database="pate")
    assert verify(kept).head == head


#: Changes, one after the other, and the object that each adds to those found.
ALTERED = (
    ("DROP TRIGGER releases_no_update ON releases", "releases_no_update"),
    ("ALTER TABLE entries DISABLE TRIGGER entries_in_order", "entries_in_order"),
    (
        "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "  # noqa: ISC004
        "$$ BEGIN RETURN NEW; END $$",
        "refuse_change",
    ),
    ("ALTER FUNCTION in_order() SET search_path = public", "function in_order"),
    ("CREATE RULE quiet AS ON INSERT TO releases DO INSTEAD NOTHING", "quiet"),
    ("ALTER TABLE batches ENABLE ROW LEVEL SECURITY", "relation batches"),
    ("ALTER TABLE predictions SET UNLOGGED", "relation predictions"),
    ("ALTER TABLE releases ADD COLUMN note text", "releases.note"),
    ("ALTER TABLE releases ALTER label TYPE bigint", "releases.label"),
    ("ALTER TABLE releases ALTER round DROP NOT NULL", "releases.round"),
    ("ALTER TABLE releases DROP CONSTRAINT releases_pkey", "constraint releases_pkey"),
    (
        "CREATE OR REPLACE TRIGGER batches_no_delete BEFORE DELETE ON batches FOR EACH ROW "  # noqa: ISC004
        "WHEN (OLD.teachers = 0) EXECUTE FUNCTION refuse_change(); "
        "ALTER TABLE batches ENABLE ALWAYS TRIGGER batches_no_delete",
        "batches_no_delete",
    ),
    ("CREATE TABLE notes (note text)", "relation notes"),
    ("CREATE TABLE more () INHERITS (entries)", "relation entries"),
)


def test_altered_tables_do_not_hold(kept: InDatabase, cluster: Cluster, tmp_path: Path) -> None:
    place, before = copied(cluster, kept, tmp_path), ""
    for change, named in ALTERED:
        assert named not in before
        cluster.ask(f'SET search_path = "{place.schema}"; {change}', database="pate")
        for opened in (verify, Ledger.open):
            with pytest.raises(LedgerError, match=f"altered: .*{named}") as found:
                opened(place)
        before = str(found.value)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET body = replace(body, '\"labels_released\":1', '\"labels_released\":2')",
        "UPDATE entries SET written_at = 'never' WHERE seq = 2",
        "UPDATE releases SET label = 0",
        "UPDATE batches SET counts = set_byte(counts, 5, get_byte(counts, 5) # 1)",
        "DELETE FROM batches WHERE first = 0",
        "DELETE FROM releases",
        "INSERT INTO releases VALUES (19, 0, 1, 'teachers', 1)",
    ],
)
def test_a_tampered_ledger_is_found(
    kept: InDatabase, cluster: Cluster, tmp_path: Path, change: str
) -> None:
    place = copied(cluster, kept, tmp_path)
    verify(place)
    tamper(cluster, place, change)
    with pytest.raises(LedgerError):
        verify(place)


MARKS = {
    "the privacy ledger of a PATE campaign, layout 2": (StateError, "a newer version"),
    "the privacy ledger of a PATE campaign, layout 0": (StateError, "an older version"),
    "the privacy ledger of a PATE campaign": (LedgerError, "not a ledger"),
    "mine": (LedgerError, "not a ledger"),
}


def test_a_schema_of_another_version_is_called_that_and_not_altered(
    kept: InDatabase, cluster: Cluster, tmp_path: Path
) -> None:
    place = copied(cluster, kept, tmp_path)
    cluster.ask(f'CREATE TABLE "{place.schema}".later (at integer)', database="pate")
    for mark, (error, words) in MARKS.items():
        cluster.ask(f"COMMENT ON SCHEMA \"{place.schema}\" IS '{mark}'", database="pate")
        for opened in (verify, Ledger.open):
            with pytest.raises(error, match=words):
                opened(place)


READ_BY_OTHERS = {
    "the schema": ('GRANT USAGE ON SCHEMA "{schema}" TO PUBLIC', "PUBLIC: schema pate_"),
    "a table": ("GRANT SELECT ON batches TO onlooker", "onlooker: table batches"),
    "a column": ("GRANT SELECT (counts) ON batches TO onlooker", "onlooker: table batches"),
    "another owner": ("ALTER TABLE batches OWNER TO admin", "admin: table batches"),
}


@pytest.fixture(scope="module")
def onlooker(cluster: Cluster) -> Iterator[str]:
    """An unrelated role."""
    cluster.ask("CREATE ROLE onlooker")
    yield "onlooker"
    cluster.ask("DROP OWNED BY onlooker", database="pate")
    cluster.ask("DROP ROLE onlooker")


@pytest.mark.parametrize("name", READ_BY_OTHERS)
def test_a_ledger_that_others_may_read_is_refused(
    kept: InDatabase, cluster: Cluster, onlooker: str, tmp_path: Path, name: str
) -> None:
    change, words = READ_BY_OTHERS[name]
    place = copied(cluster, kept, tmp_path)
    path = f'SET search_path = "{place.schema}"'
    cluster.ask(f"{path}; {change.format(schema=place.schema)}", database="pate")
    for opened in (verify, Ledger.open):
        with pytest.raises(StateError, match=f"accessible to other roles .*{words}"):
            opened(place)


def test_a_ledger_is_its_owners_whatever_the_database_gives_to_new_tables(
    cluster: Cluster, onlooker: str, place: InDatabase
) -> None:
    given = "ALTER DEFAULT PRIVILEGES FOR ROLE pate {} ALL ON {} {} PUBLIC, onlooker"
    try:
        for kind in ("TABLES", "SCHEMAS"):
            cluster.ask(given.format("GRANT", kind, "TO"), database="pate")
        start(place, make_spec(queries=20)).close()
        assert verify(again(place)).phase == "labelling"
        for role in (
            onlooker,
            "pg_read_all_settings",
        ):  # the second has what PUBLIC has, and no more
            found = cluster.ask(
                f"SELECT has_schema_privilege('{role}', '{place.schema}', 'USAGE'),"
                f" has_table_privilege('{role}', '\"{place.schema}\".batches', 'SELECT')",
                database="pate",
            )
            assert found == ["f|f"]
    finally:
        for kind in ("TABLES", "SCHEMAS"):
            cluster.ask(given.format("REVOKE", kind, "FROM"), database="pate")


def test_what_an_error_says_holds_no_votes(ledger: Ledger, place: InDatabase) -> None:
    """PostgreSQL reports the whole row that violates a rule."""
    with pytest.raises(LedgerError) as told, ledger._database.writing() as connection:
        connection.execute("INSERT INTO batches SELECT * FROM batches")
    assert "duplicate key" in str(told.value)
    with pytest.raises(LedgerError) as null, ledger._database.writing() as connection:
        connection.execute(
            "INSERT INTO batches SELECT 90, count, NULL, responders, salt, counts, entry FROM batches"
        )
    assert "null value" in str(null.value)
    for text in (str(told.value), str(null.value)):
        assert "(0)" not in text
        assert "avon" not in text
        assert "\\x" not in text
