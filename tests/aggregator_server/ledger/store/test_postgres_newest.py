"""A ledger in PostgreSQL is continued only if it is known to be the newest, and by one server."""

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
from tests.support.server.in_postgres import again, tamper


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path) -> InDatabase:
    made = cluster.place(tmp_path)
    return replace(made, anchor=tmp_path / made.schema.removeprefix("pate_") / made.anchor.name)


@pytest.fixture
def heads(place: InDatabase) -> tuple[Head, Head]:
    """Of a ledger in which two queries were answered: before that, and the newest."""
    with start(place, make_spec(queries=20)) as ledger:
        before = ledger.state().head
        charge = ledger.charge([1, 2])
        ledger.release(charge, [Outcome(1, "teachers", charge.events)] * 2)
        return before, ledger.state().head


def goes_back(cluster: Cluster, place: InDatabase, head: Head) -> None:
    """An old dump is put back."""
    tamper(cluster, place, f"DELETE FROM releases; DELETE FROM entries WHERE seq > {head.seq}")  # noqa: S608


def resumed(place: InDatabase, *options: str) -> tuple[int, str]:
    """Exit code and last line of `pate-server resume`."""
    folder = place.anchor.parent
    done = CliRunner().invoke(
        app, ["resume", "--home", str(folder.parent), "--campaign", folder.name, "--no-page",
              "--ledger", place.address.url, *options],
    )  # fmt: skip
    error = done.exception
    return getattr(error, "exit_code", done.exit_code), str(error)


# Is it the newest?


def test_a_folder_that_is_lost_takes_no_database_at_its_word(
    cluster: Cluster, place: InDatabase, heads: tuple[Head, Head]
) -> None:
    older, newest = heads
    place.anchor.unlink()
    goes_back(cluster, place, older)
    code, text = resumed(place)
    assert code == UsageError.exit_code
    assert f"ends at entry {older.seq}, is labelling" in text
    assert "--head" in text
    assert "\n" not in text
    code, text = resumed(place, "--head", str(newest))
    assert (code, "was in this ledger and is missing" in text) == (LedgerError.exit_code, True)
    assert not place.anchor.exists()  # nothing vouches for it
    # Nor does a new campaign of that name continue it.
    with pytest.raises(UsageError, match="--head"):
        Ledger.open(place_of(place.anchor.parent, cluster.url))
    assert verify(place).head == older
    # The head that the older one has is in it: that is the operator's word.
    with Ledger.open(place, head=older) as ledger:
        assert ledger.state().head == older
    assert again(place).head == older


def test_a_lost_folder_goes_on_with_the_newest_head(
    place: InDatabase, heads: tuple[Head, Head]
) -> None:
    shutil.rmtree(place.anchor.parent)
    # Past the ledger: it is the public set that it stops at.
    code, text = resumed(place, "--head", str(heads[1]))
    assert (code, "name it with --public" in text) == (StateError.exit_code, True)
    assert again(place).head == heads[1]
    # From now on the folder knows, and asks no more.
    code, text = resumed(place)
    assert (code, "name it with --public" in text) == (StateError.exit_code, True)
    assert verify(again(place)).phase == "labelling"
    # Or it is closed there, since that was asked for.
    code, text = resumed(place, "--close")
    assert (code, "name it with --public" in text) == (StateError.exit_code, True)
    assert verify(again(place)).phase == "finished"


def test_what_is_closed_answers_nothing_more(
    cluster: Cluster, place: InDatabase, heads: tuple[Head, Head]
) -> None:
    shutil.rmtree(place.anchor.parent)
    goes_back(cluster, place, heads[0])
    for _ in range(2):  # a second time it has nothing to do
        code, text = resumed(place, "--close")
        assert (code, "name it with --public" in text) == (StateError.exit_code, True)
        told = verify(again(place))
        assert (told.phase, told.head.seq) == ("finished", heads[0].seq + 1)
    with Ledger.open(again(place)) as ledger, pytest.raises(StateError):
        ledger.charge([5])


