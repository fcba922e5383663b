"""Checks that the votes of a roster can reach a campaign's threshold.

Every query pays for the threshold test, answered or not. A campaign whose threshold is above all
possible votes would waste its whole budget. The number of votes is known when the roster is
complete, before anything is asked or charged.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pate.codes import code_of
from pate.errors import UsageError
from pate.mechanisms import (
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedInteractiveGNMax,
    InteractiveGNMax,
    MatrixMechanism,
)
from pate.noise.shares import total_sigma

if TYPE_CHECKING:
    from fractions import Fraction

    from aggregator_server.ledger.state import CampaignState

#: A campaign is refused if the probability of any label by noise alone is below this.
_CHANCE: Final = 1e-3


def require_reachable(state: CampaignState) -> str | None:
    """Refuse a campaign that would spend its budget without a label, whatever the votes.

    If all votes of the roster are below the threshold, only noise can reach it. The noise of a test
    is sub-Gaussian, P[X >= d] <= exp(-d^2 / (2 sigma^2)), also the discrete one (Canonne et al.
    2020), which bounds the probability that this happens for any query.

    Returns a warning if only noise can reach it, but is likely to; None if votes can.
    """
    mechanism, spec, sigma = state.mechanism(1), state.spec, 0.0
    parties, classes = len(state.roster), len(state.classes)
    most, what = state.teachers, f"{state.teachers} teachers"
    if isinstance(mechanism, ConfidentGNMax | InteractiveGNMax):
        sigma, draws = float(mechanism.sigma1), 1
    elif isinstance(mechanism, DistributedConfidentGNMax | DistributedInteractiveGNMax):
        sigma, draws = _carried(mechanism.share, parties), classes
    elif isinstance(mechanism, MatrixMechanism):
        each = state.roster[0].teachers  # for neighbour votes, the same for all
        least, largest = code_of(mechanism.code).bounds(parties * each)
        most = largest - least
        what = f"{parties} parties with at most {each} votes on a count"
        # A label needs a lead: the difference of two noisy counts, of any two classes.
        draws = classes * (classes - 1)
    else:
        return None  # it answers every query
    short = mechanism.threshold - most
    if short <= 0:
        return None
    queries = min(spec.max_queries or spec.queries, spec.queries)
    if isinstance(mechanism, MatrixMechanism):
        each_chance = mechanism.shares.overturns(short, parties if mechanism.noise_inside else 1)
    else:
        each_chance = math.exp(-(short**2) / (2 * sigma**2))
    chance = draws * queries * each_chance
    fault = f"{what} never reach the threshold of {mechanism.threshold}, even if all agree"
    if chance < _CHANCE:
        raise UsageError(
            f"{fault}: the campaign would spend its budget and release no label. Nothing was asked or "
            f"spent; start another --campaign with a --threshold of at most {most}"
        )
    return f"{fault}: labels are released only where noise happens to lift the votes"


def _carried(share: Fraction, parties: int) -> float:
    """Return the sigma of noise shares of all parties, rounded up."""
    return float(total_sigma(share, parties)) + 1 / 64
