"""The ledger of one campaign: every step is durable before anything that depends on it.

:class:`Ledger` is the one writer. A step is first admitted by the rule of its kind, then committed to
the disk, and only then is the new state visible. So after a crash at any instruction the file has a
state that the rules allow, and the campaign continues from there.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Self, cast

from aggregator_server.ledger import encoding, verify
from aggregator_server.ledger.campaign_entries import (
    Close,
    Model,
    Open,
    Predictions,
    Roster,
    RoundEnd,
)
from aggregator_server.ledger.release_entries import (
    CHAIN,
    RULES,
    Charging,
    Release,
    Unmasking,
    Votes,
)
from aggregator_server.ledger.store import stores
from pate.errors import LedgerError, UsageError
from pate.storage.ledger import Log, append, each_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aggregator_server.ledger.campaign_entries import CampaignStep
    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.state import CampaignState, Charge
    from aggregator_server.ledger.store.place import Place
    from aggregator_server.ledger.store.stores import Store
    from pate.campaign.roster import RosterParty
    from pate.campaign.spec import CampaignSpec
    from pate.mechanisms import Outcome
    from pate.rounds.model import RoundModel
    from pate.storage.hash_chain import Entry, Head
    from pate.votes import Counts, Total


def _now() -> datetime:
    return datetime.now(UTC)


class Ledger:
    """The open ledger of a campaign; thread-safe.

    After a failed write the stored state is unknown: the object then refuses further writes, and
    the ledger must be opened again, which reads all of it. Places of queries are among those voted on,
    and parties are in the order of the roster.
    """

    def __init__(
        self, place: Place, database: Store, state: CampaignState, clock: Callable[[], datetime]
    ) -> None:
        self._place = place
        self._database = database
        self._log: Log[CampaignState] = Log(
            database,
            RULES,
            (state, state.head),
            now=lambda: _stamp(clock()),
            written="entry-written",
        )
        self._turn = threading.Condition(threading.RLock())
        #: The charge that this process made and may release. An open charge of an earlier process
        #: is not reused: see :meth:`charge`.
        self._held: Charge | None = None

    @classmethod
    def create(
        cls, place: Place, spec: CampaignSpec, *, clock: Callable[[], datetime] = _now
    ) -> Self:
        """Start the ledger of a new campaign."""
        first, state = RULES.admitted(None, CHAIN.start, Open(spec), _stamp(clock()))
        database = stores.opened(place, fill=lambda db: append(db, first))
        with stores.or_closed(database):
            database.remember(state.head)
        return cls(place, database, state, clock)

    @classmethod
    def open(
        cls,
        place: Place,
        *,
        head: Head | None = None,
        close: bool = False,
        clock: Callable[[], datetime] = _now,
    ) -> Self:
        """Open a campaign's ledger, after verifying all of it but its pages.

        ``head``, the newest that is known from elsewhere, must be in it; ``close`` ends the
        campaign there.
        """
        database = stores.opened(place)
        with stores.or_closed(database):
            with database.reading() as db:
                state = verify.audited(database, db, head)
            closing = _must_close(place, database, state, head=head, close=close)
            ledger = cls(place, database, state, clock)
            # Closed before the folder records its head, so that a crash here leaves it unconfirmed.
            ledger.finish() if closing else database.remember(state.head)
        return ledger

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def place(self) -> Place:
        """Where the ledger is."""
        return self._place

    def state(self) -> CampaignState:
        """Return the committed state of the campaign."""
        with self._turn:
            return self._log.state

    def wait_after(
        self, seq: int, stop: Callable[[], bool], timeout: float | None = None
    ) -> CampaignState:
        """Wait until there is an entry after number ``seq``, ``stop()`` holds or time is up.

        ``stop`` is called again after each :meth:`wake`.
        """
        with self._turn:
            self._turn.wait_for(lambda: self._log.head.seq > seq or stop(), timeout)
            return self._log.state

    def wake(self) -> None:
        """Wake all threads blocked in :meth:`wait_after`."""
        with self._turn:
            self._turn.notify_all()

    def record_roster(
        self, parties: Sequence[RosterParty], classes: Sequence[str]
    ) -> CampaignState:
        """Fix the parties and classes, and so the mechanisms and the budget."""
        return self._append(Roster.of(self.state().spec, parties, classes))

    def record_unmasking(self, first: int, count: int, survivors: Sequence[str]) -> CampaignState:
        """Record the survivors of a masked sum, before any party is asked to unmask it.

        An identical unmasking in the ledger is not written again.
        """
        with self._turn:
            state, step = self._log.state, Unmasking(first, count, tuple(survivors))
            if step in state.openings:
                return state
            return self._append(step)

    def record_votes(
        self, first: int, histogram: Total, responders: Sequence[str]
    ) -> CampaignState:
        """Record the summed votes of one batch."""
        return self._append(Votes.of(self.state(), first, histogram, responders))

    def charge(self, queries: Sequence[int]) -> Charge:
        """Charge the worst cost of answering ``queries`` in the current round, durably.

        When this returns, noise may be drawn once for each query, and the answers be passed to
        :meth:`release`. If they never are, the cost stays spent, and no later process reuses the
        charge: whether a release was interrupted may depend on its content (its length on an almost
        full disk), and drawing again until one succeeds would be an uncharged choice among answers.
        A query that is asked again is charged again.
        """
        with self._turn:
            step = Charging.of(self._log.state, queries)
            self._held = self._append(step).open_charge
            return cast("Charge", self._held)

    def release(
        self,
        charge: Charge,
        outcomes: Sequence[Outcome],
        *,
        gate: Literal["open", "closed"] | None = None,
        noisy: Counts | None = None,
    ) -> CampaignState:
        """Record the answers to a charge, durably, and return the unused cost.

        When this returns, the labels may be published. A charge has one attempt: if this raises,
        its answers are lost and its cost stays spent. ``gate`` is the result of the test of a gated
        batch, and ``noisy`` the (queries, classes) noisy counts of a matrix; None in other campaigns.
        """
        with self._turn:
            self._take(charge, len(outcomes))
            state = self._log.state
            return self._append(Release.of(state, charge, outcomes, gate=gate, noisy=noisy))

    def end_round(self, *, wants_predictions: bool) -> CampaignState:
        """End the current round."""
        with self._turn:
            self._held = None
            return self._append(RoundEnd(self._log.state.round, wants_predictions))

    def record_predictions(self, round_: int, probabilities: Probabilities) -> bool:
        """Record the student's predictions for a round; only the first ones count.

        Return whether the round already had predictions, so that these were ignored.
        """
        with self._turn:
            if round_ in self._log.state.predictions:
                return True
            self._append(Predictions.of(round_, probabilities))
            return False

    def record_model(self, round_: int, model: RoundModel) -> CampaignState:
        """Record the model that a round shows to the records, before any party is asked with it."""
        return self._append(Model(round_, model.to_bytes()))

    def finish(self) -> CampaignState:
        """Close the campaign: nothing is charged or released afterwards."""
        with self._turn:
            state, self._held = self._log.state, None
            return self._append(Close(len(state.labels), state.spent))

    def counts(self) -> Counts:
        """Return all summed votes: (queries, classes) int64, zeros where there are none.

        They are private to the server. With noise shares they include the noise.
        """
        return encoding.all_counts(self._database, self.state())

    def counts_of(self, queries: Sequence[int]) -> Counts:
        """Return the summed votes of some queries, (queries, classes) int64, in their order."""
        return encoding.counts_of(self._database, self.state(), queries)

    def predictions(self, round_: int) -> Probabilities | None:
        """Return the student's predictions for a round, or None: (queries, classes) float32."""
        return encoding.predictions_for(self._database, self.state(), round_)

    def entries(self, least: int = 1, kinds: Sequence[str] | None = None) -> list[Entry]:
        """Return committed entries from number ``least`` on, of the given kinds or of all."""
        with self._database.reading() as db:
            return list(each_entry(db, least, kinds))

    def close(self) -> None:
        """Close the ledger and release its lock."""
        with self._turn:
            self._log.close()
            self._turn.notify_all()
            self._database.close()

    def _take(self, charge: Charge, answers: int) -> None:
        """Consume this process's charge, which has one attempt."""
        if self._held is None or charge != self._held:
            raise LedgerError(f"charge {charge.entry} is not open in this process")
        self._held = None
        if answers != len(charge.queries):
            raise LedgerError(f"{answers} answers to {len(charge.queries)} queries")

    def _append(self, step: CampaignStep) -> CampaignState:
        with self._turn:
            state = self._log.append(step)
            self._turn.notify_all()
            return state


def _stamp(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def _must_close(
    place: Place, store: Store, state: CampaignState, *, head: Head | None, close: bool
) -> bool:
    """Return whether an opened ledger is closed where it ends: if that was asked for.

    A ledger in a database may be stale: a restored dump, a standby that missed the end. The campaign's
    folder knows the newest entry; if the folder is lost, the operator has to state it, or close the
    ledger: else this raises a UsageError.
    """
    if state.phase == "finished":  # nothing can follow
        return False
    if not close and head is None and store.could_be_older(state.head.seq):
        raise UsageError(
            f"{place} ends at entry {state.head.seq}, is {state.phase}, and its folder here "
            "does not know whether that is its newest entry: with a stale database, later "
            "spending would be repeated. Give `pate-server resume` --head with the last head "
            "of the server, from a source other than this database; or --close, which keeps "
            "these labels, answers no further query, and is safe whatever was lost"
        )
    return close
