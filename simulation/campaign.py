"""One campaign in this process, for simulations and benchmarks, with the server's code and noise."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.campaign.batches import BATCH_COUNTS
from aggregator_server.campaign.runner import Campaign, exchange_of
from aggregator_server.campaign.sums import Sums
from aggregator_server.exchange.attendance import Keyring
from pate.errors import UsageError
from pate.noise.exact import SystemNoise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aggregator_server.exchange.carrier import Carrier
    from aggregator_server.ledger.ledger import Ledger
    from party.voting.voter import Voter
    from pate.data.values import Inputs
    from pate.runtime.screen import Screen

#: Seconds to wait for the last parties once enough have voted. None is absent here; many are slow.
_PATIENCE_S: Final = 3600.0


def run_campaign(
    ledger: Ledger,
    public: Inputs,
    carrier: Carrier,
    *,
    screen: Screen,
    await_predictions: Callable[[int], object] | None = None,
    batch: int = BATCH_COUNTS,
    signing_key: Ed25519PrivateKey | None = None,
) -> None:
    """Run a campaign to its end, and notify the parties.

    Args:
        ledger: of the campaign, open and new.
        public: its public set.
        carrier: to the parties.
        screen: for lines and progress.
        await_predictions: called with a round; returns when the student's predictions for it are in
            the ledger. None: there is no student.
        batch: counts of one batch of votes, queries times classes.
        signing_key: the server's, by which parties know a series; None: a new one.

    Raises:
        UsageError: if an interactive campaign has no student.
        PateError: if the budget or the parties do not allow it.
    """
    if ledger.state().spec.interactive and await_predictions is None:
        raise UsageError("an interactive campaign needs a student between its rounds")
    keys = Keyring(signing_key or Ed25519PrivateKey.generate())
    exchange = exchange_of(ledger.state().spec, public, carrier, keys, screen)
    campaign = Campaign(
        ledger,
        public,
        Sums(ledger, public, exchange, screen, patience=_PATIENCE_S, batch=batch),
        noise=SystemNoise(),
        screen=screen,
        await_predictions=await_predictions or (lambda _: None),
    )
    campaign.run()
    campaign.farewell()


@contextlib.contextmanager
def carrier_to(voters: Sequence[Voter]) -> Iterator[Carrier]:
    """Yield the carrier to parties in threads of this process, each behind its Flower app."""
    from aggregator_server.flower.carrier import GridCarrier
    from aggregator_server.flower.local_grid import LocalGrid
    from party.flower.client_app import make_client_app

    grid = LocalGrid([make_client_app(voter.handle) for voter in voters])
    try:
        yield GridCarrier(grid)
    finally:
        grid.close()
