"""Release of a whole matrix: one charge, one draw of noise, one release.

Neighbour votes, where records vote in rounds those of one round, and teachers' votes in one release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aggregator_server.campaign.labelling import begin_round, outcomes_of, summary_of
from pate.errors import StateError
from pate.mechanisms import MatrixMechanism
from pate.runtime import failpoints

if TYPE_CHECKING:
    from aggregator_server.campaign.labelling import RoundSummary
    from aggregator_server.ledger.ledger import Ledger
    from pate.noise.exact import Noise


class NeighbourRelease:
    """All noisy counts and their labels are released at once."""

    def label(self, ledger: Ledger, noise: Noise) -> RoundSummary:
        """Release the noisy matrix, unless it was tried before.

        See :class:`~aggregator_server.campaign.labelling.Release`.
        """
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
