"""The ledger of one campaign: every step is durable before anything that depends on it.

:class:`Ledger` is the one writer. A step is first admitted by the rules of
:mod:`aggregator_server.ledger.rules`, then committed to the disk, and only then is the new state
visible. So after a crash at any instruction the file has a state that the rules allow, and the
campaign continues from there.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Self, cast

from aggregator_server.ledger import entries as bodies
from aggregator_server.ledger import stored_votes, verify
from aggregator_server.ledger.freshness import must_close
from aggregator_server.ledger.rules import CHAIN, follow
from aggregator_server.ledger.store import stores
from pate.errors import LedgerError, StateError
from pate.runtime.failpoints import reach
from pate.storage.entries import append, each_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.state import CampaignState, Charge
    from aggregator_server.ledger.store.place import Place
    from aggregator_server.ledger.store.stores import Store
    from pate.campaign.roster import RosterParty
    from pate.campaign.spec import CampaignSpec
    from pate.mechanisms import Outcome
    from pate.rounds.model import RoundModel
    from pate.storage.entries import Row
    from pate.storage.hash_chain import Entry, Head, Json
    from pate.votes import Counts, Total


def _now() -> datetime:
    return datetime.now(UTC)


class Ledger:
    """The open ledger of a campaign; thread-safe.

    After a failed write the stored state is unknown: the object then refuses further writes, and
    the ledger must be opened again, which reads all of it.
    """

    def __init__(
        self, place: Place, database: Store, state: CampaignState, clock: Callable[[], datetime]
    ) -> None:
        self._place = place
        self._database = database
        self._state = state
        self._clock = clock
        self._turn = threading.Condition(threading.RLock())
        #: The charge that this process made and may release. An open charge of an earlier process
        #: is not reused: see :meth:`charge`.
        self._held: Charge | None = None
        self._failed = False

    @classmethod
    def create(
        cls, place: Place, spec: CampaignSpec, *, clock: Callable[[], datetime] = _now
    ) -> Self:
        """Start the ledger of a new campaign.

        Args:
            place: of the ledger; its folder is created if needed, for only this user.
            spec: of the campaign.
            clock: returns the time of each entry.

        Raises:
            StateError: if a ledger exists, or another process uses it.
            DiskError: if the disk is full or not writable.
            UnreachableError: if the database does not answer.
        """
        body: dict[str, Json] = {"spec": spec.to_dict()}
        first = CHAIN.after(CHAIN.start, "open", body, _stamp(clock()))
        state = follow(None, first)
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

        Args:
            place: of the ledger.
            head: the newest that is known from elsewhere; it must be in the ledger.
            close: end the campaign where its ledger ends.
            clock: returns the time of each entry.

        Raises:
            UsageError: as of :func:`must_close`.
            StateError: if there is none, another process uses it, or a newer version wrote it.
            LedgerError: if it does not verify, or lacks an earlier entry.
            UnreachableError: if the database does not answer.
        """
        database = stores.opened(place)
        with stores.or_closed(database):
            with database.reading() as db:
                state = verify.audited(database, db, head)
            closing = must_close(place, database, state, head=head, close=close)
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
            return self._state

    def wait_after(
        self, seq: int, stop: Callable[[], bool], timeout: float | None = None
    ) -> CampaignState:
        """Wait until there is an entry after number ``seq``, ``stop()`` holds or time is up.

        ``stop`` is called again after each :meth:`wake`.
        """
        with self._turn:
            self._turn.wait_for(lambda: self._state.head.seq > seq or stop(), timeout)
            return self._state

    def wake(self) -> None:
        """Wake all threads blocked in :meth:`wait_after`."""
        with self._turn:
            self._turn.notify_all()

    def record_roster(
        self, parties: Sequence[RosterParty], classes: Sequence[str]
    ) -> CampaignState:
        """Fix the parties and classes, and so the mechanisms and the budget.

        Args:
            parties: in the order of the roster.
            classes: class names, in the order of the vote columns.

        Raises:
            QuorumError: if there are too few parties.
            RefusedError: if one is not invited, or protects a smaller unit than the campaign.
            SchemaError: if the classes are not the campaign's.
            BudgetError: if not a single answer fits the budget.
        """
        return self._append("roster", bodies.roster(self.state().spec, parties, classes))

    def record_unmasking(self, first: int, count: int, survivors: Sequence[str]) -> CampaignState:
        """Record the survivors of a masked sum, before any party is asked to unmask it.

        An identical unmasking in the ledger is not written again.

        Args:
            first: place of the batch's first query among those voted on; the others follow it.
            count: number of its queries.
            survivors: names of the parties in the sum, in the order of the roster.

        Raises:
            QuorumError: if they are too few.
            LedgerError: if another list was recorded before, or the votes are not masked.
        """
        with self._turn:
            wanted = (first, count, tuple(survivors))
            if wanted in [(e.first, e.count, e.survivors) for e in self._state.openings]:
                return self._state
            names: list[Json] = [*survivors]
            return self._append("opening", {"first": first, "count": count, "survivors": names})

    def record_votes(
        self, first: int, histogram: Total, responders: Sequence[str]
    ) -> CampaignState:
        """Record the summed votes of one batch.

        Args:
            first: place of the batch's first query among those voted on; the others follow it.
            histogram: (count, classes) votes, with the parties' noise if the campaign has it.
            responders: names of the parties in the sum, in the order of the roster.

        Raises:
            QuorumError: if too few parties answered.
            LedgerError: if the votes do not fit the roster, or were recorded before.
        """
        body, row = bodies.votes(self.state(), first, histogram, responders)
        return self._append("votes", body, (("batches", row),))

    def charge(self, queries: Sequence[int], *, simulated: bool = False) -> Charge:
        """Charge the worst cost of answering ``queries`` in the current round, durably.

        When this returns, noise may be drawn once for each query, and the answers be passed to
        :meth:`release`. If they never are, the cost stays spent, and no later process reuses the
        charge: whether a release was interrupted may depend on its content (its length on an almost
        full disk), and drawing again until one succeeds would be an uncharged choice among answers.
        A query that is asked again is charged again.

        Args:
            queries: indices into the public set, none with a label, none answered this round.
            simulated: whether the noise will be seeded, which is recorded permanently. With noise
                shares the server draws none, and records that.

        Raises:
            BudgetError: if it does not fit the budget, the round's share or ``max_queries``.
            LedgerError: if a query must not be asked.
            StateError: if the campaign is not labelling.
        """
        with self._turn:
            body = bodies.charge(self._state, queries, simulated=simulated)
            self._held = self._append("charge", body).open_charge
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
        its answers are lost and its cost stays spent.

        Args:
            charge: the last one that :meth:`charge` returned.
            outcomes: one per query of the charge, in its order.
            gate: result of the test of a gated batch; None for any other.
            noisy: for neighbour votes, their released (queries, classes) int64 noisy counts, in the
                order of the charge; None for any other.

        Raises:
            LedgerError: if the charge is not open, or the answers do not match it.
        """
        with self._turn:
            self._take(charge, len(outcomes))
            body, rows = bodies.release(self._state, charge, outcomes, gate=gate, noisy=noisy)
            return self._append("release", body, (("releases", row) for row in rows))

    def end_round(self, *, wants_predictions: bool) -> CampaignState:
        """End the current round.

        Args:
            wants_predictions: whether a further round needs the student's predictions.

        Raises:
            LedgerError: if no further round would need them.
        """
        with self._turn:
            self._held = None
            return self._append(
                "round-end", {"round": self._state.round, "wants_predictions": wants_predictions}
            )

    def record_predictions(self, round_: int, probabilities: Probabilities) -> bool:
        """Record the student's predictions for a round; only the first ones count.

        Args:
            round_: of the predictions, from 2.
            probabilities: (queries, classes) float32.

        Returns:
            Whether the round already had predictions, so that these were ignored.

        Raises:
            StateError: if no predictions are expected.
            LedgerError: if they are for another round, or of another shape.
        """
        with self._turn:
            if round_ in self._state.predictions:
                return True
            body, row = bodies.predictions(round_, probabilities)
            self._append("predictions", body, (("predictions", row),))
            return False

    def record_model(self, round_: int, model: RoundModel) -> CampaignState:
        """Record the model that a round shows to the records, before any party is asked with it.

        Args:
            round_: of the model; after the last round, the next number: it is the final one.
            model: of the campaign's directions and classes.

        Raises:
            LedgerError: if it does not follow from a release, or is recorded already.
        """
        return self._append("model", {"round": round_, "model": model.to_bytes().hex()})

    def finish(self) -> CampaignState:
        """Close the campaign: nothing is charged or released afterwards."""
        with self._turn:
            state, self._held = self._state, None
            return self._append(
                "close", {"labels_released": len(state.labels), "spent": str(state.spent)}
            )

    def counts(self) -> Counts:
        """Return all summed votes: (queries, classes) int64, zeros where there are none.

        They are private to the server. With noise shares they include the noise.
        """
        return stored_votes.all_counts(self._database, self.state())

    def counts_of(self, queries: Sequence[int]) -> Counts:
        """Return the summed votes of some queries, (queries, classes) int64, in their order.

        Raises:
            LedgerError: if there are none for one of them.
        """
        return stored_votes.counts_of(self._database, self.state(), queries)

    def predictions(self, round_: int) -> Probabilities | None:
        """Return the student's predictions for a round, or None: (queries, classes) float32."""
        return stored_votes.predictions_for(self._database, self.state(), round_)

    def entries(self, least: int = 1, kinds: Sequence[str] | None = None) -> list[Entry]:
        """Return committed entries from number ``least`` on, of the given kinds or of all."""
        with self._database.reading() as db:
            return list(each_entry(db, least, kinds))

    def close(self) -> None:
        """Close the ledger and release its lock."""
        with self._turn:
            self._failed = True
            self._turn.notify_all()
            self._database.close()

    def _take(self, charge: Charge, answers: int) -> None:
        """Consume this process's charge, which has one attempt."""
        if self._held is None or charge != self._held:
            raise LedgerError(f"charge {charge.entry} is not open in this process")
        self._held = None
        if answers != len(charge.queries):
            raise LedgerError(f"{answers} answers to {len(charge.queries)} queries")

    def _append(
        self,
        kind: str,
        body: dict[str, Json],
        rows: Iterable[Row] = (),
    ) -> CampaignState:
        with self._turn:
            if self._failed:
                raise StateError(f"the ledger {self.place} is closed or failed: open it again")
            entry = CHAIN.after(self._state.head, kind, body, _stamp(self._clock()))
            state = follow(self._state, entry)
            try:
                with self._database.writing() as db:
                    append(db, entry, rows)
                    reach("entry-written")
                self._database.remember(entry.head)
            except BaseException:
                # Also after a failed commit, which may or may not be on the disk.
                self._failed = True
                raise
            self._state = state
            self._turn.notify_all()
            return state


def _stamp(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds")
