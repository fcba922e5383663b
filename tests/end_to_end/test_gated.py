"""``pate-server --publish gated`` as real processes: all labels, none, and one attempt."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.needs import others_slow
from tests.support.world.commands import Campaign

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.world.sites import Sites

QUERIES = 40
#: Whatever six teachers say, 40 answers with this much noise cost less than the gate's target, so
#: that it stays closed with a probability below 1e-11.
WIDE = ("--aggregator", "gnmax", "--sigma2", "20")
#: With this little, 40 answers of six teachers cost more than any gate of epsilon 8 lets through.
NARROW = ("--aggregator", "gnmax", "--sigma2", "2")
GATED = ("--publish", "gated", "--epsilon", "8")


@pytest.mark.parametrize(
    ("noise", "gate", "labels"),
    others_slow([(WIDE, "open", QUERIES), (NARROW, "closed", 0)], lambda case: case[1] == "open"),
)
def test_all_labels_or_none(
    sites: Sites, tmp_path: Path, noise: tuple[str, ...], gate: str, labels: int
) -> None:
    with Campaign(tmp_path, sites) as campaign:
        server = campaign.serve(sites.public(300, QUERIES), *noise, *GATED, parties="north,south")
        for name in ("north", "south"):
            campaign.party(name)
        server.ends(0)
        server.says(f"the gate is {gate}")
        found = server.result()
        assert (found["gate"], found["labels_released"]) == (gate, labels)
        assert isinstance(found["epsilon"], float)
        assert 7.9 < found["epsilon"] <= 8.0
        verified = campaign.verified()
        assert (verified["composition"], verified["spent"]) == ("gate", "1")


@pytest.mark.slow
def test_an_attempt_that_was_killed_is_not_made_again(sites: Sites, tmp_path: Path) -> None:
    with Campaign(tmp_path, sites) as campaign:
        server = campaign.serve(
            sites.public(300, QUERIES), *WIDE, *GATED, parties="north,south",
            failpoint="noise-drawn",
        )  # fmt: skip
        for name in ("north", "south"):
            campaign.party(name)
        server.ends(-signal.SIGKILL)
        again = campaign.resume()
        again.ends(0)
        again.says("the one attempt at this batch was interrupted")
        assert (again.result()["gate"], again.result()["labels_released"]) == ("interrupted", 0)
        assert campaign.verified()["wasted"] == "1"


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
