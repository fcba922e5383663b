"""The benchmark that tells where a campaign's time goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.costs.waiting import Stage, phases
from benchmarks.record import ROOT
from pate.errors import DataError

pytestmark = pytest.mark.slow


def test_the_phases_of_a_real_campaign_add_up(tmp_path: Path) -> None:
    run = Stage.make(tmp_path, ROOT, parties=3).play(0)
    assert all(each >= 0 for each in run.seconds.values())
    assert sum(run.seconds.values()) == pytest.approx(run.total, abs=0.01)
    assert run.server > 0
    assert run.party > 0


def test_a_phase_whose_end_is_not_told_is_named() -> None:
    told = [{"time": "2026-11-01T12:00:05+00:00", "text": "new campaign 'c0'"}]
    with pytest.raises(DataError, match=r"'waiting for parties: '.*'SuperLink starts'"):
        phases(told, 0.0)
