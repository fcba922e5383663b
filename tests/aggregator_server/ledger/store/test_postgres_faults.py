"""Faults of a ledger in PostgreSQL: at this server, at the database, in between, in whole campaigns."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from aggregator_server.campaign.labelling import CHUNK
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.state import ReleasedLabel
from aggregator_server.ledger.store import stores
from aggregator_server.ledger.store.place import ANCHOR_FILE, Address, InDatabase, place_of
from aggregator_server.ledger.verify import read_campaign, verify
from pate.accounting.composition import total_cost
from pate.data.values import Images
from pate.errors import DiskError, LedgerError, StateError, UnreachableError
from pate.mechanisms import Outcome
from pate.votes import Histogram
from tests.support.needs import others_slow, require
from tests.support.postgres import Cluster, LossyLink
from tests.support.server.campaigns import (
    NAMES,
    label,
    label_to_the_end,
    make_spec,
    make_votes,
    start,
)
from tests.support.server.in_postgres import again, sessions, tamper
from tests.support.world.in_process import World, killed_at


def from_elsewhere(place: InDatabase) -> InDatabase:
    """The same ledger, for a home without its anchor."""
    return replace(place, anchor=place.anchor.parent / "elsewhere" / ANCHOR_FILE, head=None)


class InDatabaseWorld(World):
    """Three parties, and a server whose ledger is in a database."""

    def __init__(self, root: Path, place: InDatabase) -> None:
        pixels = np.random.default_rng(4).integers(0, 255, (100, 4, 4, 1), dtype=np.uint8)
        super().__init__(root, ("a", "b", "c"), Images(pixels))
        self._place = place

    def place(self, number: int = 0) -> InDatabase:  # type: ignore[override]  # as a ledger takes it
        return self._place if number or not self._place.anchor.exists() else again(self._place)


# One writer.


@pytest.mark.slow
def test_two_servers_never_share_a_ledger(
    ledger: Ledger, place: InDatabase, cluster: Cluster
) -> None:
    with pytest.raises(StateError, match="in use by another server"):
        Ledger.open(again(place))
    code = (
        "import sys, pathlib; from aggregator_server.ledger.ledger import Ledger;"
        "from aggregator_server.ledger.store.place import place_of\n"
        "from pate.errors import StateError\n"
        "try: Ledger.open(place_of(pathlib.Path(sys.argv[1])))\n"
        "except StateError as e: sys.exit(e.exit_code)"
    )
    command = [sys.executable, "-c", code, str(place.anchor.parent)]
    assert subprocess.run(command, check=False, timeout=60).returncode == StateError.exit_code
    # Nor while it is made, nor under the same name from another home.
    with pytest.raises(StateError, match="in use by another server"):
        Ledger.create(
            replace(place, anchor=place.anchor.parent / "other" / ANCHOR_FILE), make_spec()
        )
    ledger.charge([1])


@pytest.mark.slow
def test_who_lost_the_lock_writes_nothing_more(
    ledger: Ledger, place: InDatabase, cluster: Cluster
) -> None:
    charge = ledger.charge([1, 2])
    (session,) = sessions(cluster, place)
    assert cluster.ask(f"SELECT pg_terminate_backend({session})") == ["t"]
    assert cluster.ask(f"SELECT pg_terminate_backend({session}, 10000)") in (["t"], ["f"])
    with pytest.raises(StateError, match=r"ledger\.json is in use by another server"):
        Ledger.open(again(place))
    # It is somebody else's now.
    with Ledger.open(from_elsewhere(place), head=ledger.state().head) as other:
        assert other.state().spent == charge.cost
        with pytest.raises(UnreachableError, match=r"does not answer.*resume"):
            ledger.release(charge, [Outcome(None, None, charge.events[:1])] * 2)
        with pytest.raises(StateError, match="open it again"):
            ledger.charge([3])
        with pytest.raises(UnreachableError), ledger._database.writing():
            pytest.fail("it connected again")
        assert other.state().head == read_campaign(place)[0].head
        paid = other.charge([1, 2])
        other.release(paid, [Outcome(0, "teachers", paid.events)] * 2)
    assert verify(place).wasted == charge.cost


def test_two_campaigns_in_one_database_are_apart(cluster: Cluster, tmp_path: Path) -> None:
    places = [cluster.place(tmp_path / name) for name in ("one", "two")]
    specs = [make_spec(name=name, id=f"{at:032x}") for at, name in enumerate(("one", "two"))]
    with start(places[0], specs[0]) as one, start(places[1], specs[1], voted=False) as two:
        label(one)
        one.end_round(wants_predictions=False)
        one.finish()
        assert (len(two.state().labels), two.state().phase) == (0, "voting")
        assert verify(places[1]).head == two.state().head
        assert len(verify(places[0]).labels) == len(one.state().labels) > 0
    assert verify(places[0]).spec.id != verify(places[1]).spec.id


# The power goes.


@pytest.mark.parametrize("failpoint", ["noise-drawn", "release-recorded"])
def test_a_killed_server_goes_on_where_its_ledger_stands(
    cluster: Cluster, tmp_path: Path, failpoint: str
) -> None:
    place = cluster.place(tmp_path / failpoint)
    folder = tmp_path / place.schema.removeprefix("pate_")
    before: dict[int, ReleasedLabel] = {}
    spent = Fraction(0)
    for at in (f"{failpoint}:2", "entry-written", None):
        work = partial(label_to_the_end, place_of(folder, cluster.url))
        assert killed_at(at, work) == (at is not None)
        held = place_of(folder)
        told, (state, _) = verify(held), read_campaign(held)
        assert before.items() <= state.labels.items(), "a label changed or went away"
        assert spent <= state.spent <= state.cap
        before, spent = dict(state.labels), state.spent
        open_ = state.open_charge.cost if state.open_charge else 0
        wasted = 0 if failpoint == "release-recorded" else CHUNK
        assert state.wasted + open_ == wasted * total_cost(state.currency, state.mechanism(1).worst)
    assert (told.phase, len(told.labels)) == ("finished", len(before))


@pytest.mark.slow
def test_a_server_killed_as_it_makes_its_ledger_starts_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    folder = tmp_path / cluster.place(tmp_path).schema.removeprefix("pate_")
    for at, there in (("ledger-drafted", False), (None, True)):
        work = partial(label_to_the_end, place_of(folder, cluster.url))
        assert killed_at(at, work) == (at is not None)
        # Without its address: from the first moment on the folder knows where its ledger is.
        held = place_of(folder)
        assert isinstance(held, InDatabase)
        assert stores.exists(held) is there
    assert verify(place_of(folder)).phase == "finished"


@pytest.mark.slow
def test_a_database_killed_between_charge_and_release(
    ledger: Ledger, place: InDatabase, cluster: Cluster
) -> None:
    first = ledger.charge([5, 3])
    ledger.release(
        first, [Outcome(1, "teachers", first.events), Outcome(None, None, first.events[:1])]
    )
    charge = ledger.charge([1, 2])
    before = ledger.state()
    cluster.kill()
    try:
        with pytest.raises(UnreachableError) as told:
            ledger.release(charge, [Outcome(1, "teachers", charge.events)] * 2)
        assert "\n" not in str(told.value)
        with pytest.raises(StateError, match="open it again"):
            ledger.charge([6])
        with pytest.raises(UnreachableError, match="cannot connect"):
            Ledger.open(from_elsewhere(place))
        with pytest.raises(UnreachableError, match="cannot connect"):
            read_campaign(again(place))
    finally:
        cluster.start()
    assert ledger.counts().shape == (20, 3)  # what is read, is read again
    ledger.close()
    with Ledger.open(again(place)) as taken_up:
        assert taken_up.state() == before
        with pytest.raises(LedgerError, match="not open"):
            taken_up.release(charge, [Outcome(1, "teachers", charge.events)] * 2)
        label(taken_up)
        assert taken_up.state().labels[5].label == 1
    assert verify(place).wasted == charge.cost


@pytest.mark.slow
def test_a_database_that_goes_back_in_time_is_not_gone_on_with(
    ledger: Ledger, place: InDatabase, cluster: Cluster
) -> None:
    """An old dump put back, or a standby that had missed the last seconds."""
    old = ledger.state().head
    charge = ledger.charge([1, 2])
    ledger.close()
    tamper(cluster, place, f"DELETE FROM entries WHERE seq = {charge.entry}")  # noqa: S608
    # By itself the rest is a sound ledger, and whoever does not know of more takes it for one.
    assert verify(replace(place, head=None)).head == old
    for opened in (verify, Ledger.open):
        with pytest.raises(
            LedgerError, match=f"entry {charge.entry} was in this ledger and is missing"
        ):
            opened(again(place))
    cluster.ask(f'DROP SCHEMA "{place.schema}" CASCADE', database="pate")
    for each in (stores.exists, Ledger.open, lambda place: Ledger.create(place, make_spec())):
        with pytest.raises(StateError, match=f"up to its entry {charge.entry}.*is missing"):
            each(again(place))


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_database_that_may_forget_is_refused(
    ledger: Ledger, place: InDatabase, cluster: Cluster, tmp_path: Path, setting: str
) -> None:
    head = ledger.state().head
    cluster.ask(f"ALTER SYSTEM SET {setting} = off")
    try:
        cluster.reload()
        cluster.until(f"SHOW {setting}", "off")
        with pytest.raises(StateError, match=f"{setting} = off.*power cut"):
            ledger.charge([1])  # also one that was opened before
        for opened in (Ledger.open, lambda place: Ledger.create(place, make_spec())):
            with pytest.raises(StateError, match=f"{setting} = off"):
                opened(cluster.place(tmp_path / "new"))
    finally:
        cluster.ask(f"ALTER SYSTEM RESET {setting}")
        cluster.reload()
        cluster.until(f"SHOW {setting}", "on")
    ledger.close()
    assert verify(place).head == head


def test_every_commit_waits_for_the_disk_whatever_the_role_is_set_to(
    cluster: Cluster, place: InDatabase
) -> None:
    cluster.ask("ALTER ROLE pate SET synchronous_commit = off")
    cluster.ask("ALTER ROLE pate SET idle_session_timeout = '1s'")
    try:
        with start(place) as ledger, ledger._database.writing() as db:
            told = [
                db.execute(f"SHOW {name}").fetchone()[0]
                for name in ("synchronous_commit", "transaction_isolation", "idle_session_timeout")
            ]
        assert told == ["on", "serializable", "0"]
    finally:
        cluster.ask("ALTER ROLE pate RESET ALL")


@pytest.mark.slow
def test_a_full_disk_is_a_disk_error_and_the_ledger_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    disk = cluster.folder / "small"
    disk.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "pate-test", str(disk)],
        check=False, capture_output=True,
    ).returncode  # fmt: skip
    require(mounted, "a file system of its own (root, and leave to mount)")
    owner = cluster.folder.stat()
    try:
        os.chown(disk, owner.st_uid, owner.st_gid)
        cluster.ask(f"CREATE TABLESPACE small LOCATION '{disk}'")
        cluster.ask("CREATE DATABASE small OWNER pate TABLESPACE small")
        address = Address.parse(cluster.url.replace("/pate?", "/small?"))
        place = replace(cluster.place(tmp_path), address=address)
        spec = make_spec(queries=20_000)
        votes = Histogram(make_votes(20_000), 100)
        with start(place, spec, voted=False) as ledger:
            before = ledger.state()
            fill(disk / "ballast")
            with pytest.raises(DiskError, match=r"make room on the database's disk.*resume"):
                ledger.record_votes(0, votes, NAMES)
            with pytest.raises(StateError, match="open it again"):
                ledger.record_votes(0, votes, NAMES)
            (disk / "ballast").unlink()
            assert ledger.state() == before
        with Ledger.open(again(place)) as taken_up:
            assert taken_up.state() == before
            taken_up.record_votes(0, votes, NAMES)
        verify(again(place))
    finally:
        cluster.ask("DROP DATABASE IF EXISTS small WITH (FORCE)")
        cluster.ask("DROP TABLESPACE IF EXISTS small")
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(ballast: Path) -> None:
    """Take all room of a disk but for four blocks; the database may take some meanwhile."""
    block = os.statvfs(ballast.parent).f_frsize
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while os.statvfs(ballast.parent).f_bavail > 4:
            file.write(b"\0" * block)


@pytest.mark.parametrize("committed", others_slow([False, True], lambda committed: not committed))
def test_a_database_lost_as_it_commits_a_charge(
    tmp_path: Path, cluster: Cluster, committed: bool
) -> None:
    """Nothing is released that was not charged; a charge whose answer was lost stays spent."""
    place = cluster.place(tmp_path / "campaign")
    link = LossyLink(cluster.folder / place.schema, cluster, committed=committed)
    world = InDatabaseWorld(tmp_path, replace(place, address=Address.parse(link.url)))
    world.create(epsilon=1000.0, sigma2=Fraction(1))
    for name in world.names:
        world.parties.start(name)
    with pytest.raises(UnreachableError, match="the database does not answer"):
        world.serve()
    assert link.done.is_set()
    cluster.start()
    before = world.state()
    assert (before.phase, len(before.labels), before.spent) == (
        "labelling", 0, before.open_charge.cost if before.open_charge else 0
    )  # fmt: skip
    assert (before.open_charge is not None) == committed
    world.serve()
    lost = len(before.open_charge.queries) if before.open_charge else 0
    told, state = verify(world.place()), world.state()
    assert (told.phase, told.queries_asked) == ("finished", len(world.public) - lost)
    assert state.wasted == before.spent
    link.close()
