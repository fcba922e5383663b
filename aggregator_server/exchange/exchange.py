"""The server's conversation with its parties, over any :class:`aggregator_server.exchange.wire.Wire`.

Presence is tracked in :mod:`aggregator_server.exchange.attendance`, requests and replies in
:mod:`aggregator_server.exchange.conversation`; this module decides what to ask and waits for
replies.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from aggregator_server.exchange.aggregation import STEPS
from aggregator_server.exchange.attendance import Attendance
from aggregator_server.exchange.conversation import Conversation
from aggregator_server.exchange.parties import (
    DescribedParty,
    agreed_classes,
    differ_in_words,
    difference,
)
from aggregator_server.exchange.presence import Presence, here_in_words
from aggregator_server.exchange.public_set import Handout, piece_request
from pate.errors import QuorumError
from pate.printable import listed
from pate.runtime.screen import Reminder
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aggregator_server.exchange.aggregation import Aggregation, Steps, Sum
    from aggregator_server.exchange.wire import Courier, Wire
    from pate.campaign.offer import Offer, Settled
    from pate.campaign.roster import RosterParty

_POLL_S: Final = 0.2
_REMIND_S: Final = 10.0
#: How long a connected party may take to receive the end of the campaign.
_FAREWELL_S: Final = 15.0
#: How long to wait for a disconnected party that voted: parties retry about every half minute, and
#: then need a moment to connect.
_RETURN_S: Final = 75.0


class Exchange:
    """Finds and identifies the parties, and collects their votes.

    Args:
        link: carries bytes to and from nodes.
        campaign: sent to parties; its roster is settled once it is known.
        signing_key: the campaign's; every request is signed with it.
        enrolled: identity keys (32 bytes) by name, of the allowed parties; None: any party. Called
            each time a party describes itself.
        pieces: makes the slices of the serialised public set, for parties without a copy.
        encoder: the same of the encoder of its inputs; None: it is not sent.
        say: one line for the server's screen.
        waiting: shows what is awaited while its block runs; None: occasional lines of ``say``.
        show: called with the current presence and open request after every step.
        returning: names of the parties that are reconnecting.
        clock: seconds, monotonic.
        pause: waits that many seconds, or less if a message may have arrived.
        courier: of the parties by envelope; None: there are none.
    """

    def __init__(
        self,
        link: Wire,
        campaign: Offer,
        *,
        signing_key: Ed25519PrivateKey,
        pieces: Callable[[], Sequence[bytes]],
        say: Callable[[str], None],
        encoder: Callable[[], Sequence[bytes]] | None = None,
        enrolled: Callable[[], Mapping[str, bytes]] | None = None,
        waiting: Callable[[float], AbstractContextManager[Callable[[str], None]]] | None = None,
        show: Callable[[Presence], None] | None = None,
        returning: Callable[[], Collection[str]] = frozenset,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        courier: Courier | None = None,
    ) -> None:
        self.campaign = campaign
        self._waiting = waiting or (
            lambda least: nullcontext(Reminder(say, least=least, clock=clock).tell)
        )
        self._show = show
        self._returning = returning
        self._say = say
        self._clock = clock
        self._pause = pause
        self._handout = Handout(pieces)
        self._who = Attendance(campaign.announced, enrolled, say)
        self._talk = Conversation(
            link,
            campaign,
            signing_key=signing_key,
            who=self._who,
            handout=self._handout,
            encoder=None if encoder is None else Handout(encoder),
            say=say,
            clock=clock,
            courier=courier,
        )

    # --- the roster ----------------------------------------------------------------------

    @property
    def here(self) -> list[str]:
        """Names of the parties that are connected and described, sorted."""
        return sorted(self._who.node_of)

    def gather(self, wanted: int | Sequence[str]) -> list[DescribedParty]:
        """Wait until the roster is complete and return it, sorted by name.

        A campaign without a class list has that of more than half of the wanted parties. Any other party
        is asked to refuse; while there is no such list, no roster is complete.

        Args:
            wanted: number of parties, or their names.
        """
        names = None if isinstance(wanted, int) else set(wanted)
        size = self._who.awaited = wanted if isinstance(wanted, int) else len(wanted)
        with self._waiting(_REMIND_S) as remind:
            while True:
                self.look()
                present = [self._who.known[n] for n in self.here if names is None or n in names]
                agreed = self.campaign.announced.classes or agreed_classes(present, size)
                if agreed is not None and not self.campaign.announced.classes:
                    present = self._of_these_classes(present, agreed)
                if agreed is not None and len(present) >= size:
                    return present[:size]
                remind(self._waiting_line(present, size, names))
                self._pause(_POLL_S)

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
        """Wait until these parties have described themselves; return their keys for bundles.

        Args:
            identities: of the parties, by name.

        Returns:
            By identity; a party that makes no bundles has none.
        """
        with self._waiting(_REMIND_S) as remind:
            while True:
                self.look()
                missing = sorted(identities.keys() - self._who.known.keys())
                if not missing:
                    return self._talk.sealing
                remind(f"waiting for {listed(missing)}, to describe themselves")
                self._pause(_POLL_S)

    def fix_roster(
        self, roster: Sequence[RosterParty], classes: Sequence[str], settled: Settled
    ) -> None:
        """Fix the parties, classes and terms: from now on only these parties are contacted."""
        self.campaign = self.campaign.settle(classes, settled)
        self._who.fix_roster(roster)
        self._talk.fix_roster(self.campaign)

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

    def collect(
        self,
        aggregation: Aggregation,
        *,
        least: int,
        patience: float,
        bar: Callable[[str], AbstractContextManager[Callable[[int, int], None]]],
        ends: bool = False,
    ) -> Sum:
        """Return the summed votes of a batch, taken through all steps of ``aggregation``.

        Each step waits for every party that can still answer, until ``least`` have answered, or all
        that the step needs, and ``patience`` seconds have passed since. It does not wait for a
        party that refuses or keeps failing, nor, after the first step of a masked sum, for one that
        was disconnected for ``patience`` seconds: after a restart its secrets are lost. The first
        step waits for a reconnecting party for another ``patience``, and no longer. A party whose
        disk is full has stopped, and is treated like a killed one.

        Args:
            aggregation: the steps to take.
            least: number of parties that the campaign needs.
            patience: seconds.
            bar: shows the progress of a step, in parties of the roster.
            ends: whether the wait is over if too few parties are left after ``patience``: what was released
                before is of use without this sum.

        Raises:
            QuorumError: if too many refused or failed to reach ``least``, or a needed party did.
            ProtocolError: if the sum cannot be that of the parties' votes.
        """
        self.go_through(aggregation, least=least, patience=patience, bar=bar, ends=ends)
        return aggregation.result()

    def go_through(
        self,
        aggregation: Steps,
        *,
        least: int,
        patience: float,
        bar: Callable[[str], AbstractContextManager[Callable[[int, int], None]]],
        ends: bool = False,
    ) -> None:
        """Take the parties through all steps; arguments and errors as of :meth:`collect`."""
        if self._who.roster is None:
            raise QuorumError("votes were requested before the roster was known")
        self._talk.aggregation = aggregation
        self._who.call_again()
        try:
            while aggregation.step:
                title = f"{STEPS[aggregation.step]} from parties"
                with bar(title) as progress, self._waiting(_REMIND_S) as remind:
                    self._through_step(aggregation, least, patience, progress, remind, ends=ends)
                    # The step is over, whether or not all parties answered.
                    progress(len(aggregation.answered), len(aggregation.answered))
                aggregation.advance()
        finally:
            self._talk.aggregation = None
            self._tell()

    def _through_step(
        self,
        aggregation: Steps,
        least: int,
        patience: float,
        progress: Callable[[int, int], None],
        remind: Callable[[str], None],
        *,
        ends: bool,
    ) -> None:
        """Ask all parties of one step, and return when the wait is over."""
        least = max(least, len(aggregation.needed))
        began = self._clock()
        enough_since: float | None = None
        while True:
            self.look()
            self._ask_everyone(aggregation)
            now, answered = self._clock(), aggregation.answered
            progress(len(answered), self._asked(aggregation))
            closed = self._talk.closed()
            able = aggregation.awaited - self._who.out - (closed - answered)
            # Nobody by envelope is late until a date, or a person, closes the step.
            by_envelope = (able - answered) & self._talk.by_envelope
            gone: set[str] = set()
            if not aggregation.first and now - began > patience:
                gone = {name for name in able - answered if name not in self._who.node_of}
                able -= gone
            if answered >= able and len(answered) >= least:
                if gone:
                    self._say(f"continuing without {listed(sorted(gone))}: disconnected")
                return
            if len(able | answered) < least:
                raise QuorumError(
                    f"only {len(able | answered)} of {self._asked(aggregation)} parties can still "
                    f"answer, the campaign needs {least}: nothing was released; "
                    "fix the problems of the parties above, then run `pate-server resume`"
                )
            away = (able - answered) - set(self._who.node_of) - by_envelope - self._coming(now)
            # If nobody is here it is rather our own link that is down.
            waited = ends and bool(self._who.node_of) and now - began > patience
            if waited and len((able | answered) - away) < least:
                raise QuorumError(
                    f"{listed(sorted(away))} did not come back in {patience:g} s, and this sum needs "
                    f"{least} of {self._asked(aggregation)} parties: nothing of it was released; "
                    "`pate-server resume` waits for them again"
                )
            if len(answered) >= least and not by_envelope:
                enough_since = now if enough_since is None else enough_since
                back = aggregation.first and (able - answered) & self._coming(enough_since)
                if now - enough_since > (2 * patience if back else patience):
                    late = listed(sorted(able - answered))
                    self._say(f"continuing without {late}: no answer in {patience:g} s")
                    return
            if now >= began + _REMIND_S:
                remind(self._voting_line(aggregation, able))
            self._pause(_POLL_S)

    def _coming(self, since: float) -> set[str]:
        """Return parties about to take part: reconnecting, or connected ``since`` then."""
        back = {name for name, met in self._talk.met.items() if met >= since}
        coming = {*self._returning(), *self._who.preparing.values()}
        return back | (coming & set(self._who.roster or ()))

    def _voting_line(self, aggregation: Steps, able: frozenset[str]) -> str:
        missing = sorted(able - aggregation.answered)
        away = [name for name in missing if name not in self._who.node_of]
        if aggregation.first and aggregation.needed and away:
            return (
                f"every sum of this campaign needs {listed(aggregation.needed)}, with whom the "
                f"first was unmasked; missing: {listed(away)}"
            )
        preparing = set(self._who.preparing.values())
        notes = [
            n
            if n in self._who.node_of
            else f"{n} ({'preparing' if n in preparing else 'not connected'})"
            for n in missing
        ]
        done = f"{len(aggregation.answered)} of {self._asked(aggregation)}"
        return f"{STEPS[aggregation.step]} from {done} parties; waiting for {listed(notes)}"

    def _asked(self, aggregation: Steps) -> int:
        """Return the total number of parties to ask."""
        return len(aggregation.needed or self._who.roster or ())

    def _ask_everyone(self, aggregation: Steps) -> None:
        due = aggregation.awaited - aggregation.answered - self._who.out - self._talk.busy
        for name, node in self._who.node_of.items():
            if name not in due:
                continue
            if name in self._who.has_public_set:
                self._talk.put(node, aggregation.request(name), aggregation.step, name, aggregation)
                continue
            for piece in self._handout.due(name):
                self._talk.put(node, piece_request(*piece), "public_piece", name)

    # --- the end -------------------------------------------------------------------------

    def finish(self, finish: vote_pb2.Finish, voted: Collection[str]) -> None:
        """Notify the parties of the end of the campaign, and wait for their acknowledgement.

        A party that is not notified would wait for a server that never returns.

        Args:
            finish: the message.
            voted: names of the parties that are probably connected or will return soon.
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
                    self._talk.put(node, request, "finish", name)
            # A party that keeps reconnecting is not notified endlessly.
            waits = now < began + _RETURN_S + _FAREWELL_S and any(
                name not in self._talk.farewells and now < told[name, visits[name]] + _FAREWELL_S
                for name in self._who.node_of.keys() - self._talk.by_envelope
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
            self._pause(_POLL_S)

    # --- who is here ---------------------------------------------------------------------

    def look(self) -> None:
        """Update the presence of parties, and process arrivals."""
        self._talk.step()
        self._tell()

    def _tell(self) -> None:
        if self._show is None:
            return
        here, aggregation = frozenset(self._who.node_of), self._talk.aggregation
        preparing = frozenset(self._who.preparing.values()) - here
        unwilling = frozenset(self._who.unwilling)
        if aggregation is None or not aggregation.step:
            self._show(Presence(here, refused=unwilling, preparing=preparing))
            return
        self._show(
            Presence(
                here,
                STEPS[aggregation.step],
                awaited=aggregation.awaited,
                answered=aggregation.answered,
                out=frozenset(self._who.out),
                refused=unwilling | self._who.refused,
                preparing=preparing,
            )
        )
