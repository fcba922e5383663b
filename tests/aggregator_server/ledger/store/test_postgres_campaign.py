"""Campaigns of real processes with ledgers in one database: killed, disconnected, resumed, finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggregator_server.ledger.store.place import place_of
from aggregator_server.ledger.verify import read_campaign, verify
from pate.errors import UnreachableError
from simulation.programs import Program
from tests.support.postgres import Cluster, LossyLink
from tests.support.world.commands import Homes, Play


def serving_options(play: Play, name: str) -> list[str]:
    return [
        "--port", str(play.port), "--student-port", str(play.student_port), "--home", str(play.home),
        "--campaign", name, "--linger", "0", "--patience", "1", "--no-page", "--json",
    ]  # fmt: skip


def serve(play: Play, name: str, url: str, failpoint: str | None = None) -> Program:
    return play.run(
        "server", "aggregator_server", "--public", play.public, "--parties", "north,south,west",
        "--epsilon", "1000", "--delta", "1e-4", "--aggregator", "gnmax", "--sigma2", "1", "--ledger", url,
        *serving_options(play, name), failpoint=failpoint,
    )  # fmt: skip


def resume(play: Play, name: str, failpoint: str | None = None) -> Program:
    return play.run(
        "server", "aggregator_server", "resume", *serving_options(play, name), failpoint=failpoint
    )


def ends_in_one_line(server: Program, code: int) -> str:
    server.ends(code)
    *progress, last = server.lines
    assert last.startswith("pate-server: ")
    assert all(line[:2].isdecimal() for line in progress), server.text
    return last


@pytest.mark.parametrize("committed", [False, True])
def test_a_database_lost_as_it_commits_a_charge(
    homes: Homes, tmp_path: Path, cluster: Cluster, committed: bool
) -> None:
    """Nothing is released that was not charged; a charge whose answer was lost stays spent."""
    name = cluster.place(tmp_path).schema.removeprefix("pate_")
    link = LossyLink(cluster.folder / name, cluster, committed=committed)
    with homes.play(tmp_path / "third") as play:
        parties = [play.party(each) for each in homes.names]
        server = serve(play, name, link.url)
        assert "the database does not answer" in ends_in_one_line(
            server, UnreachableError.exit_code
        )
        assert link.done.is_set()
        cluster.start()
        place = place_of(play.home / name)
        before, _ = read_campaign(place)
        assert (before.phase, len(before.labels), before.spent) == (
            "labelling", 0, before.open_charge.cost if before.open_charge else 0
        )  # fmt: skip
        assert (before.open_charge is not None) == committed
        resume(play, name).ends(0)
        for party in parties:
            party.ends(0)
    lost = len(before.open_charge.queries) if before.open_charge else 0
    told, (state, _) = verify(place), read_campaign(place)
    assert (told.phase, told.queries_asked) == ("finished", 100 - lost)
    assert state.wasted == before.spent
    link.close()