def test_a_folder_that_knew_of_no_entry_knows_the_first_alone(
    place: InDatabase, heads: tuple[Head, Head]
) -> None:
    write_anchor(replace(place, head=None))
    with pytest.raises(UsageError, match="--head"):
        Ledger.open(again(place))


# One writer.


@pytest.fixture
def twin(cluster: Cluster, place: InDatabase, heads: tuple[Head, Head]) -> Iterator[InDatabase]:
    """The ledger in another writable database, with its own locks."""
    cluster.ask("CREATE DATABASE twin TEMPLATE pate OWNER pate")
    yield replace(again(place), address=Address.parse(cluster.url.replace("/pate?", "/twin?")))
    cluster.ask("DROP DATABASE twin WITH (FORCE)")


def test_two_databases_and_one_folder_are_one_server(place: InDatabase, twin: InDatabase) -> None:
    with Ledger.open(again(place)) as ledger:
        kept = place.anchor.read_bytes()
        write_anchor(twin)  # the address leads to the other one now
        with pytest.raises(StateError, match=r"ledger\.json is in use by another server"):
            Ledger.open(again(place))
        place.anchor.write_bytes(kept)
        ledger.charge([7])
    with Ledger.open(again(place)) as ledger:
        assert ledger.state().spent == verify(again(place)).spent


@pytest.mark.parametrize("change", ["older", "moved", "gone"])
def test_a_folder_that_says_something_else_ends_the_server(
    place: InDatabase, twin: InDatabase, heads: tuple[Head, Head], change: str
) -> None:
    with Ledger.open(again(place)) as ledger:
        if change == "gone":
            place.anchor.unlink()
        else:
            write_anchor(twin if change == "moved" else place.at(heads[0]))
        with pytest.raises(StateError, match="differs from what this server wrote last"):
            ledger.charge([7])
        with pytest.raises(StateError, match="open it again"):
            ledger.charge([8])


# Put back from a backup.


@pytest.fixture
def fails_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the restore end between the database's commit and the campaign's folder."""
    real = verify

    def refuse(place: object, *heads: Head) -> object:
        if isinstance(place, InDatabase):
            monkeypatch.undo()
            raise DiskError("no room")
        return real(place, *heads)  # type: ignore[arg-type]

    return lambda: monkeypatch.setattr("aggregator_server.ledger.backup.verify.verify", refuse)


@pytest.mark.parametrize("close", [False, True])
def test_a_restore_that_was_cut_short_is_done_again(
    cluster: Cluster,
    place: InDatabase,
    heads: tuple[Head, Head],
    tmp_path: Path,
    fails_after_the_commit: Callable[[], None],
    *,
    close: bool,
) -> None:
    folder, copy = place.anchor.parent, tmp_path / "copy"
    backup.back_up(folder, copy)
    shutil.rmtree(folder)
    cluster.ask(f'DROP SCHEMA "{place.schema}" CASCADE', database="pate")
    head = None if close else str(heads[1])
    fails_after_the_commit()
    with pytest.raises(DiskError, match="no room"):
        backup.restore(copy, folder, head=head, close=close, database=cluster.url)
    assert not folder.exists()
    done = backup.restore(copy, folder, head=head, close=close, database=cluster.url)
    told = verify(again(place))
    assert (str(told.head), told.phase) == (done["head"], "finished" if close else "labelling")
    assert json.loads(place.anchor.read_text())["head"] == done["head"]
    assert sorted(path.name for path in folder.iterdir()) == ["ledger.json"]


@pytest.mark.parametrize("close", [False, True])
def test_a_schema_that_went_on_is_not_the_backup(
    cluster: Cluster, place: InDatabase, heads: tuple[Head, Head], tmp_path: Path, *, close: bool
) -> None:
    folder, copy = place.anchor.parent, tmp_path / "copy"
    backup.back_up(folder, copy)
    with Ledger.open(again(place)) as ledger:
        newest = ledger.charge([5]).entry
    shutil.rmtree(folder)
    head = None if close else str(heads[1])
    with pytest.raises(StateError, match="exists already, and is not this backup"):
        backup.restore(copy, folder, head=head, close=close, database=cluster.url)
    assert not folder.exists()
    assert verify(place).head.seq == newest
