"""One campaign in this process, for simulations and benchmarks, with the server's code and noise."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.campaign.batches import BATCH_COUNTS
from aggregator_server.campaign.runner import Campaign
from pate.errors import UsageError
from pate.noise.exact import SystemNoise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aggregator_server.exchange.wire import Wire
    from aggregator_server.ledger.ledger import Ledger
    from party.voting.voter import Voter
    from pate.data.values import Inputs
    from pate.runtime.screen import Screen

#: Seconds to wait for the last parties once enough have voted. None is absent here; many are slow.
_PATIENCE_S: Final = 3600.0


def run_campaign(
    ledger: Ledger,
    public: Inputs,
    wire: Wire,
    *,
    screen: Screen,
    # called with a round; returns when the student's predictions for it are in the ledger. None:
    # there is no student
    await_predictions: Callable[[int], object] | None = None,
    batch: int = BATCH_COUNTS,  # counts of one batch of votes, queries times classes
    # the server's, by which parties know a series; None: a new one
    signing_key: Ed25519PrivateKey | None = None,
) -> None:
    """Run a campaign to its end, and notify the parties."""
    if ledger.state().spec.interactive and await_predictions is None:
        raise UsageError("an interactive campaign needs a student between its rounds")
    campaign = Campaign(
        ledger,
        public,
        wire,
        noise=SystemNoise(),
        screen=screen,
        signing_key=signing_key or Ed25519PrivateKey.generate(),
        patience=_PATIENCE_S,
        await_predictions=await_predictions or (lambda _: None),
        batch=batch,
    )
    campaign.run()
    campaign.farewell()


@contextlib.contextmanager
def wire_to(voters: Sequence[Voter]) -> Iterator[Wire]:
    """Yield the wire to parties in threads of this process, each behind its Flower app."""
    from aggregator_server.flower.local_grid import LocalGrid
    from aggregator_server.flower.wire import GridWire
    from party.flower.client_app import make_client_app

    grid = LocalGrid([make_client_app(voter.handle) for voter in voters])
    try:
        yield GridWire(grid)
    finally:
        grid.close()
