"""A whole campaign with a student between its rounds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from aggregator_server.results.report import entries
from pate.formats.labels import LabelSet
from tests.support.world.commands import Campaign, DirectCampaign

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.world.sites import Sites


@dataclass(frozen=True)
class Played:
    """A campaign that has ended, and the student that came of it."""

    campaign: Campaign
    student: Path
    trained: dict[str, object]


@pytest.fixture(scope="module")
def played(sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("rounds")
    public = sites.public(800, 150)
    with Campaign(folder, sites) as campaign:
        server = campaign.serve(
            public, "--aggregator", "interactive-gnmax", "--rounds", "3", "--threshold", "4",
            "--sigma1", "1", "--sigma2", "1/2", "--interactive-threshold", "3",
            "--linger", "120", parties="north,south",
        )  # fmt: skip
        parties = [campaign.party(name) for name in ("north", "south")]
        student = campaign.run(
            "student", "student", "train", "--server", f"127.0.0.1:{campaign.student_port}",
            "--token-file", campaign.home / "student.token",
            "--public", public, "--out", folder / "student", "--steps", "3", "--json",
        )  # fmt: skip
        for program in (*parties, student, server):
            program.ends(0)
        campaign.run(
            "export", "aggregator_server", "export", "--home", campaign.home,
            "--out", folder / "labels.json",
        ).ends(0)  # fmt: skip
        yield Played(campaign, folder / "student", student.result())


def test_the_student_publishes_what_the_server_states(played: Played) -> None:
    labels = LabelSet.from_json((played.campaign.folder / "labels.json").read_text())
    published = json.loads((played.student / "privacy.json").read_text())
    assert published == json.loads(labels.privacy)
    assert published["epsilon"] == played.trained["epsilon"]
    assert played.trained["labels"] == len(labels.rows) > 0
    assert published["ledger_head"] == played.campaign.verified()["head"]


def test_every_round_after_the_first_had_the_students_predictions(played: Played) -> None:
    kinds = [entry["kind"] for entry in entries(played.campaign.place)]
    marks = [kind for kind in kinds if kind in ("round-end", "predictions", "close")]
    assert marks == ["round-end", "predictions", "round-end", "predictions", "round-end", "close"]


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
        file = tmp_path / "labels.json"
        campaign.run(
            "export", "aggregator_server", "export", "--out", file, "--home", campaign.home
        ).ends(0)
    typed = ["--labels", file, "--public", public, "--out", tmp_path / "s", "--steps", "1"]
    done = CliRunner().invoke(app, ["train", *map(str, typed)])
    assert done.exit_code == 0, done.output
    before = done.stderr.partition("training the final student")[0]
    assert "expect a poor student" in before
    assert "`pate plan --aggregator gnmax" in before
