"""Ctrl-C ends a server and a party in order, and leaves no process behind."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.world.commands import Campaign, stopped

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.world.sites import Sites

pytestmark = pytest.mark.slow


def test_ctrl_c_in_the_middle_of_a_vote_is_clean(sites: Sites, tmp_path: Path) -> None:
    with Campaign(tmp_path, sites) as campaign:
        server = campaign.serve(
            sites.public(480, 60), "--aggregator", "gnmax", "--sigma2", "1", parties="north,south"
        )
        north = campaign.party("north")
        # It dies before its votes are sent, so the campaign stands where it is.
        campaign.party("south", failpoint="voting").ends(-signal.SIGKILL)
        stopped(server, "pate-server", signal.SIGINT)
        assert campaign.verified()["phase"] == "voting"
        stopped(north, "pate-party", signal.SIGINT)
