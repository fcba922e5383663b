"""``pate-server --publish gated`` as real processes.

A gate that stays closed, and an attempt that is interrupted: ``aggregator_server/campaign/test_gated.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.world.commands import Campaign

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.world.sites import Sites

QUERIES = 40
#: Whatever six teachers say, 40 answers with this much noise cost less than the gate's target, so
#: that it stays closed with a probability below 1e-11.
WIDE = ("--aggregator", "gnmax", "--sigma2", "20")
GATED = ("--publish", "gated", "--epsilon", "8")


def test_all_labels_come_through_an_open_gate(sites: Sites, tmp_path: Path) -> None:
    with Campaign(tmp_path, sites) as campaign:
        server = campaign.serve(sites.public(300, QUERIES), *WIDE, *GATED, parties="north,south")
        for name in ("north", "south"):
            campaign.party(name)
        server.ends(0)
        server.says("the gate is open")
        found = server.result()
        assert (found["gate"], found["labels_released"]) == ("open", QUERIES)
        assert isinstance(found["epsilon"], float)
        assert 7.9 < found["epsilon"] <= 8.0
        verified = campaign.verified()
        assert (verified["composition"], verified["spent"]) == ("gate", "1")


def test_a_gate_over_other_mechanisms_is_refused_before_anything_is_made(
    sites: Sites, tmp_path: Path
) -> None:
    with Campaign(tmp_path, sites) as campaign:
        server = campaign.serve(
            sites.public(300, QUERIES), "--aggregator", "lnmax", *GATED, parties="north,south"
        )
        server.ends(2)
        assert "only gnmax and confident-gnmax can be gated" in server.text
        assert not campaign.place.exists()
