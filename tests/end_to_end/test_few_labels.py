"""A campaign whose budget pays for few labels says so: before, after its round, and to a student."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tests.support.processes.commands import Campaign

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.commands import Sites

pytestmark = pytest.mark.e2e


def test_few_labels_are_said_on_each_screen(sites: Sites, tmp_path: Path) -> None:
    from student.cli import app

    with Campaign(tmp_path, sites) as campaign:
        public = sites.public(300, 60)
        server = campaign.serve(
            public, "--aggregator", "gnmax", "--epsilon", "8", parties="north,south"
        )
        for name in ("north", "south"):
            campaign.party(name)
        server.ends(0)
        early, _, late = server.text.partition("the roster is complete")
        assert "if each party has 10 teachers, the budget pays for" in early
        assert "a guess: --classes" in early
        for said in (
            "so the server chose it: sigma2",
            "of 10 classes: few",
            "`pate plan --mechanism",
        ):
            assert said in late
        assert "a guess" not in late
        after = late.partition("labels released")[2]
        assert "no label of" in after
        assert "expect a poor student" in after
        file = tmp_path / "labels.json"
        campaign.run(
            "export", "aggregator_server", "export", "--out", file, "--home", campaign.home
        ).ends(0)
    typed = ["--labels", file, "--public", public, "--out", tmp_path / "s", "--steps", "1"]
    done = CliRunner().invoke(app, ["train", *map(str, typed)])
    assert done.exit_code == 0, done.output
    before = done.stderr.partition("training the final student")[0]
    assert "expect a poor student" in before
    assert "`pate plan --mechanism gnmax" in before
