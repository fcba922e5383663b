"""Tables of a ledger in PostgreSQL: append-only, the newest only, and by one server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aggregator_server.cli.main import app
from aggregator_server.ledger import backup
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store.place import Address, InDatabase, place_of, write_anchor
from aggregator_server.ledger.verify import verify
from pate.errors import DiskError, LedgerError, StateError, UsageError
from pate.mechanisms import Outcome
from pate.storage.hash_chain import Head
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


@pytest.fixture
def anchored(cluster: Cluster, tmp_path: Path) -> InDatabase:
    made = cluster.place(tmp_path)
    return replace(made, anchor=tmp_path / made.schema.removeprefix("pate_") / made.anchor.name)


@pytest.fixture
def heads(anchored: InDatabase) -> tuple[Head, Head]:
    """Of a ledger in which two queries were answered: before that, and the newest."""
    with start(anchored, make_spec(queries=20)) as ledger:
        before = ledger.state().head
        charge = ledger.charge([1, 2])
        ledger.release(charge, [Outcome(1, "teachers", charge.events)] * 2)
        return before, ledger.state().head


def goes_back(cluster: Cluster, anchored: InDatabase, head: Head) -> None:
    """An old dump is put back."""
    tamper(cluster, anchored, f"DELETE FROM releases; DELETE FROM entries WHERE seq > {head.seq}")  # noqa: S608


def resumed(anchored: InDatabase, *options: str) -> tuple[int, str]:
    """Exit code and last line of `pate-server resume`."""
    folder = anchored.anchor.parent
    done = CliRunner().invoke(
        app, ["resume", "--home", str(folder.parent), "--campaign", folder.name, "--no-page",
              "--ledger", anchored.address.url, *options],
    )  # fmt: skip
    error = done.exception
    return getattr(error, "exit_code", done.exit_code), str(error)


# Is it the newest?


def test_a_folder_that_is_lost_takes_no_database_at_its_word(
    cluster: Cluster, anchored: InDatabase, heads: tuple[Head, Head]
) -> None:
    older, newest = heads
    anchored.anchor.unlink()
    goes_back(cluster, anchored, older)
    code, text = resumed(anchored)
    assert code == UsageError.exit_code
    assert f"ends at entry {older.seq}, is labelling" in text
    assert "--head" in text
    assert "\n" not in text
    code, text = resumed(anchored, "--head", str(newest))
    assert (code, "was in this ledger and is missing" in text) == (LedgerError.exit_code, True)
    assert not anchored.anchor.exists()  # nothing vouches for it
    # Nor does a new campaign of that name continue it.
    with pytest.raises(UsageError, match="--head"):
        Ledger.open(place_of(anchored.anchor.parent, cluster.url))
    assert verify(anchored).head == older
    # The head that the older one has is in it: that is the operator's word.
    with Ledger.open(anchored, head=older) as ledger:
        assert ledger.state().head == older
    assert again(anchored).head == older


def test_a_lost_folder_goes_on_with_the_newest_head(
    anchored: InDatabase, heads: tuple[Head, Head]
) -> None:
    shutil.rmtree(anchored.anchor.parent)
    # Past the ledger: it is the public set that it stops at.
    code, text = resumed(anchored, "--head", str(heads[1]))
    assert (code, "name it with --public" in text) == (StateError.exit_code, True)
    assert again(anchored).head == heads[1]
    # From now on the folder knows, and asks no more.
    code, text = resumed(anchored)
    assert (code, "name it with --public" in text) == (StateError.exit_code, True)
    assert verify(again(anchored)).phase == "labelling"
    # Or it is closed there, since that was asked for.
    code, text = resumed(anchored, "--close")
    assert (code, "name it with --public" in text) == (StateError.exit_code, True)
    assert verify(again(anchored)).phase == "finished"


def test_what_is_closed_answers_nothing_more(
    cluster: Cluster, anchored: InDatabase, heads: tuple[Head, Head]
) -> None:
    shutil.rmtree(anchored.anchor.parent)
    goes_back(cluster, anchored, heads[0])
    for _ in range(2):  # a second time it has nothing to do
        code, text = resumed(anchored, "--close")
        assert (code, "name it with --public" in text) == (StateError.exit_code, True)
        told = verify(again(anchored))
        assert (told.phase, told.head.seq) == ("finished", heads[0].seq + 1)
    with Ledger.open(again(anchored)) as ledger, pytest.raises(StateError):
        ledger.charge([5])


def test_a_folder_that_knew_of_no_entry_knows_the_first_alone(
    anchored: InDatabase, heads: tuple[Head, Head]
) -> None:
    write_anchor(replace(anchored, head=None))
    with pytest.raises(UsageError, match="--head"):
        Ledger.open(again(anchored))


# One writer.


@pytest.fixture
def twin(cluster: Cluster, anchored: InDatabase, heads: tuple[Head, Head]) -> Iterator[InDatabase]:
    """The ledger in another writable database, with its own locks."""
    cluster.ask("CREATE DATABASE twin TEMPLATE pate OWNER pate")
    yield replace(again(anchored), address=Address.parse(cluster.url.replace("/pate?", "/twin?")))
    cluster.ask("DROP DATABASE twin WITH (FORCE)")


def test_two_databases_and_one_folder_are_one_server(
    anchored: InDatabase, twin: InDatabase
) -> None:
    with Ledger.open(again(anchored)) as ledger:
        kept = anchored.anchor.read_bytes()
        write_anchor(twin)  # the address leads to the other one now
        with pytest.raises(StateError, match=r"ledger\.json is in use by another server"):
            Ledger.open(again(anchored))
        anchored.anchor.write_bytes(kept)
        ledger.charge([7])
    with Ledger.open(again(anchored)) as ledger:
        assert ledger.state().spent == verify(again(anchored)).spent


@pytest.mark.parametrize("change", ["older", "moved", "gone"])
def test_a_folder_that_says_something_else_ends_the_server(
    anchored: InDatabase, twin: InDatabase, heads: tuple[Head, Head], change: str
) -> None:
    with Ledger.open(again(anchored)) as ledger:
        if change == "gone":
            anchored.anchor.unlink()
        else:
            write_anchor(twin if change == "moved" else anchored.at(heads[0]))
        with pytest.raises(StateError, match="differs from what this server wrote last"):
            ledger.charge([7])
        with pytest.raises(StateError, match="open it again"):
            ledger.charge([8])


# Put back from a backup.


@pytest.fixture
def fails_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the restore end between the database's commit and the campaign's folder."""
    real = verify

    def refuse(anchored: object, *heads: Head) -> object:
        if isinstance(anchored, InDatabase):
            monkeypatch.undo()
            raise DiskError("no room")
        return real(anchored, *heads)  # type: ignore[arg-type]

    return lambda: monkeypatch.setattr("aggregator_server.ledger.backup.verify.verify", refuse)


