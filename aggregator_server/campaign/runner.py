"""The sequence of a campaign, from its first party to its last label.

Every step is in the ledger before the next one begins, so the same function starts a campaign and
continues an interrupted one: it reads the state of the ledger and does the missing steps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aggregator_server.campaign.labelling import CappedRelease
from aggregator_server.campaign.neighbour import Models, NeighbourRelease
from aggregator_server.exchange.carrier import Distribution
from aggregator_server.exchange.exchange import Exchange
from aggregator_server.results.statement import expected_of
from pate.campaign.choices import NO_GUESS, Guess
from pate.campaign.offer import Offer
from pate.codes import code_of
from pate.errors import UsageError
from pate.formats.mechanism_words import mechanism_in_words
from pate.mechanisms import (
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedInteractiveGNMax,
    DistributedMechanism,
    InteractiveGNMax,
    MatrixMechanism,
)
from pate.noise.shares import total_sigma
from pate.planning.forecast import classes_in_words, teachers_wanted
from pate.runtime.failpoints import reach
from protos.pate.v1 import vote_pb2
from protos.public_set import PackedPublicSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aggregator_server.campaign.labelling import Bar, Release
    from aggregator_server.campaign.sums import Sums
    from aggregator_server.exchange.attendance import Keyring
    from aggregator_server.exchange.carrier import Carrier
    from aggregator_server.exchange.presence import Presence
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.state import CampaignState
    from pate.campaign.spec import CampaignSpec
    from pate.data.values import Inputs
    from pate.noise.exact import Noise
    from pate.runtime.screen import Screen

#: A campaign is refused if the probability of any label by noise alone is below this.
_CHANCE: Final = 1e-3


def exchange_of(
    spec: CampaignSpec,
    inputs: Inputs,
    carrier: Carrier,
    keys: Keyring,
    screen: Screen,
    *,
    encoder: Sequence[bytes] | None = None,
    show: Callable[[Presence], None] | None = None,
) -> Exchange:
    """Return the exchange of a campaign; parties without a copy are sent the slices of the encoder."""
    announced = replace(spec.announced, wanted_teachers=teachers_wanted(spec) or None)
    return Exchange(
        carrier,
        Offer(key=keys.own.public_key().public_bytes_raw(), announced=announced),
        keys,
        Distribution(lambda: PackedPublicSet(inputs)),
        screen,
        encoder=None if encoder is None else Distribution(lambda: encoder, encoder=True),
        show=show,
    )


def release_of(spec: CampaignSpec, bar: Bar) -> Release:
    """Return a campaign's way of releasing labels."""
    if spec.one_release:
        return NeighbourRelease()
    if spec.gate is None:
        return CappedRelease(bar)
    from aggregator_server.campaign.labelling import GatedRelease  # its bounds are slow to import

    return GatedRelease()


class Campaign:
    """Runs one campaign."""

    def __init__(
        self,
        ledger: Ledger,
        inputs: Inputs,
        sums: Sums,
        *,
        noise: Noise,
        screen: Screen,
        # called with a round; returns when the student's predictions for it are in the ledger.
        # Meanwhile it may look who is there
        await_predictions: Callable[[int], object],
        guess: Guess = NO_GUESS,  # of the coordinator, for what to expect
    ) -> None:
        self._guess = guess
        self._sums = sums
        self._exchange = sums.exchange
        self._ledger = ledger
        self._noise = noise
        self._screen = screen
        self._await_predictions = await_predictions
        self._release = release_of(ledger.state().spec, screen.bar)
        self._models = Models(inputs, ledger)

    def run(self) -> None:
        """Do the missing steps until the campaign is finished."""
        state = self._ledger.state()
        if state.phase == "gathering":
            self._gather()
        else:
            self._exchange.fix_roster(state.roster, state.classes, state.settled)
        self._require_labels_to_be_had()
        state = self._ledger.state()
        if state.phase != "finished" and state.missing_votes:  # it may have been closed before
            self._sums.collect()
        in_rounds = state.spec.in_rounds
        if not in_rounds:  # else a later sum needs keys that are among them
            self._sums.keep_replies(None)
        while not (state := self._ledger.state()).rounds_over:
            if state.phase == "predicting":
                self._screen.say(f"round {state.round}: waiting for the student's predictions")
                self._await_predictions(state.round)
            if state.missing_votes:  # of a later round in which records vote
                self._sums.collect()
            self._label()
        if in_rounds:
            self._sums.keep_replies(None)
        if state.phase != "finished":
            self._ledger.finish()
            reach("campaign-closed")

    def _require_labels_to_be_had(self) -> None:
        """Refuse, or warn about, a threshold above all votes, before anything is asked or charged."""
        state = self._ledger.state()
        if state.batches or state.rounds_over:
            return
        try:
            warning = require_reachable(state)
        except UsageError:
            self.farewell("threshold")  # else parties wait for a request that never comes
            raise
        if warning is not None:
            self._screen.say(warning, "warning")

    def farewell(self, cause: str = "") -> None:
        """Notify the parties of the end of the campaign, and of its guarantee towards the public.

        ``cause`` of an end before any votes is a key of :data:`pate.campaign.choices.EARLY_ENDS`.
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
        parties = self._exchange.gather(spec.parties, self._sums.early)
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
            f"round {summary.round}: {code_of(state.spec.code).asked_in_words(summary.asked)} asked, "
            f"{state.spec.voted_for.release_in_words(summary.labels, summary.asked)} released{reinforced}"
        )
        if not state.spec.voted_for.labelled:
            return
        words = classes_in_words(
            state.labels.by_class(len(state.classes)),
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
            which = f"round {state.round} of {state.spec.rounds}"
            self._screen.say(f"{which}: noisy {what} released, {follows} is stored")
        elif state.models:
            self._screen.say(
                f"the campaign ends with the model of round {state.round}, which is published",
                "warning",
            )


def require_reachable(state: CampaignState) -> str | None:
    """Refuse a campaign that would spend its budget without a label, whatever the votes.

    Every query pays for the threshold test, answered or not. The number of votes is known when the roster
    is complete, before anything is asked or charged.

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
        # rounded up
        sigma, draws = float(total_sigma(mechanism.share, parties)) + 1 / 64, classes
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
