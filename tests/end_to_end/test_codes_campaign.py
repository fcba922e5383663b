"""Neighbour votes by other codes as real processes: signed terms, masks, ledgers, student."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pate.codes import GRID, code_of
from pate.formats.labels import LabelSet
from simulation.commands import Sites
from tests.support.processes.commands import Campaign

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("code", ["spread-3", "dense-12"])
def test_a_campaign_of_another_code_runs_to_its_end(tmp_path: Path, code: str) -> None:
    sites = Sites(tmp_path).deal()
    with Campaign(tmp_path / "campaign", sites) as campaign:
        server = campaign.serve(
            sites.public(0, 200), "--aggregator", "neighbour", "--epsilon", "3",
            "--representatives", "12", "--code", code, "--noise-law", "gaussian",
            parties=",".join(sites.names),
        )  # fmt: skip
        parties = [campaign.party(name, "--votes", "neighbour") for name in sites.names]
        server.ends(0)
        for party in parties:
            party.ends(0)
        found = campaign.verified()
        assert found["spent"] == found["cap"]
        file = campaign.folder / "labels.json"
        campaign.run(
            "export", "aggregator_server", "export", "--out", file, "--home", campaign.home
        ).ends(0)
        noisy = LabelSet.from_json(file.read_text()).noisy
        assert noisy is not None
        assert noisy.code == code
        spread = code_of(code).in_words
        shown = campaign.run("books", "party", "ledger", "--home", sites.home(sites.names[0]))
        shown.ends(0)
        assert spread in " ".join(shown.output.replace("│", " ").split())
        total = float(noisy.counts.sum())
        chance = 6 * noisy.sigma * np.sqrt(noisy.counts.size)
        if not noisy.dense:
            assert abs(total - 3 * 360) < chance
        else:
            assert np.abs(noisy.counts).max() < 360 * GRID + 6 * noisy.sigma
