"""The server's exchange with its parties, over any :class:`~aggregator_server.exchange.carrier.Carrier`.

What is asked, and how long it is waited for. The rest is in
:mod:`~aggregator_server.exchange.conversation` and below it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aggregator_server.exchange.aggregation import STEPS
from aggregator_server.exchange.attendance import (
    Attendance,
    DescribedParty,
    Keyring,
    agreed_classes,
    differ_in_words,
    difference,
)
from aggregator_server.exchange.conversation import Conversation
from aggregator_server.exchange.outbox import Outbox
from aggregator_server.exchange.presence import Presence, here_in_words
from pate.errors import QuorumError
from pate.printable import listed
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from aggregator_server.exchange.aggregation import Aggregation, Steps, Sum
    from aggregator_server.exchange.carrier import Carrier, Distribution
    from pate.campaign.offer import Offer, Settled
    from pate.campaign.roster import RosterParty
    from pate.runtime.screen import Screen

_POLL_S: Final = 0.2
_REMIND_S: Final = 10.0
#: How long a connected party may take to receive the end of the campaign.
_FAREWELL_S: Final = 15.0
#: How long to wait for a disconnected party that voted: parties retry about every half minute, and
#: then need a moment to connect.
_RETURN_S: Final = 75.0


@dataclass(frozen=True)
class Quorum:
    """How many parties a sum needs, and how long it waits for the others."""

    least: int
    patience: float  # seconds to wait for the last ones once enough have answered
    # whether the wait is over if too few parties are left after ``patience``: what was released
    # before is of use without this sum
    ends: bool = False


class Exchange:
    """Finds and identifies the parties, and collects their votes."""

    def __init__(
        self,
        carrier: Carrier,
        campaign: Offer,  # sent to parties; its roster is settled once it is known
        keys: Keyring,
        public_set: Distribution,
        screen: Screen,
        *,
        encoder: Distribution | None = None,  # of the public set, likewise; None: it is not sent
        # called with the current presence and open request after every look; None: nothing is
        show: Callable[[Presence], None] | None = None,
        clock: Callable[[], float] = time.monotonic,  # seconds, monotonic
    ) -> None:
        self.carrier = carrier
        self.campaign = campaign
        self._screen = screen
        self._say = say = screen.say
        self._show = show
        self._clock = clock
        self._public_set = public_set
        self._outbox = Outbox(carrier, campaign, keys.own)
        self._who = who = Attendance(campaign.announced, keys, say)
        self._talk = Conversation(
            self._outbox, campaign.announced, who, public_set, encoder, say, clock
        )

    # --- the roster ----------------------------------------------------------------------

    @property
    def here(self) -> list[str]:
        """Names of the parties that are connected and described, sorted."""
        return sorted(self._who.node_of)

    def gather(
        self, wanted: int | Sequence[str], early: vote_pb2.AskBundles | None = None
    ) -> list[DescribedParty]:
        """Wait until the roster is complete and return it, sorted by name.

        A campaign without a class list has that of more than half of the wanted parties. Any other party
        is asked to refuse; while there is no such list, no roster is complete. Parties by envelope are asked
        for ``early`` together with their description.
        """
        self._talk.early = early
        names = None if isinstance(wanted, int) else set(wanted)
        size = self._who.awaited = wanted if isinstance(wanted, int) else len(wanted)
        with self._screen.waiting(_REMIND_S) as remind:
            while True:
                self.look()
                present = [self._who.known[n] for n in self.here if names is None or n in names]
                agreed = self.campaign.announced.classes or agreed_classes(present, size)
                if agreed is not None and not self.campaign.announced.classes:
                    present = self._of_these_classes(present, agreed)
                if agreed is not None and len(present) >= size:
                    return present[:size]
                remind(self._waiting_line(present, size, names))
                self.carrier.pause(_POLL_S)

    def _of_these_classes(
        self, present: list[DescribedParty], agreed: tuple[str, ...]
    ) -> list[DescribedParty]:
        """Return the parties that name these classes; the others are asked to refuse."""
        others = [party for party in present if party.classes != agreed]
        rest = [party for party in present if party.classes == agreed]
        for party in others:
            self._say(
                f"{party.name} names other classes than {listed([each.name for each in rest])}: "
                f"{difference(party, rest[0])}; it is refused and sees why. Its labels may be corrected, or "
                "the list be named there with --classes; a campaign with --classes settles it for all"
            )
            self._talk.send_away(party, agreed)
        return rest

    def sealing_keys(self, identities: Mapping[str, bytes]) -> Mapping[bytes, vote_pb2.SealingKey]:
        """Wait for descriptions of these parties, by name; return the keys for bundles, by identity."""
        with self._screen.waiting(_REMIND_S) as remind:
            while True:
                self.look()
                missing = sorted(identities.keys() - self._who.known.keys())
                if not missing:
                    return self._talk.sealing
                remind(f"waiting for {listed(missing)}, to describe themselves")
                self.carrier.pause(_POLL_S)

    def fix_roster(
        self, roster: Sequence[RosterParty], classes: Sequence[str], settled: Settled
    ) -> None:
        """Fix the parties, classes and terms: from now on only these parties are contacted."""
        self.campaign = self.campaign.settle(classes, settled)
        self._who.fix_roster(roster)
        self._outbox.fix_terms(self.campaign)

    def _waiting_line(
        self, present: list[DescribedParty], size: int, names: set[str] | None
    ) -> str:
        ready = {party.name for party in present}
        preparing = {
            each for each in self._who.preparing.values() if names is None or each in names
        }
        preparing -= ready
        here, more = here_in_words(ready, preparing), ""
        unwilling = set(self._who.unwilling) - ready - preparing
        if names is not None and (absent := sorted(names - ready - preparing - unwilling)):
            more = f"; missing: {listed(self._who.unenrolled_marked(absent))}"
        if unwilling:
            more += f"; refused: {listed(sorted(unwilling))}"
        if not self.campaign.announced.classes and (words := differ_in_words(present, size)):
            more += f"; {words}"
        return f"waiting for parties: {len(ready | preparing)} of {size} here ({here}){more}"

    @property
    def refused(self) -> frozenset[str]:
        """The parties that refused the last batch by decision, and have not reconnected since."""
        return frozenset(self._who.refused)

    # --- votes ---------------------------------------------------------------------------

    def collect(self, aggregation: Aggregation, quorum: Quorum) -> Sum:
        """Return the summed votes of a batch, taken through all steps of ``aggregation``.

        Each step waits for every party that can still answer, until a quorum, or all that the step needs,
        have answered, and the quorum's patience has passed since. It does not wait for a party that refuses
        or keeps failing, nor, after the first step of a masked sum, for one that was disconnected for that
        long: after a restart its secrets are lost. The first step waits for a reconnecting party for as long
        again, and no longer. A party whose disk is full has stopped, and is treated like a killed one.
        Nobody by envelope is late until a date, or a person, closes the step.
        """
        self.go_through(aggregation, quorum)
        return aggregation.result()

    def go_through(self, steps: Steps, quorum: Quorum) -> None:
        """Take the parties through all steps; see :meth:`collect`."""
        if self._who.roster is None:
            raise QuorumError("votes were requested before the roster was known")
        self._talk.steps = steps
        self._who.call_again()
        try:
            while steps.step:
                title = f"{STEPS[steps.step]} from parties"
                # The number of answers does not predict the remaining time.
                with (
                    self._screen.bar(title, timed=False) as progress,
                    self._screen.waiting(_REMIND_S) as remind,
                ):
                    self._through_step(steps, quorum, progress, remind)
                    # The step is over, whether or not all parties answered.
                    progress(len(steps.answered), len(steps.answered))
                steps.advance()
        finally:
            self._talk.steps = None
            self._tell()

    def _through_step(
        self,
        steps: Steps,
        quorum: Quorum,
        progress: Callable[[int, int], None],
        remind: Callable[[str], None],
    ) -> None:
        """Ask all parties of one step, and return when the wait is over."""
        least, patience = max(quorum.least, len(steps.needed)), quorum.patience
        began = self._clock()
        enough_since: float | None = None
        while True:
            self.look()
            self._ask_everyone(steps)
            now, answered, here = self._clock(), steps.answered, self._who.node_of
            size = len(steps.needed or self._who.roster or ())
            progress(len(answered), size)
            able = steps.awaited - self._who.out - (self._outbox.closed(steps) - answered)
            lasting = (able - answered) & self._lasting
            gone: set[str] = set()
            if not steps.first and now - began > patience:
                gone = {name for name in able - answered if name not in here}
                able -= gone
            if answered >= able and len(answered) >= least:
                if gone:
                    self._say(f"continuing without {listed(sorted(gone))}: disconnected")
                return
            if len(able | answered) < least:
                what = "nothing of this round" if quorum.ends else "nothing"
                raise QuorumError(
                    f"only {len(able | answered)} of {size} parties can still answer, the campaign "
                    f"needs {least}",
                    f"{what} was released; fix the problems of the parties above, then run "
                    "`pate-server resume`",
                )
            away = (able - answered) - set(here) - lasting - self._coming(now)
            # If nobody is here it is rather our own link that is down.
            waited = quorum.ends and bool(here) and now - began > patience
            if waited and len((able | answered) - away) < least:
                raise QuorumError(
                    f"{listed(sorted(away))} did not come back in {patience:g} s, and this sum needs "
                    f"{least} of {size} parties",
                    "nothing of it was released; `pate-server resume` waits for them again",
                )
            if len(answered) >= least and not lasting:
                enough_since = now if enough_since is None else enough_since
                back = steps.first and (able - answered) & self._coming(enough_since)
                if now - enough_since > (2 * patience if back else patience):
                    late = listed(sorted(able - answered))
                    self._say(f"continuing without {late}: no answer in {patience:g} s")
                    return
            if now >= began + _REMIND_S:
                remind(self._voting_line(steps, able, size))
            self.carrier.pause(_POLL_S)

    @property
    def _lasting(self) -> set[str]:
        """The parties here by envelope."""
        if self.carrier.store is None:
            return set()
        return {name for name, node in self._who.node_of.items() if self._outbox.lasting(node)}

    def _coming(self, since: float) -> set[str]:
        """Return parties about to take part: reconnecting, or connected ``since`` then."""
        back = {name for name, met in self._talk.met.items() if met >= since}
        coming = {*self.carrier.returning(), *self._who.preparing.values()}
        return back | (coming & set(self._who.roster or ()))

    def _voting_line(self, steps: Steps, able: frozenset[str], size: int) -> str:
        missing = sorted(able - steps.answered)
        away = [name for name in missing if name not in self._who.node_of]
        if steps.first and steps.needed and away:
            return (
                f"every sum of this campaign needs {listed(steps.needed)}, with whom the "
                f"first was unmasked; missing: {listed(away)}"
            )
        preparing = set(self._who.preparing.values())
        states = ("not connected", "preparing")
        notes = [f"{n} ({states[n in preparing]})" if n in away else n for n in missing]
        done = f"{len(steps.answered)} of {size}"
        return f"{STEPS[steps.step]} from {done} parties; waiting for {listed(notes)}"

    def _ask_everyone(self, steps: Steps) -> None:
        due = steps.awaited - steps.answered - self._who.out - self._outbox.busy(steps)
        for name, node in self._who.node_of.items():
            if name not in due:
                continue
            if name in self._who.has_public_set:
                self._outbox.put(node, steps.request(name), steps.step, name, steps)
                continue
            for piece in self._public_set.due(name):
                self._outbox.put(node, piece, "public_piece", name)

    # --- the end -------------------------------------------------------------------------

    def finish(self, finish: vote_pb2.Finish, voted: Collection[str]) -> None:
        """Notify the parties of the end of the campaign, and wait for their acknowledgement.

        One that is not notified would wait for a server that never returns. Those that ``voted`` are
        probably connected, or will return soon.
        """
        told: dict[tuple[str, int], float] = {}  # by name and visit
        began = self._clock()
        remind = began + _REMIND_S
        self._talk.farewells.clear()
        while True:
            self.look()
            now = self._clock()
            visits = self._who.visits
            for name, node in list(self._who.node_of.items()):
                if name not in self._talk.farewells and (name, visits[name]) not in told:
                    told[name, visits[name]] = now
                    request = vote_pb2.PartyRequest()
                    request.finish.CopyFrom(finish)
                    self._outbox.put(node, request, "finish", name)
            # A party that keeps reconnecting is not notified endlessly.
            waits = now < began + _RETURN_S + _FAREWELL_S and any(
                name not in self._talk.farewells and now < told[name, visits[name]] + _FAREWELL_S
                for name in self._who.node_of.keys() - self._lasting
            )
            away = (set(voted) | self._coming(now)) - set(self._who.node_of) - self._talk.farewells
            if not waits and (not away or now >= began + _RETURN_S):
                self.look()  # so that the last envelopes are written
                return
            if away and now >= remind:
                remind = began + _RETURN_S
                self._say(
                    f"waiting at most {_RETURN_S - (now - began):.0f} s for "
                    f"{listed(sorted(away))}, to notify them that the campaign has ended"
                )
            self.carrier.pause(_POLL_S)

    # --- who is here ---------------------------------------------------------------------

    def look(self) -> None:
        """Update the presence of parties, and process arrivals."""
        self._talk.look()
        self._tell()

    def _tell(self) -> None:
        if self._show is None:
            return
        who, steps = self._who, self._talk.steps
        here = frozenset(who.node_of)
        preparing = frozenset(who.preparing.values()) - here
        refused = frozenset(who.unwilling)
        if steps is None or not steps.step:
            self._show(Presence(here, refused=refused, preparing=preparing))
            return
        self._show(
            Presence(
                here,
                STEPS[steps.step],
                awaited=steps.awaited,
                answered=steps.answered,
                out=frozenset(who.out),
                refused=refused | who.refused,
                preparing=preparing,
            )
        )
