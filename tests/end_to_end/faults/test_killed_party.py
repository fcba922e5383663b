"""An enrolled party that was killed is admitted again at once, and takes part."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from simulation.programs import children, is_alive, until
from tests.support.world.commands import Campaign, names_of
from tests.support.world.sites import Sites, lenient

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.programs import Program

pytestmark = pytest.mark.slow

REFUSED = "does not admit this party"


def test_it_is_back_at_once_and_the_living_one_of_two_stays(tmp_path: Path) -> None:
    sites = Sites(tmp_path).deal()
    with Campaign(tmp_path / "campaign", sites) as campaign:
        campaign.enrol(lenient(3, 2))
        # Flower considers a killed node connected for a minute, longer than the server's patience.
        server = campaign.serve(
            sites.public(0, 40), "--min-parties", "2", "--colluders", "0", "--patience", "40",
            "--aggregator", "gnmax", "--sigma2", "2", parties=",".join(sites.names),
        )  # fmt: skip
        first = campaign.party("south")
        server.says("south joined")

        # Its SuperNode cannot end with it, nor say that it has gone.
        (orphan,) = supernodes(first)
        os.kill(orphan, signal.SIGSTOP)
        first.kill()
        south = campaign.party("south")
        server.says("south is back")
        os.kill(orphan, signal.SIGCONT)
        until(lambda: not is_alive(orphan), "the SuperNode that was left behind has ended")

        # A copy of its home, while it lives.
        shutil.copytree(sites.home("south"), tmp_path / "homes" / "copy")
        copy = campaign.run(
            "copy", "party", "start", "--data", sites.data("south"), "--model", "linear",
            "--teachers", "3", "--home", tmp_path / "homes" / "copy",
        )  # fmt: skip
        copy.says(REFUSED)
        copy.kill()

        # Killed before it has given its keys; the others have given theirs.
        west = campaign.party("west")
        server.says("west joined")
        west.send(signal.SIGSTOP)
        north = campaign.party("north")
        server.says("the roster is complete")
        west.kill()
        west = campaign.party("west")
        for program in (server, north, south, west):
            program.ends(0)
        assert server.text.count("south is back") == 1
        for party in (south, west):
            assert REFUSED not in party.text
        assert campaign.body("votes")["responders"] == list(sites.names)
        campaign.verified()


def supernodes(party: Program) -> list[int]:
    return [pid for pid in children(party.pid) if b"supernode" in names_of(pid)]
