"""A campaign of enrolled parties with two crashes, and one of few labels that says so.

Over the direct link: over Flower enrolled parties take part in ``test_flower_campaign.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tests.support.world.commands import Campaign, DirectCampaign
from tests.support.world.sites import Sites, lenient

if TYPE_CHECKING:
    from pathlib import Path


NAMES = ("east", "north", "south", "up", "west")
QUERIES = 30


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The campaign, run to its end."""
    folder = tmp_path_factory.mktemp("enrolled")
    sites = Sites(folder, NAMES).deal()
    with DirectCampaign(folder / "campaign", sites) as campaign:
        campaign.enrol(lenient(5, 3))
        started = campaign.serve(
            sites.public(0, QUERIES), "--min-parties", "3", "--colluders", "0", "--patience", "8",
            "--aggregator", "gnmax", "--sigma2", "2", "--vote-proofs", parties=",".join(NAMES),
        )  # fmt: skip
        # Two of five die: one when its shares have left, one when its masked votes have.
        points = {"south": "shares-sent", "up": "masked-sent"}
        joined = {name: campaign.party(name, failpoint=points.get(name)) for name in NAMES}
        started.ends(0)
        for name, one in joined.items():
            one.ends(-9 if name in points else 0)
        return campaign


def test_labels_come_out_and_the_ledger_holds(told: Campaign) -> None:
    assert told.verified()["labels_released"] == QUERIES
    # "up" died after its masked votes had left: they are in the sum all the same.
    assert told.body("votes")["responders"] == ["east", "north", "up", "west"]


def test_what_left_is_in_each_partys_own_ledger(told: Campaign) -> None:
    shown = told.does("ledger", "party", "ledger", "--home", told.sites.home("east"))
    assert "nobody saw our votes alone" in shown.output
    assert "with the votes of east, north, up, west" in shown.output
    assert "epsilon" in shown.output


def test_the_published_statement_agrees_with_it(told: Campaign) -> None:
    text = told.exported().privacy
    told.verify_at("west", text)
    told.verify_at("west", text.replace('"teachers": ', '"teachers": 1'), 22)


@pytest.mark.slow
def test_few_labels_are_said_on_each_screen(sites: Sites, tmp_path: Path) -> None:
    from student.cli import app

    with DirectCampaign(tmp_path, sites) as campaign:
        public = sites.public(300, 60)
        server = campaign.serve(
            public, "--aggregator", "gnmax", "--epsilon", "8", parties="north,south"
        )
        for name in ("north", "south"):
            campaign.party(name)
        server.ends(0)
        early, _, late = server.text.partition("the roster is complete")
        assert "10 teachers at each party are too few for this budget" in early
        for said in (
            "so the server chose it: sigma2",
            "of 10 classes if these are equally frequent (else: --rarest): few",
            "`pate plan --aggregator",
        ):
            assert said in late
        assert "a guess" not in late
        after = late.partition("labels released")[2]
        assert "no label of" in after
        assert "expect a poor student" in after
        campaign.exported()
    typed = [
        "--labels",
        tmp_path / "labels.json",
        "--public",
        public,
        "--out",
        tmp_path / "s",
        "--steps",
        "1",
    ]
    done = CliRunner().invoke(app, ["train", *map(str, typed)])
    assert done.exit_code == 0, done.output
    before = done.stderr.partition("training the final student")[0]
    assert "expect a poor student" in before
    assert "`pate plan --aggregator gnmax" in before
