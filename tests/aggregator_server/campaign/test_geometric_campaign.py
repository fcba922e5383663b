"""A campaign of neighbour votes with geometric noise in the server's ledger: pure epsilon, delta 0."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator_server.campaign.runner import require_reachable
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.release_entries import CHAIN, replay
from aggregator_server.ledger.verify import read_campaign, verify
from aggregator_server.results.statement import privacy_statement, server_epsilon
from pate.errors import LedgerError, UsageError
from pate.formats.privacy_statement import PrivacyStatement
from pate.mechanisms import DistributedNeighbour, Neighbour
from tests.aggregator_server.campaign.test_matrix_campaign import (
    MOST,
    ROWS,
    SHARES,
    exact_counts,
    release,
    start,
)
from tests.support.tampering import forged

#: Scale 2: standard deviation 2.8.
PURE: dict[str, Any] = {"epsilon": 1.0, "delta": 0.0}
CASES = [PURE, PURE | {"aggregation": "masked", "colluders": 1}, PURE | SHARES]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.mark.parametrize("changes", CASES, ids=["plain", "masked", "shares"])
def test_one_charge_of_epsilon_pays_for_all_rows_at_delta_0(
    path: Path, changes: dict[str, Any]
) -> None:
    with start(path, **changes) as ledger:
        summary = release(ledger)
        state = ledger.state()
        assert (summary.asked, summary.exhausted) == (len(ROWS), False)
        assert state.currency.name == "pure"
        assert state.spent == state.cap == 1
        assert state.epsilon == 1.0
        assert {q: x.label for q, x in state.labels.items()} == {
            row: at % 3 for at, row in enumerate(ROWS)
        }
        said = privacy_statement(state)
        assert (said.epsilon, said.delta, said.composition, said.cap) == (1.0, 0.0, "pure", "1")
        assert PrivacyStatement.from_json(said.to_json()) == said
        if state.spec.sums.distributed:
            assert server_epsilon(state) == 1.0
            assert "of which 2 are counted" in said.noise
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    assert len(verify(path).labels) == len(ROWS)
    with Ledger.open(path) as ledger:
        assert ledger.state().currency.name == "pure"
        mechanism = ledger.state().mechanism(1)
        assert isinstance(mechanism, Neighbour | DistributedNeighbour)
        assert mechanism.scale == 2


def test_the_released_counts_carry_the_noise_that_is_said(path: Path) -> None:
    with start(path, **PURE) as ledger:
        release(ledger)
        noisy = ledger.state().noisy
    assert noisy is not None
    assert noisy.sigma == pytest.approx(2.7987, rel=1e-3)
    apart = np.abs(noisy.counts - exact_counts())
    assert 0 < apart.max() < 90  # 24 counts of scale 2 pass 45 scales with probability below 1e-17
    with start(path.with_name("shares.db"), **(PURE | SHARES)) as ledger:
        release(ledger)
        carried = ledger.state().noisy
    assert carried is not None
    assert carried.sigma == pytest.approx(2**0.5 * 2.7987, rel=1e-3)  # four shares, two counted


def test_a_patient_with_more_votes_needs_noise_in_proportion(path: Path) -> None:
    with start(path, unit="patient", votes_per_patient=5, **PURE) as ledger:
        mechanism = ledger.state().mechanism(1)
        assert isinstance(mechanism, Neighbour)
        assert mechanism.scale == 10
        assert ledger.state().cap == 1


def test_a_threshold_out_of_reach_is_refused(path: Path) -> None:
    """By the tail of geometric noise, which is heavier than that of Gaussian noise."""
    far = 4 * MOST + 300
    with (
        start(path, voted=False, threshold=Fraction(far), **PURE) as ledger,
        pytest.raises(UsageError, match="never reach the threshold"),
    ):
        require_reachable(ledger.state())
    with start(
        path.with_name("near.db"), voted=False, threshold=Fraction(4 * MOST + 20), **PURE
    ) as ledger:
        assert "only where noise happens to lift" in (require_reachable(ledger.state()) or "")


@pytest.mark.parametrize(
    "change",
    [
        {"composition": "zcdp", "cap": "1/2"},
        {"composition": "gdp"},
        {"cap": "2"},
        {
            "mechanisms": [
                {"mechanism": "neighbour", "threshold": 8, "sigma": "6", "votes_per_unit": 1}
            ]
        },
        {
            "mechanisms": [
                {"mechanism": "neighbour", "threshold": 8, "scale": "1", "votes_per_unit": 1}
            ]
        },
    ],
    ids=str,
)
def test_a_roster_with_other_costs_breaks_a_rule(path: Path, change: dict[str, Any]) -> None:
    with start(path, **PURE) as ledger:
        release(ledger)
    entries = read_campaign(path)[1]
    replay(forged(CHAIN, entries, 0, dict))
    with pytest.raises(LedgerError, match=r"^entry \d \("):
        replay(forged(CHAIN, entries, 2, lambda body: body.update(change)))
