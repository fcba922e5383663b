"""Another user, root in particular, continues a campaign: refused, and nothing is changed."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from pate.errors import StateError
from tests.support.needs import require

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.programs import Program
    from tests.support.world.commands import Homes

pytestmark = pytest.mark.slow

#: Nobody has this number.
STRANGER = 43_210


def give(folder: Path, user: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, user, user)


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Owner, mode and content of everything in a folder."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_uid,
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (folder, *folder.rglob("*"))
    }


def is_refused(command: Program) -> None:
    command.ends(StateError.exit_code)
    assert f"belongs to user {STRANGER}, and this is user root" in command.lines[-1]
    assert "Traceback" not in command.text


def test_root_does_not_go_on_in_the_home_of_another(homes: Homes, tmp_path: Path) -> None:
    require(os.geteuid() == 0, "root")
    with homes.play(tmp_path / "campaign") as play:
        server = play.serve(failpoint="noise-drawn:2")
        west = play.party("west", failpoint="votes-cached")
        others = [play.party(name) for name in homes.names if name != "west"]
        west.ends(-signal.SIGKILL)
        home = play.sites.home("west")
        give(home, STRANGER)
        before = state(home)
        is_refused(play.party("west"))
        assert state(home) == before
        give(home, 0)
        west = play.party("west")

        server.ends(-signal.SIGKILL)
        stand = play.stand()
        assert stand is not None
        assert stand.labels
        give(play.home, STRANGER)
        before = state(play.home)
        is_refused(play.serve())
        # Reading is another matter, and leaves nothing either.
        play.run(
            "server", "aggregator_server", "ledger", "verify", "--json", "--home", play.home
        ).ends(0)
        assert {name: owner for name, (owner, *_) in state(play.home).items()} == {
            name: owner for name, (owner, *_) in before.items()
        }
        give(play.home, 0)
        play.serve().ends(0)
        for party in (west, *others):
            party.ends(0)
        end = play.stand()
        assert end is not None
        end.follows(stand)
        assert end.phase == "finished"
        play.check_parties()
