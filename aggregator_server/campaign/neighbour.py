"""Release of a whole matrix: one charge, one draw of noise, one release; and what rounds show.

Neighbour votes, where records vote in rounds those of one round, and teachers' votes in one release.

The model that a round shows is a function of released sums and the public set. It is in the ledger before
a party is asked with it, so after a restart a round shows the same one. The last one, which no round shows,
is for the student.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from aggregator_server.campaign.labelling import begin_round, outcomes_of, summary_of
from pate.codes import GRID, code_of
from pate.errors import StateError
from pate.features.space import codes_over
from pate.mechanisms import MatrixMechanism
from pate.rounds.plan import plan_of, rare_length, told_apart
from pate.rounds.solver import Released, Start, next_model
from pate.runtime import failpoints

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from aggregator_server.campaign.labelling import RoundSummary
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.state import CampaignState
    from pate.data.values import Inputs
    from pate.noise.exact import Noise
    from pate.rounds.model import RoundModel


class NeighbourRelease:
    """All noisy counts and their labels are released at once."""

    def label(self, ledger: Ledger, noise: Noise) -> RoundSummary:
        """Release the noisy matrix, unless it was tried before; see ``Release.label``."""
        state = begin_round(ledger, noise)
        round_, queries = state.round, list(state.voted.rows)
        mechanism = state.mechanism(round_)
        if not isinstance(mechanism, MatrixMechanism):
            raise StateError(f"{mechanism.name} answers query by query")
        if len(state.released) == round_:
            return summary_of(state, round_, exhausted=False)
        if state.limit - state.spent < state.charged(len(queries))[1]:
            # An interrupted process has spent the charge: a second draw of noise would be uncharged.
            which = f"release of round {round_}" if state.spec.in_rounds else "single release"
            return summary_of(
                state,
                round_,
                exhausted=True,
                remark=f"the {which} was interrupted after its charge; nothing of it was released",
            )
        charge = ledger.charge(queries)
        failpoints.reach("charge-recorded")
        noisy = mechanism.released(ledger.counts_of(queries), noise)
        failpoints.reach("noise-drawn")
        who: Literal["teachers", "records"] = "teachers" if mechanism.of_teachers else "records"
        outcomes = outcomes_of(mechanism.labels(noisy), who, charge.events)
        state = ledger.release(charge, outcomes, noisy=noisy)
        failpoints.reach("release-recorded")
        return summary_of(state, round_, exhausted=False)


class Models:
    """Makes the models of one campaign."""

    def __init__(self, public: Inputs, ledger: Ledger) -> None:
        self._public = public
        self._ledger = ledger

    @cached_property
    def _rows(self) -> NDArray[np.float64]:
        """(n, d) the codes of the public rows, of length 1 at most."""
        return codes_over(self._public, self._ledger.state().voted.rows) / GRID

    def shown(self) -> bytes:
        """Return the model that the current round shows, from the ledger; none in the first."""
        state = self._ledger.state()
        return b"" if state.round == 1 else state.models[state.round - 2].to_bytes()

    def following(self) -> RoundModel | None:
        """Return the model that follows from all releases; None if it is in the ledger, or there is none."""
        state = self._ledger.state()
        if len(state.released) != state.round or len(state.models) >= state.round:
            return None
        start, kappa = start_of(state), kappa_of(state)
        present = [
            len(each.responders) / len(state.batches[0].responders) for each in state.batches
        ]
        # Parties that were lost had as many records as the others, as far as anyone knows.
        released = [
            Released(model, each.counts / GRID / part, each.sigma / GRID / part)
            for model, each, part in zip(state.models, state.released[1:], present[1:], strict=True)
        ]
        return next_model(self._rows, start, released, kappa)


def start_of(state: CampaignState) -> Start:
    """Return what the class counts of the first round say."""
    first = state.released[0]
    return Start.of_first(first.counts[0] / GRID, first.sigma / GRID, state.spec.voted_for)


def kappa_of(state: CampaignState) -> float:
    """Return how much arrays are cut; the number of records is that of the first round."""
    # Noise is for altered records, the rule for added ones, which change half as much.
    mu = math.sqrt(2 * state.cap) / 2
    places, start = code_of(state.spec.code).places, start_of(state)
    classes = told_apart(len(state.classes), several=start.several)
    rare = rare_length(start.shares.tolist())
    return plan_of(classes, places, start.records, mu, several=start.several, rare=rare).kappa
