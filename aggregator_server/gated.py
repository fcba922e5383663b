"""A gated campaign: one batch is answered as a whole, and a private test lets its labels out or not.

The votes decide three things: what the mechanism says, whether the gate opens, and nothing else.
The list of queries, the gate and the charge are fixed before the votes are looked at, and the
charge is durable before noise is drawn. Labels are drawn only behind an open gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aggregator_server.labelling import RoundSummary, check_round, require_fit, summary_of
from pate.accounting.bounds.laws import DiscreteGaussian
from pate.accounting.bounds.sharp import GaussianSetting, sharp_bound
from pate.accounting.composition import Gate
from pate.accounting.publishing.nearby import Batch
from pate.accounting.units import Neighbours
from pate.errors import StateError
from pate.mechanisms import ConfidentGNMax, GNMax
from pate.runtime import failpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggregator_server.labelling import Votes
    from aggregator_server.ledger import Ledger
    from pate.accounting.bounds.sharp import Tables
    from pate.mechanisms import Mechanism
    from pate.noise import Noise


def label_gated(
    ledger: Ledger,
    counts: Votes,
    mechanism: Mechanism,
    noise: Noise,
    *,
    order: Sequence[int],
    tables: Tables,
    allow_simulated: bool = False,
) -> RoundSummary:
    """Answer the one batch of a gated campaign, if that was not tried before.

    Args:
        ledger: of the campaign.
        counts: (queries, classes) int64, summed votes of the whole public set.
        mechanism: the one that the roster fixed.
        noise: where the noise of gate and labels comes from.
        order: queries in the order to ask them; the first ``max_queries`` are the batch. It must
            not depend on votes.
        tables: where tables of Theorem 6+ come from.
        allow_simulated: see :func:`~aggregator_server.labelling.label_round`.

    Raises:
        UsageError: if the noise source is not fit for use.
        StateError: if the campaign is not a gated one, or in another phase.
        LedgerError: if the mechanism is not the roster's, or votes are missing.
    """
    simulated = require_fit(noise, allow_simulated=allow_simulated)
    state = ledger.state()
    if not isinstance(state.composition, Gate):
        raise StateError("this campaign is not gated: its labels leave as they are answered")
    check_round(state, counts, mechanism, 1, None)
    if state.left < 1:  # an interrupted process has spent it: no second attempt at the same votes
        return summary_of(state, 1, exhausted=True)
    most = state.spec.max_queries
    queries = list(order if most is None else order[:most])
    gate = state.composition.parameters
    setting, neighbours = _setting(mechanism)
    orders = np.array([gate.order])
    bound = sharp_bound(setting, neighbours, orders, tables)
    charge = ledger.charge(queries, simulated=simulated)
    failpoints.reach("charge-recorded")
    # Not before: what looks at votes and is then interrupted would be an attempt for nothing.
    batch = Batch.of(
        counts[queries],
        setting.label,
        neighbours,
        bound,
        orders=orders,
        checked=setting.check is not None,
    )
    labels = None
    if gate.decide(batch, noise):
        labels = [each.label for each in mechanism.answer_all(counts[queries], noise)]
    failpoints.reach("noise-drawn")
    state = ledger.release_batch(charge, labels)
    failpoints.reach("release-recorded")
    return summary_of(state, 1, exhausted=False)


def _setting(mechanism: Mechanism) -> tuple[GaussianSetting, Neighbours]:
    """Return what the bounds need to know of the mechanism, with the noise that is really drawn."""
    if isinstance(mechanism, GNMax):
        setting = GaussianSetting(label=DiscreteGaussian(float(mechanism.sigma)))
        return setting, Neighbours(mechanism.votes_per_unit)
    if isinstance(mechanism, ConfidentGNMax):
        setting = GaussianSetting(
            label=DiscreteGaussian(float(mechanism.sigma2)),
            check=DiscreteGaussian(float(mechanism.sigma1)),
            threshold=mechanism.threshold,
        )
        return setting, Neighbours(mechanism.votes_per_unit)
    raise StateError(f"no data-dependent bound is known of {mechanism.name}")
