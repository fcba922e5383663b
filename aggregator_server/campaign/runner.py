"""The sequence of a campaign, from its first party to its last label.

Every step is in the ledger before the next one begins, so the same function starts a campaign and
continues an interrupted one: it reads the state of the ledger and does the missing steps.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from aggregator_server.campaign.batches import BATCH_COUNTS, batch_at, check_apart, next_places
from aggregator_server.campaign.neighbour import Models
from aggregator_server.campaign.reachable import require_reachable
from aggregator_server.campaign.release import release_of
from aggregator_server.exchange.aggregation import Batch, MaskedAggregation, PlainAggregation
from aggregator_server.exchange.ahead import AheadAggregation
from aggregator_server.exchange.exchange import Exchange
from aggregator_server.results.statement import expected_of
from pate.campaign.choices import NO_GUESS, Guess
from pate.campaign.offer import Offer
from pate.codes import code_of
from pate.errors import ProtocolError, QuorumError, UsageError
from pate.formats.mechanism_words import mechanism_in_words
from pate.mechanisms import DistributedMechanism
from pate.planning.forecast import classes_in_words, teachers_wanted
from pate.printable import listed
from pate.runtime.failpoints import reach
from protos.pate.v1 import vote_pb2
from protos.public_set import PackedPublicSet

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aggregator_server.envelopes.sums import SumsAhead
    from aggregator_server.exchange.aggregation import Sum
    from aggregator_server.exchange.presence import Presence
    from aggregator_server.exchange.wire import Courier, Wire
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.state import CampaignState
    from pate.campaign.spec import CampaignSpec
    from pate.data.values import Inputs
    from pate.noise.exact import Noise
    from pate.runtime.screen import Screen

#: Attempts at a masked sum with too few parties left: restarted parties can take part in the next
#: one.
_ATTEMPTS: Final = 3


class Campaign:
    """Runs one campaign over a wire.

    Args:
        ledger: of the campaign, open.
        inputs: the campaign's public set.
        link: transport to the parties.
        noise: source of noise.
        screen: for lines and progress.
        signing_key: of the campaign, by which parties identify it.
        patience: seconds to wait for the last parties once enough have voted.
        encoder: the slices of the encoder of the inputs, for parties without a copy; None: it is not sent.
        enrolled: identity keys by name of the allowed parties; None: any party.
        await_predictions: called with a round; returns when the student's predictions for it are in
            the ledger. Meanwhile it may call :meth:`look`.
        show: called with the current presence and open request.
        returning: names of the parties that are reconnecting.
        pause: waits that many seconds, or less if a message may have arrived.
        batch: counts of one batch of votes, queries times classes.
        courier: of the parties by envelope; None: there are none.
        sums: begins masked sums whose keys come ahead; None: all keys are made for their sum.
        guess: of the coordinator, for what to expect.
    """

    def __init__(
        self,
        ledger: Ledger,
        inputs: Inputs,
        link: Wire,
        *,
        noise: Noise,
        screen: Screen,
        signing_key: Ed25519PrivateKey,
        patience: float,
        await_predictions: Callable[[int], object],
        encoder: Sequence[bytes] | None = None,
        enrolled: Callable[[], Mapping[str, bytes]] | None = None,
        show: Callable[[Presence], None] | None = None,
        returning: Callable[[], Collection[str]] = frozenset,
        pause: Callable[[float], None] = time.sleep,
        batch: int = BATCH_COUNTS,
        courier: Courier | None = None,
        sums: SumsAhead | None = None,
        guess: Guess = NO_GUESS,
    ) -> None:
        self._batch = batch
        self._guess = guess
        self._sums = sums
        self._courier = courier
        self._ledger = ledger
        self._inputs = inputs
        self._noise = noise
        self._screen = screen
        self._patience = patience
        self._await_predictions = await_predictions
        spec = ledger.state().spec
        self._release = release_of(spec, screen.bar)
        self._models = Models(inputs, ledger)
        self._exchange = Exchange(
            link,
            _offer(spec, signing_key),
            signing_key=signing_key,
            enrolled=enrolled,
            pieces=lambda: PackedPublicSet(inputs),
            encoder=None if encoder is None else lambda: encoder,
            say=screen.say,
            waiting=screen.waiting,
            show=show,
            returning=returning,
            pause=pause,
            courier=courier,
        )

    def run(self) -> None:
        """Do the missing steps until the campaign is finished.

        Raises:
            QuorumError: if too few parties are left.
            UsageError: if no votes can reach the threshold.
            BudgetError: if the budget does not cover a single query.
        """
        state = self._ledger.state()
        if state.phase == "gathering":
            self._gather()
        else:
            self._exchange.fix_roster(state.roster, state.classes, state.settled)
        self._require_labels_to_be_had()
        state = self._ledger.state()
        if state.phase != "finished" and state.missing_votes:  # it may have been closed before
            self._collect()
        in_rounds = state.spec.in_rounds
        if not in_rounds:  # else a later sum needs keys that are among them
            self._keep_replies(None)
        while not (state := self._ledger.state()).rounds_over:
            if state.phase == "predicting":
                self._screen.say(f"round {state.round}: waiting for the student's predictions")
                self._await_predictions(state.round)
            if state.missing_votes:  # of a later round in which records vote
                self._collect()
            self._label()
        if in_rounds:
            self._keep_replies(None)
        if state.phase != "finished":
            self._ledger.finish()
            reach("campaign-closed")

    def _require_labels_to_be_had(self) -> None:
        """Refuse, or warn about, a threshold above all votes, before anything is asked or charged.

        If it is refused, the parties are notified: they would wait for a request that never comes.

        Raises:
            UsageError: if no label is possible.
        """
        state = self._ledger.state()
        if state.batches or state.rounds_over:
            return
        try:
            warning = require_reachable(state)
        except UsageError:
            self.farewell("threshold")
            raise
        if warning is not None:
            self._screen.say(warning, "warning")

    def look(self) -> None:
        """Update the presence of parties while nothing is asked of them."""
        self._exchange.look()

    def farewell(self, cause: str = "") -> None:
        """Notify the parties of the campaign's end and its guarantee towards the public.

        Args:
            cause: of an end before any votes, a key of :data:`pate.campaign.choices.EARLY_ENDS`.
        """
        state = self._ledger.state()
        voted = {name for batch in state.batches for name in batch.responders}
        self._exchange.finish(
            vote_pb2.Finish(
                queries_asked=state.queries_asked,
                labels_released=len(state.labels),
                epsilon_cap=state.epsilon,
                delta=state.spec.delta,
                cause=cause,
            ),
            voted={party.name for party in state.roster} if cause else voted,
        )

    def _gather(self) -> None:
        spec = self._ledger.state().spec
        parties = self._exchange.gather(spec.parties)
        classes = spec.classes or parties[0].classes
        state = self._ledger.record_roster(parties, classes)
        reach("roster-recorded")
        self._exchange.fix_roster(state.roster, classes, state.settled)
        self._screen.say(
            f"the roster is complete: {len(parties)} parties, "
            + ("records vote; " if spec.records_vote else f"{state.teachers} teachers; ")
            + f"mechanism {mechanism_in_words(state.mechanism(1).to_dict())}"
        )
        self._say_forecast(state)
        mechanism = state.mechanism(1)
        if isinstance(mechanism, DistributedMechanism):
            grid = code_of(spec.code).grid
            counted = mechanism.shares.spread(mechanism.honest) / grid
            carried = mechanism.shares.spread(len(parties)) / grid
            self._screen.say(
                f"noise shares of {mechanism.honest} of {len(parties)} parties are counted, standard "
                f"deviation {counted:.4g} votes; what is released carries those of all that survive, up to "
                f"{carried:.4g}"
            )

    def _say_forecast(self, state: CampaignState) -> None:
        """Report, before the first vote, how the noise was chosen and how many labels the budget pays for."""
        found = expected_of(state, self._guess)
        if found.noise:
            self._screen.say(f"no noise is stated, so the server chose it: {found.noise}")
        self._screen.say(found.text, "warning" if found.few else "info")
        if found.advice:
            self._screen.say(f"what helps: {found.advice}")

    def _collect(self) -> None:
        state = self._ledger.state()
        check_apart(state, self._inputs, self._batch)
        while (places := next_places(state, self._batch)) is not None:
            self._keep_replies(places.start)
            batch = batch_at(state, self._inputs, places, self._shown())
            try:
                found = self._vote(places.start, batch)
            except QuorumError as error:
                if not state.models:
                    raise
                raise QuorumError(
                    f"{error}; `pate-server resume --close` ends the campaign with the model of the "
                    f"{len(state.models)} rounds that were released"
                ) from error
            reach("votes-arrived")
            state = self._ledger.record_votes(places.start, found.total, found.responders)
            reach("votes-recorded")
            if state.spec.in_rounds:
                self._screen.say(f"{_which(state)}: votes from {listed(found.responders)}")
                continue
            done, all_ = sum(each.count for each in state.batches), len(state.voted)
            self._screen.say(
                f"votes on {len(batch.rows)} queries from {listed(found.responders)}"
                + ("" if len(batch.rows) == all_ else f"; {done} of {all_} have votes now")
            )

    def _shown(self) -> bytes:
        """Return the model that the current round shows; empty where records do not vote in rounds."""
        return self._models.shown() if self._ledger.state().spec.in_rounds else b""

    def _keep_replies(self, place: int | None) -> None:
        """Delete the stored replies to other sums than the one of this place: they are in the ledger."""
        if self._courier is not None:
            self._courier.begin_sum(place)

    def _vote(self, first: int, batch: Batch) -> Sum:
        """Return the summed votes on a batch; a failed masked sum is repeated."""
        for attempt in range(1, _ATTEMPTS + 1):
            aggregation = self._aggregation(first, batch)
            try:
                return self._exchange.collect(
                    aggregation,
                    least=self._least(first),
                    patience=self._patience,
                    ends=bool(self._ledger.state().models),
                    # The number of answers does not predict the remaining time.
                    bar=partial(self._screen.bar, timed=False),
                )
            except QuorumError as error:
                if self._sums is not None and isinstance(aggregation, AheadAggregation):
                    self._sums.give_up(aggregation, first)
                    raise
                self._require_willing(aggregation, first, error)
                if aggregation.first or attempt == _ATTEMPTS:
                    raise
                self._screen.say(
                    f"the masked sum failed and nothing was revealed: {error}; trying again"
                )
            except ProtocolError as error:
                raise ProtocolError(
                    f"the votes on {len(batch.rows)} queries could not be summed; nothing was "
                    f"released: {error}"
                ) from error
        raise QuorumError(f"{_ATTEMPTS} attempts at a masked sum failed")

    def _least(self, first: int) -> int:
        """Return the fewest parties in a sum: with keys ahead, all of those that it needs."""
        state = self._ledger.state()
        if self._sums is None or not state.survivors_needed(first):
            return state.spec.sums.min_parties
        return len(state.survivors or ())

    def _aggregation(
        self, first: int, batch: Batch
    ) -> MaskedAggregation | PlainAggregation | AheadAggregation:
        state, campaign = self._ledger.state(), self._exchange.campaign
        if not state.spec.sums.masked:
            return PlainAggregation(campaign, state.roster, batch, state.spec.sums.min_parties)

        def list_unmasking(survivors: tuple[str, ...]) -> None:
            self._ledger.record_unmasking(first, len(batch.rows), survivors)
            reach("opening-listed")

        if self._sums is not None:
            return self._sums.aggregation(
                self._exchange,
                state.roster,
                first,
                batch,
                least=self._least(first),
                only=state.survivors,
                all_needed=state.survivors_needed(first),
                collect=lambda steps: self._exchange.go_through(
                    steps,
                    least=self._least(first),
                    patience=self._patience,
                    ends=bool(state.models),
                    bar=partial(self._screen.bar, timed=False),
                ),
                before_opening=list_unmasking,
            )
        return MaskedAggregation(
            campaign,
            state.roster,
            batch,
            only=state.survivors,
            all_needed=state.survivors_needed(first),
            before_opening=list_unmasking,
        )

    def _require_willing(
        self,
        aggregation: MaskedAggregation | PlainAggregation | AheadAggregation,
        first: int,
        error: QuorumError,
    ) -> None:
        """Check that a sum whose unmasking has begun can still be completed.

        Raises:
            QuorumError: if parties refuse that it needs.
        """
        state, refused = self._ledger.state(), self._exchange.refused
        fixed = state.survivors
        needed = len(aggregation.needed) or state.spec.sums.min_parties
        if (
            fixed is None
            or not state.survivors_needed(first)
            or len(set(fixed) - refused) >= needed
        ):
            return
        raise QuorumError(
            f"{listed(sorted(refused & set(fixed)))} refused a sum of {listed(fixed)}, so these "
            "queries cannot be completed in this campaign: some parties may already have "
            "unmasked this sum and will not unmask another, since the difference of the two "
            "would reveal votes (if the cause of the refusal can be removed there, run "
            "`pate-server resume`)"
        ) from error

    def _label(self) -> None:
        summary = self._release.label(self._ledger, self._noise)
        if summary.remark:
            self._screen.say(summary.remark)
        state = self._ledger.state()
        if state.spec.in_rounds:
            self._end_round()
            return
        more = state.spec.interactive and state.round < state.spec.rounds
        self._ledger.end_round(wants_predictions=more)
        reach("round-ended")
        reinforced = f", {summary.reinforced} of them reinforced" if summary.reinforced else ""
        self._screen.say(
            f"round {summary.round}: {summary.asked} queries asked, "
            f"{state.spec.voted_for.release_in_words(summary.labels, summary.asked)} released{reinforced}"
        )
        if not state.spec.voted_for.labelled:
            return
        counts = Counter(each.label for each in state.labels.values())
        words = classes_in_words(
            [counts[label] for label in range(len(state.classes))],
            state.classes,
            noisy_counts=state.spec.one_release,
            more=state.round < state.spec.rounds,
        )
        if words:
            self._screen.say(f"{len(state.labels)} labels in all: {words}", "warning")
        if state.spec.records_vote:
            fewer = expected_of(state, self._guess).fewer(len(state.labels))
            if fewer:
                self._screen.say(fewer, "warning")

    def _end_round(self) -> None:
        """Make and record the model that follows from a round in which records voted; end the round."""
        model, state = self._models.following(), self._ledger.state()
        if model is not None:
            reach("model-made")
            state = self._ledger.record_model(state.round + 1, model)
            reach("model-recorded")
        released = len(state.released) == state.round
        last = state.round == state.spec.rounds
        self._ledger.end_round(wants_predictions=False)
        reach("round-ended")
        if released:
            what = "sums of disagreement" if state.round > 1 else "class counts"
            follows = "the final model" if last else f"the model of round {state.round + 1}"
            self._screen.say(f"{_which(state)}: noisy {what} released, {follows} is stored")
        elif state.models:
            self._screen.say(
                f"the campaign ends with the model of round {state.round}, which is published",
                "warning",
            )


def _which(state: CampaignState) -> str:
    return f"round {state.round} of {state.spec.rounds}"


def _offer(spec: CampaignSpec, signing_key: Ed25519PrivateKey) -> Offer:
    announced = replace(spec.announced, wanted_teachers=teachers_wanted(spec) or None)
    return Offer(key=signing_key.public_key().public_bytes_raw(), announced=announced)
