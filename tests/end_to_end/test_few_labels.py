"""A campaign of few labels says so on each screen.

A student between the rounds of a campaign: README's, in ``docs/test_commands.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tests.support.world.commands import DirectCampaign

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.world.sites import Sites


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
