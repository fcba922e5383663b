"""A threshold above all possible votes is refused once the roster is known, before any request or charge."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.campaign.runner import Campaign, exchange_of, require_reachable
from aggregator_server.campaign.sums import Sums
from aggregator_server.exchange import exchange as exchange_module
from aggregator_server.exchange.attendance import Keyring
from aggregator_server.exchange.carrier import Arrival, Carrier
from aggregator_server.ledger.state import CampaignState
from pate.data.values import Images, content_hash
from pate.errors import UsageError
from pate.noise.exact import SystemNoise
from pate.runtime.screen import Screen
from tests.support.server.campaigns import label, make_spec, start

#: Number of teachers of the roster of these campaigns.
TEACHERS = 100
SMALL = {"sigma1": Fraction(5), "sigma2": Fraction(5)}


def state_of(place: Path, **changes: Any) -> CampaignState:
    with start(place / "ledger.db", make_spec(**changes), voted=False) as ledger:
        return ledger.state()


@pytest.mark.parametrize("threshold", [1, 75, TEACHERS])
def test_a_threshold_that_votes_can_reach_is_nobodys_business(
    tmp_path: Path, threshold: int
) -> None:
    state = state_of(tmp_path, threshold=Fraction(threshold), **SMALL)
    assert require_reachable(state) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": Fraction(5000), **SMALL},
        # 40 above all votes, at sigma 5: not once in a billion queries.
        {"threshold": Fraction(TEACHERS + 40), **SMALL},
        {"aggregator": "interactive-gnmax", "rounds": 2, "threshold": Fraction(5000), **SMALL},
        {
            "threshold": Fraction(5000), "aggregation": "masked", "noise": "distributed",
            "colluders": 1, "sigma2": Fraction(20),
        },
        {
            "aggregator": "neighbour", "threshold": Fraction(10**6), "most_votes": 25,
            "votes_per_patient": 1, "representatives": (0, 1, 2), "epsilon": 1.0,
        },
    ],
)  # fmt: skip
def test_one_that_no_votes_reach_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"never reach the threshold of .* at most 100$"):
        require_reachable(state_of(tmp_path, **changes))


def test_one_that_only_noise_reaches_is_said(tmp_path: Path) -> None:
    state = state_of(tmp_path, threshold=Fraction(TEACHERS + 1), **SMALL)
    assert "only where noise happens to lift the votes" in str(require_reachable(state))


def test_mechanisms_without_a_threshold_answer_all(tmp_path: Path) -> None:
    assert require_reachable(state_of(tmp_path, aggregator="gnmax", sigma2=Fraction(5))) is None


class _Nobody:
    """A carrier without parties, on which nothing may be sent."""

    store = None

    def returning(self) -> tuple[str, ...]:
        return ()

    def nodes(self) -> frozenset[int]:
        return frozenset()

    def receive(self) -> list[Arrival]:
        return []

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name}: something was asked of the parties")


@pytest.mark.parametrize("threshold", [5000, TEACHERS + 40])
def test_a_campaign_ends_before_it_asks_or_spends(
    tmp_path: Path, threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_module, "_RETURN_S", 0.0)  # no party comes back to be notified
    public = Images(np.arange(30 * 4, dtype=np.uint8).reshape(30, 2, 2, 1).copy())
    spec = make_spec(
        threshold=Fraction(threshold),
        queries=30,
        public_set=content_hash(public).hex(),
        schema=public.schema(),
        **SMALL,
    )
    with start(tmp_path / "ledger.db", spec, voted=False) as ledger:
        screen, keys = Screen("pate-server"), Keyring(Ed25519PrivateKey.generate())
        exchange = exchange_of(spec, public, cast("Carrier", _Nobody()), keys, screen)
        campaign = Campaign(
            ledger,
            public,
            Sums(ledger, public, exchange, screen, patience=0.0),
            noise=SystemNoise(),
            screen=screen,
            await_predictions=lambda _: None,
        )
        head = ledger.state().head
        for _ in range(2):  # and again when it is resumed
            with pytest.raises(UsageError, match="Nothing was asked or spent"):
                campaign.run()
        state = ledger.state()
        assert (state.head, state.queries_asked, state.phase) == (head, 0, "voting")


def test_one_that_has_votes_goes_on(tmp_path: Path) -> None:
    """Charges cannot be refunded: an older campaign runs to its end."""
    with start(tmp_path / "ledger.db", make_spec(threshold=Fraction(5000), **SMALL)) as ledger:
        assert label(ledger).labels == 0
