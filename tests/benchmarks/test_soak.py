"""The soak, a short one: whatever it breaks, all ledgers verify; and it finds a leak where there is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.soak.leaks import BOUNDS, Held, Slope

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_six_campaigns_with_faults(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", "--campaigns", "6", "--seed", "6",
         "--out", str(tmp_path / "soak")],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ledgers that verify: 6 of 6" in done.stdout
    told = json.loads((tmp_path / "soak" / "soak.json").read_text())
    assert len(told["campaigns"]) == 6
    assert sum(each["kills"] for each in told["campaigns"]) >= 2
    assert told["leaks"] == []
    assert (tmp_path / "soak" / "soak.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("growth", "verdict"), [(0.0, "flat"), (10.0, "grows, within the bound"), (100.0, "LEAKS")]
)
def test_growth_is_called_what_it_is(growth: float, verdict: str) -> None:
    rng = np.random.default_rng(0)
    campaigns = list(range(1, 201))
    values = [200_000 + growth * at + rng.normal(0, 300) for at in campaigns]
    values[150] += 50_000  # one that is far off says nothing
    slope = Slope.of(campaigns, values)
    assert slope is not None
    assert slope.low <= growth <= slope.high
    assert slope.verdict(BOUNDS["rss_kib"]) == verdict


def test_a_short_series_says_nothing() -> None:
    assert Slope.of(list(range(20)), [float(at) for at in range(20)]) is None


def test_what_a_process_holds_is_counted() -> None:
    before = Held.by(os.getpid())
    with open(os.devnull, "rb"), open(os.devnull, "rb"):  # noqa: PTH123
        more = Held.by(os.getpid())
    assert more.handles == before.handles + 2
    assert more.threads >= 1
    assert more.rss_kib > 10_000
