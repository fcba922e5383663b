"""Campaigns of real processes with ledgers in one database: killed, disconnected, resumed, finished."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from aggregator_server.ledger.store.place import ANCHOR_FILE, InDatabase, place_of
from aggregator_server.ledger.verify import read_campaign, verify
from aggregator_server.results.report import LEDGER_FILE
from pate.errors import StateError, UnreachableError, UsageError
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


def asked(play: Play, *command: str, code: int = 0) -> dict[str, Any]:
    """The output of a command about a campaign."""
    reader = play.run("server", "aggregator_server", *command, "--home", play.home, "--json")
    reader.ends(code)
    found = json.loads(reader.output)
    assert isinstance(found, dict)
    return found


def ends_in_one_line(server: Program, code: int) -> str:
    server.ends(code)
    *progress, last = server.lines
    assert last.startswith("pate-server: ")
    assert all(line[:2].isdecimal() for line in progress), server.text
    return last


@pytest.mark.slow
def test_two_campaigns_end_to_end_whatever_is_killed(
    homes: Homes, tmp_path: Path, cluster: Cluster
) -> None:
    name = cluster.place(tmp_path).schema.removeprefix("pate_")
    with homes.play(tmp_path / "first") as play:
        parties = [play.party(each) for each in homes.names]
        # The server is killed between charge and release.
        serve(play, name, cluster.url, failpoint="noise-drawn").ends(-signal.SIGKILL)
        place = place_of(play.home / name)
        assert isinstance(place, InDatabase)
        charged, _ = read_campaign(place)
        assert charged.open_charge is not None
        lost = len(charged.open_charge.queries)  # paid for, and for nothing
        assert not (play.home / name / LEDGER_FILE).exists()
        # Asked for without its address, and by others: it is not made anew.
        assert asked(play, "status", "--campaign", name)["phase"] == "labelling"
        checks = asked(play, "check", "--campaign", name, "--port", "0", "--student-port", "0")
        (line,) = [each for each in checks["checks"] if each["name"] == "database"]
        assert line["status"] == "ok"
        assert "synchronous_commit=on" in line["text"]
        assert "horse" not in json.dumps(checks)
        resume(play, name).ends(0)
        for party in parties:
            party.ends(0)
        state, _ = read_campaign(place)
        assert charged.open_charge.cost == state.wasted
        assert (verify(place).phase, verify(place).queries_asked) == ("finished", 100 - lost)
        again = serve(play, name, cluster.url)
        assert "is finished" in ends_in_one_line(again, StateError.exit_code)
        kept = play.run(
            "server", "aggregator_server", "ledger", "backup", "--home", play.home, "--campaign", name,
            "--out", tmp_path / "copy",
        )  # fmt: skip
        kept.ends(0)
        assert verify(tmp_path / "copy" / LEDGER_FILE).head == state.head
        for each, kind in (("back", LEDGER_FILE), (f"{name}-2", ANCHOR_FILE)):
            options = () if kind == LEDGER_FILE else ("--ledger", cluster.url)
            done = asked(
                play, "ledger", "restore", str(tmp_path / "copy"), "--campaign", each, *options
            )
            assert done["head"] == str(state.head)
            assert (play.home / each / kind).exists()
            told = asked(play, "ledger", "verify", "--campaign", each, "--head", str(state.head))
            assert told["head"] == str(state.head)


@pytest.mark.slow
def test_a_campaign_whose_database_is_killed(
    homes: Homes, tmp_path: Path, cluster: Cluster
) -> None:
    name = cluster.place(tmp_path).schema.removeprefix("pate_")
    with homes.play(tmp_path / "second") as play:
        server = serve(play, name, cluster.url)
        server.says("waiting for parties")
        with homes.play(tmp_path / "other") as other:
            second = serve(other, name, cluster.url)
            assert "in use by another server" in ends_in_one_line(second, StateError.exit_code)
            refused = serve(other, name, "postgresql://pate:hunter2@/pate")
            assert "password" in ends_in_one_line(refused, UsageError.exit_code)
            assert "hunter2" not in refused.text
        cluster.kill()
        cluster.start()
        # It is back, and somebody else might be the writer now: the first one writes no more.
        parties = [play.party(each) for each in homes.names]
        last = ends_in_one_line(server, UnreachableError.exit_code)
        assert "the database does not answer" in last
        assert "`pate-server resume`" in last
        place = place_of(play.home / name)
        assert read_campaign(place)[0].phase == "gathering"
        resume(play, name).ends(0)
        for party in parties:
            party.ends(0)
        told = verify(place)
        assert (told.phase, told.queries_asked) == ("finished", 100)
        assert told.wasted == 0


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
        assert (before.phase, before.labels, before.spent) == (
            "labelling", {}, before.open_charge.cost if before.open_charge else 0
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