@pytest.mark.parametrize("close", [False, True])
def test_a_restore_that_was_cut_short_is_done_again(
    cluster: Cluster,
    anchored: InDatabase,
    heads: tuple[Head, Head],
    tmp_path: Path,
    fails_after_the_commit: Callable[[], None],
    *,
    close: bool,
) -> None:
    folder, copy = anchored.anchor.parent, tmp_path / "copy"
    backup.back_up(folder, copy)
    shutil.rmtree(folder)
    cluster.ask(f'DROP SCHEMA "{anchored.schema}" CASCADE', database="pate")
    head = None if close else str(heads[1])
    fails_after_the_commit()
    with pytest.raises(DiskError, match="no room"):
        backup.restore(copy, folder, head=head, close=close, database=cluster.url)
    assert not folder.exists()
    done = backup.restore(copy, folder, head=head, close=close, database=cluster.url)
    told = verify(again(anchored))
    assert (str(told.head), told.phase) == (done["head"], "finished" if close else "labelling")
    assert json.loads(anchored.anchor.read_text())["head"] == done["head"]
    assert sorted(path.name for path in folder.iterdir()) == ["ledger.json"]


@pytest.mark.parametrize("close", [False, True])
def test_a_schema_that_went_on_is_not_the_backup(
    cluster: Cluster, anchored: InDatabase, heads: tuple[Head, Head], tmp_path: Path, *, close: bool
) -> None:
    folder, copy = anchored.anchor.parent, tmp_path / "copy"
    backup.back_up(folder, copy)
    with Ledger.open(again(anchored)) as ledger:
        newest = ledger.charge([5]).entry
    shutil.rmtree(folder)
    head = None if close else str(heads[1])
    with pytest.raises(StateError, match="exists already, and is not this backup"):
        backup.restore(copy, folder, head=head, close=close, database=cluster.url)
    assert not folder.exists()
    assert verify(anchored).head.seq == newest
