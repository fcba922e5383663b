"""The cost of a campaign's labels by every available bound.

The data-dependent bounds are functions of the exact votes. They are computed here, on public records, for
comparison with the papers' figures, which are of the same kind. For private records none of them may be
published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from benchmarks.methods.campaign import Outcome
from pate.accounting.account import Account, Figures, LaplaceSetting, account
from pate.accounting.bounds.laws import DiscreteGaussian
from pate.accounting.bounds.sharp import GaussianSetting
from pate.accounting.choices import BoundName
from pate.accounting.units import Neighbours
from pate.mechanisms import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Mechanism,
    round_predictions,
)  # fmt: skip
from pate.storage.table_cache import cached_table
from pate.votes import Counts

#: One changed record changes one vote of every query: the papers' neighbours, and ours.
NEIGHBOURS: Final = Neighbours(1, "change")


def setting_of(mechanism: Mechanism) -> LaplaceSetting | GaussianSetting | None:
    """Return the accountant's form of a mechanism, None if it works on noisy sums."""
    if isinstance(mechanism, LNMax):
        return LaplaceSetting(gamma=float(1 / mechanism.scale), discrete=True)
    if isinstance(mechanism, GNMax):
        return GaussianSetting(label=DiscreteGaussian(float(mechanism.sigma)))
    if isinstance(mechanism, ConfidentGNMax | InteractiveGNMax):
        return GaussianSetting(
            label=DiscreteGaussian(float(mechanism.sigma2)),
            check=DiscreteGaussian(float(mechanism.sigma1)),
            threshold=float(mechanism.threshold),
        )
    return None


def bounds_of(outcome: Outcome) -> dict[str, tuple[float, float]]:
    """Return epsilon by bound: with the improved conversion or exact, and with the papers' conversion.

    Rounds add up order by order. Empty if there is no data-dependent bound for the mechanism, or if exact
    votes never existed: then the campaign's cap is its only figure.
    """
    state = outcome.state
    found: list[Account] = []
    for round_, asked in sorted(outcome.asked.items()):
        mechanism = state.mechanism(round_)
        setting = setting_of(mechanism)
        if setting is None:
            return {}
        if not asked:
            continue
        votes = outcome.counts[list(asked)]
        margins = None
        if mechanism.interactive:
            probabilities = outcome.predictions[round_][list(asked)]
            margins = (votes - round_predictions(probabilities, state.teachers)).max(axis=1)
        found.append(cost_of_votes(votes, setting, state.spec.delta, margins))
    return add_up(found)


def cost_of_votes(
    votes: Counts,
    setting: LaplaceSetting | GaussianSetting,
    delta: float,
    margins: Counts | None = None,
) -> Account:
    """Return the cost of answering every row of ``votes`` once; margins are those of an interactive round."""
    return account(
        votes, setting, delta=delta, neighbours=NEIGHBOURS, tables=cached_table, margins=margins
    )


def add_up(accounts: Sequence[Account]) -> dict[str, tuple[float, float]]:
    """Return the bounds over several rounds: divergences at one order add up."""
    if not accounts:
        return {}
    return {name: _sum(name, [each.figures for each in accounts]) for name in accounts[0].figures}


def _sum(name: BoundName, parts: Sequence[Mapping[BoundName, Figures]]) -> tuple[float, float]:
    figures = [part[name] for part in parts]
    rdp = np.sum([each.rdp for each in figures], axis=0)
    whole = Figures(rdp, figures[0].orders, figures[0].delta)
    exact = figures[0].exact if len(figures) == 1 else None
    return whole.improved if exact is None else exact, whole.classical
