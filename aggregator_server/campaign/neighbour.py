"""Neighbour votes: one charge for the whole matrix, one draw of noise, one release of all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator_server.campaign.labelling import RoundSummary, check_round, require_fit, summary_of
from pate.errors import StateError
from pate.mechanisms import MatrixMechanism
from pate.runtime import failpoints

if TYPE_CHECKING:
    from aggregator_server.campaign.labelling import Votes
    from aggregator_server.ledger.ledger import Ledger
    from pate.mechanisms import Mechanism
    from pate.noise.exact import Noise


def release_matrix(
    ledger: Ledger,
    counts: Votes,
    mechanism: Mechanism,
    noise: Noise,
    *,
    allow_simulated: bool = False,
) -> RoundSummary:
    """Release the noisy matrix of a campaign and the labels made of it, if that was not tried before.

    Args:
        ledger: of the campaign.
        counts: (queries, classes) int64, summed votes of the whole public set.
        mechanism: the one that the roster fixed.
        noise: where the noise comes from; not asked if the parties' is in the counts.
        allow_simulated: see :func:`~aggregator_server.campaign.labelling.label_round`.

    Raises:
        UsageError: if the noise source is not fit for use.
        StateError: if the campaign is of another kind, or in another phase.
        LedgerError: if the mechanism is not the roster's, or votes are missing.
    """
    simulated = require_fit(noise, allow_simulated=allow_simulated)
    state = ledger.state()
    if not isinstance(mechanism, MatrixMechanism):
        raise StateError(f"{mechanism.name} answers query by query")
    check_round(state, counts, mechanism, 1, None)
    queries = list(state.voted.rows)
    if state.noisy is not None:
        return summary_of(state, 1, exhausted=False)
    if state.left < state.charged(len(queries))[1]:
        # An interrupted process has spent it: a second draw of noise nobody has paid for.
        return summary_of(state, 1, exhausted=True)
    charge = ledger.charge(queries, simulated=simulated)
    failpoints.reach("charge-recorded")
    noisy = mechanism.released(counts[queries], noise)
    failpoints.reach("noise-drawn")
    state = ledger.release_matrix(charge, noisy)
    failpoints.reach("release-recorded")
    return summary_of(state, 1, exhausted=False)
