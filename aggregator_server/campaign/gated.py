"""A gated campaign: one batch is answered, and a private test decides whether all its labels are released.

The votes determine only the mechanism's answers and whether the gate opens. The list of queries,
the gate and the charge are fixed before the votes are read, and the charge is durable before noise
is drawn. Labels are drawn only after the gate has opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aggregator_server.campaign.labelling import begin_round, outcomes_of, summary_of
from pate.accounting import nearby
from pate.accounting.bounds.laws import DiscreteGaussian
from pate.accounting.bounds.sharp import GaussianSetting, sharp_bound
from pate.accounting.bounds.theorem6_plus import Table
from pate.accounting.composition import Gate
from pate.accounting.units import Neighbours
from pate.campaign.order import public_order
from pate.errors import StateError
from pate.mechanisms import ConfidentGNMax, GNMax
from pate.runtime import failpoints

if TYPE_CHECKING:
    from aggregator_server.campaign.labelling import RoundSummary
    from aggregator_server.ledger.ledger import Ledger
    from pate.accounting.bounds.sharp import Tables
    from pate.accounting.gate import GateParameters
    from pate.accounting.nearby import Batch, Bound
    from pate.mechanisms import Mechanism
    from pate.noise.exact import Noise
    from pate.votes import Counts


class GatedRelease:
    """All labels of one batch are released together, if a private test passes."""

    def label(self, ledger: Ledger, noise: Noise) -> RoundSummary:
        """Answer the one batch, the first in public order, unless it was tried; see ``Release.label``."""
        state = begin_round(ledger, noise)
        if not isinstance(state.composition, Gate):
            raise StateError(
                "this campaign is not gated: its labels are released as they are answered"
            )
        if state.left < 1:  # an interrupted process has spent it: there is no second attempt
            return summary_of(
                state,
                1,
                exhausted=True,
                remark="the one attempt at this batch was interrupted: there are no labels",
            )
        queries = list(public_order(state.spec.id, state.spec.queries)[: state.spec.max_queries])
        gate, mechanism = state.composition.parameters, state.mechanism(1)
        bound = bound_of(mechanism, gate.order, Table.build)
        charge = ledger.charge(queries)
        failpoints.reach("charge-recorded")
        # Not earlier: an interruption after reading votes would waste the attempt.
        rows = ledger.counts_of(queries)
        batch = batch_of(rows, mechanism, gate.order, bound)
        labels = labels_behind(gate, batch, rows, mechanism, noise)
        failpoints.reach("noise-drawn")
        state = ledger.release(
            charge,
            outcomes_of(labels or [None] * len(queries), "teachers", charge.events),
            gate="closed" if labels is None else "open",
        )
        failpoints.reach("release-recorded")
        return summary_of(state, 1, exhausted=False, remark=f"the gate is {state.gate}")


def bound_of(mechanism: Mechanism, order: float, tables: Tables) -> Bound:
    """Return the data-dependent bound function of a gate, at its order. It reads no votes."""
    setting, neighbours = _setting(mechanism)
    return sharp_bound(setting, neighbours, np.array([order]), tables)


def batch_of(rows: Counts, mechanism: Mechanism, order: float, bound: Bound) -> Batch:
    """Return the gate's input from (queries, classes) votes. Secret."""
    setting, neighbours = _setting(mechanism)
    return nearby.batch_of(rows, setting, neighbours, bound, np.array([order]))


def labels_behind(
    gate: GateParameters, batch: Batch, rows: Counts, mechanism: Mechanism, noise: Noise
) -> list[int | None] | None:
    """Return the labels of a batch, None if the gate stays closed. Call once, after the charge."""
    if not gate.decide(batch, noise):
        return None
    return [each.label for each in mechanism.answer_all(rows, noise)]


def _setting(mechanism: Mechanism) -> tuple[GaussianSetting, Neighbours]:
    """Return the bound's parameters of the mechanism, with the noise that is actually drawn."""
    if isinstance(mechanism, GNMax):
        setting = GaussianSetting(label=DiscreteGaussian(float(mechanism.sigma)))
    elif isinstance(mechanism, ConfidentGNMax):
        setting = GaussianSetting(
            label=DiscreteGaussian(float(mechanism.sigma2)),
            check=DiscreteGaussian(float(mechanism.sigma1)),
            threshold=mechanism.threshold,
        )
    else:
        raise StateError(f"no data-dependent bound is known for {mechanism.name}")
    return setting, Neighbours(mechanism.votes_per_unit)
