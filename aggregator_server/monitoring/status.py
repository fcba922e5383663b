"""The status of a campaign: updated by the campaign, read as an overview.

Updates never block the campaign: the ledger is read on demand, in the reader's thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from aggregator_server.exchange.aggregation import STEPS
from aggregator_server.exchange.presence import Presence
from aggregator_server.exchange.store import EARLY
from aggregator_server.monitoring.overview import (
    PHASES,
    Budget,
    Check,
    ClassLabels,
    Command,
    CurvePoint,
    EnvelopeRow,
    History,
    LogLine,
    Overview,
    PartyRow,
    Queries,
    StudentRound,
    short_time,
)
from aggregator_server.results.statement import (
    expected_of,
    promised,
    server_epsilon,
)
from pate.campaign.choices import NO_GUESS, Guess
from pate.codes import code_of
from pate.errors import PateError
from pate.formats.mechanism_words import mechanism_in_words
from pate.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from fractions import Fraction

    from aggregator_server.exchange.presence import Out
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.state import CampaignState
    from pate.planning.forecast import Forecast
    from pate.runtime.log import Line

#: Most stored log lines, and characters of each.
LINES: Final = 60
LINE_LENGTH: Final = 400
#: Most parties listed by name; those that need attention come first.
LISTED: Final = 200
_NAME_LENGTH: Final = 200
#: What a party did whose last envelope has such a state.
_MISSED: Final = {"lost": "did not answer in time", "late": "answered too late"}
#: What envelopes ask for besides the steps of sums.
_ASKS: Final = {
    "describe": "a description",
    "public_piece": "a description",
    EARLY: "a description and keys ahead",
    "finish": "nothing: the end",
}


class Status:
    """The status of one campaign. Its methods may be called from any thread."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        # the student's stated accuracy, by the round that follows
        accuracies: Callable[[], Mapping[int, float]] = dict,
        guess: Guess = NO_GUESS,  # the coordinator's, for what to expect
    ) -> None:
        spec = ledger.state().spec
        self._ledger = ledger
        self._clock = clock
        self._accuracies = accuracies
        self._guess = guess
        #: Before and after the roster.
        self._forecasts: dict[bool, Forecast | None] = {}
        self._commands: tuple[Command, ...] = ()
        self._failed = ""
        self._began = clock()
        #: Times of a gated batch are coarse: the duration of its test may depend on votes.
        self._roughly = spec.gate is not None
        #: The first is held briefly for an update; the second while an overview is made.
        self._inbox, self._making = threading.Lock(), threading.Lock()
        self._news = 0
        self._presence = Presence()
        self._envelopes: tuple[Out, ...] = ()
        self._log: deque[LogLine] = deque(maxlen=LINES)
        self._checks: list[Callable[[], Check]] = []
        self._doors: tuple[str, str, Callable[[], bool]] | None = None
        self._tally = History(to_the_minute=self._roughly)
        self._worth: dict[Fraction, float] = {}
        self._agreements: dict[int, float | None] = {}
        self._made: tuple[object, Overview] | None = None

    # --- told by whoever works -----------------------------------------------------------

    def present(self, presence: Presence) -> None:
        """Record the current presence and open request, if they changed."""
        with self._inbox:
            if presence != self._presence:
                self._presence = presence
                self._news += 1

    def envelopes(self, newest: Sequence[Out]) -> None:
        """Record the last envelope for each party by envelope, in the order of their names."""
        with self._inbox:
            if self._envelopes != (found := tuple(newest)):
                self._envelopes = found
                self._news += 1

    def line(self, line: Line) -> None:
        """Record a line of the server's log."""
        said = line.time.astimezone(UTC).isoformat()
        text = printable(line.text, LINE_LENGTH)
        with self._inbox:
            time = short_time(said, to_the_minute=self._roughly)
            self._log.append(LogLine(time, line.level, text))
            self._news += 1

    def check(self, look: Callable[[], Check]) -> None:
        """Add a health check, which is called for each overview."""
        with self._inbox:
            self._checks.append(look)
            self._news += 1

    def fail(self, why: str) -> None:
        """Record why this run of the server ends early."""
        with self._inbox:
            self._failed = printable(why, LINE_LENGTH)
            self._news += 1

    def tell_commands(self, *commands: Command) -> None:
        """Record what is to be typed next, and by whom."""
        with self._inbox:
            self._commands = commands
            self._news += 1

    def open_doors(self, address: str, link: Callable[[], bool], *, listens: str = "") -> None:
        """Record that the server accepts parties.

        ``address``: that parties are given; empty if all take part by envelope; ``listens``: the
        address that this machine listens on, if it differs, or the folder of the envelopes.
        """
        with self._inbox:
            self._doors = address, listens or address, link

    def close_doors(self) -> None:
        """Record that the server no longer accepts parties; none is connected then."""
        with self._inbox:
            self._doors, self._presence = None, Presence()
            self._news += 1

    def time(self) -> str:
        """Return the time in the format of an overview."""
        return short_time(self._clock().astimezone(UTC).isoformat(), to_the_minute=self._roughly)

    # --- asked by whoever looks ----------------------------------------------------------

    def ready(self) -> bool:
        """Whether the ledger is open and, while parties are needed, the server accepts them."""
        state = self._ledger.state()
        try:
            self._ledger.entries(state.head.seq)
        except PateError:
            return False
        return _fit(self._checks_of_doors(state))

    def overview(self) -> Overview:
        """Return a snapshot of the campaign; the same object until something changes."""
        with self._making:
            with self._inbox:
                news, presence, log = self._news, self._presence, tuple(self._log)
                looks, envelopes = tuple(self._checks), self._envelopes
                commands, failed = self._commands, self._failed
            state = self._ledger.state()
            checks = (*self._checks_of_doors(state), *(look() for look in looks))
            said = dict(self._accuracies())
            key = (news, state.head.seq, checks, tuple(sorted(said.items())))
            if self._made is None or self._made[0] != key:
                made = self._make(state, presence, envelopes, log, checks, said)
                made = replace(made, commands=commands, failed=failed)
                self._made = key, made
            return self._made[1]

    def _make(
        self,
        state: CampaignState,
        presence: Presence,
        envelopes: tuple[Out, ...],
        log: tuple[LogLine, ...],
        checks: tuple[Check, ...],
        said: Mapping[int, float],
    ) -> Overview:
        spec, tally, code = state.spec, self._tally, code_of(state.spec.code)
        if tally.entries < state.head.seq:
            entries = self._ledger.entries(tally.entries + 1)
            # An entry newer than `state` may exist; it is left for the next overview.
            tally.take(entry for entry in entries if entry.seq <= state.head.seq)
        rows = self._rows(state, presence, {each.party: each.state for each in envelopes})
        interrupted: tuple[Check, ...] = ()
        if state.wasted:
            share = float(state.wasted / state.cap)
            text = f"interruptions cost {share:.1%} of the budget: charged, and no answer came"
            interrupted = (Check("interrupted", ok=True, text=text),)
        return Overview(
            campaign=printable(spec.name, _NAME_LENGTH),
            id=spec.id,
            mechanism=spec.aggregator,
            mechanism_words="; then ".join(
                mechanism_in_words(each.to_dict()) for each in state.mechanisms
            ),
            aggregation=spec.sums.aggregation,
            noise=spec.sums.noise,
            publish=spec.publish,
            gate=state.gate,
            phase=state.phase,
            failed="",
            phases=tuple(p for p in PHASES if p != "predicting" or spec.interactive),
            round=state.round,
            rounds=spec.rounds,
            wanted=spec.wanted_parties,
            min_parties=spec.sums.min_parties,
            teachers=state.teachers,
            parties=rows[:LISTED],
            parties_unlisted=max(0, len(rows) - LISTED),
            connected=sum(row.connected for row in rows),
            by_envelope=sum(row.by_envelope for row in rows),
            envelopes=self._envelope_rows(envelopes),
            step="" if state.phase == "finished" else presence.step,
            queries=Queries(
                public_set=spec.queries,
                voted_on=len(state.voted),
                votes_in=sum(batch.count for batch in state.batches),
                asked=state.queries_asked,
                labels=len(state.labels),
                labelled=spec.voted_for.labelled,
                directions=code.places if code.in_directions else 0,
            ),
            labels=tuple(
                ClassLabels(printable(name, _NAME_LENGTH), labels)
                for name, labels in zip(
                    state.classes, state.labels.by_class(len(state.classes)), strict=True
                )
            ),
            promise=promised(spec, state.epsilon or spec.epsilon),
            expected=None if state.rounds_over else self._forecast(state),
            commands=(),
            budget=_budget(state, self._epsilon(state, state.spent)) if state.roster else None,
            curve=self._curve(state),
            student=self._student(state, said),
            ledger=tally.tail,
            ledger_entries=tally.entries,
            log=log,
            checks=checks + interrupted,
            ready=_fit(checks),
            began=short_time(self._began.astimezone(UTC).isoformat(), to_the_minute=False),
            made=self.time(),
        )

    def _checks_of_doors(self, state: CampaignState) -> tuple[Check, ...]:
        with self._inbox:
            doors = self._doors
        if doors is None:
            over = state.phase == "finished"
            text = "closed: the campaign is over" if over else "not open yet"
            return (Check("doors", over, text),)
        address, listens, link = doors
        runs = link()
        if not address:
            files = f"files for parties in {listens}/out, their answers in {listens}/in"
            return (
                Check("doors", ok=True, text="all by envelope; no port is open to them"),
                Check("link", runs, files),
            )
        here = "" if listens == address else f"; this machine listens on {listens}"
        return (
            Check("doors", ok=True, text=f"they connect to {address}{here}"),
            Check("link", runs, "running" if runs else "being started again"),
        )

    def _envelope_rows(self, envelopes: Sequence[Out]) -> tuple[EnvelopeRow, ...]:
        def when(stamp: str | None) -> str:
            return short_time(stamp, to_the_minute=self._roughly) if stamp else ""

        made = [
            EnvelopeRow(
                party=printable(each.party, _NAME_LENGTH),
                number=each.number,
                asks=_ASKS.get(each.asks, STEPS.get(each.asks, "")),
                made=when(each.made),
                until=when(each.until),
                answered=when(each.answered),
                state=each.state,
            )
            for each in envelopes
        ]
        if len(made) > LISTED:
            made.sort(key=lambda row: row.state in ("answered", "end"))
        return tuple(made[:LISTED])

    def _rows(
        self, state: CampaignState, presence: Presence, by_envelope: Mapping[str, str]
    ) -> tuple[PartyRow, ...]:
        over, spec, votes = state.phase == "finished", state.spec, Counter[str]()
        for batch in state.batches:
            votes.update(dict.fromkeys(batch.responders, batch.count))
        if state.roster:
            names = [party.name for party in state.roster]
        else:
            invited = spec.parties if isinstance(spec.parties, tuple) else ()
            names = sorted(presence.here.union(presence.preparing, presence.refused, invited))
        made = [
            PartyRow(
                name=printable(name, _NAME_LENGTH),
                connected=name in presence.here | presence.preparing,
                doing="done" if over else _doing(presence, name, by_envelope.get(name)),
                trouble=not over and (by_envelope.get(name) in _MISSED or presence.troubled(name)),
                done=votes[name],
                total=len(state.voted),
                by_envelope=name in by_envelope,
            )
            for name in names
        ]
        if len(made) > LISTED:
            made.sort(key=lambda row: (not row.trouble, row.connected))
        return tuple(made)

    def _epsilon(self, state: CampaignState, spent: Fraction) -> float:
        if spent not in self._worth:
            self._worth[spent] = state.epsilon_of(spent)
        return self._worth[spent]

    def _curve(self, state: CampaignState) -> tuple[CurvePoint, ...]:
        if not state.roster:
            return ()
        points = self._tally.points
        made = tuple(CurvePoint(labels, self._epsilon(state, cost)) for labels, cost in points)
        kept = {cost for _, cost in points} | {state.spent}
        self._worth = {cost: worth for cost, worth in self._worth.items() if cost in kept}
        return made

    def _forecast(self, state: CampaignState) -> Forecast | None:
        known = bool(state.roster)
        if known not in self._forecasts:
            self._forecasts[known] = None
            with contextlib.suppress(PateError):  # the campaign itself says so
                self._forecasts[known] = expected_of(state, self._guess)
        return self._forecasts[known]

    def _student(self, state: CampaignState, said: Mapping[int, float]) -> tuple[StudentRound, ...]:
        asked = sorted(
            {*state.predictions, *([state.round] if state.phase == "predicting" else [])}
        )
        return tuple(
            StudentRound(
                round_,
                round_ in state.predictions,
                self._agreement(state, round_) if round_ in state.predictions else None,
                said.get(round_),
            )
            for round_ in asked
        )

    def _agreement(self, state: CampaignState, round_: int) -> float | None:
        """Return the share of labels from before a round that the student predicts as well."""
        if round_ not in self._agreements:
            predictions = self._ledger.predictions(round_)
            before = [
                (query, held.label)
                for query, held in state.labels.items()
                if held.round < round_ and held.source != "reinforced"
            ]
            agreed = None
            if predictions is not None and before:
                queries, labels = np.array(before, dtype=np.int64).T
                agreed = float(np.mean(predictions[queries].argmax(axis=1) == labels))
            self._agreements[round_] = agreed
        return self._agreements[round_]


def _doing(presence: Presence, name: str, envelope: str | None) -> str:
    """Return what a party does, in words; ``envelope``: the state of its last one, if it has any."""
    if envelope is not None and name not in presence.here:
        return "has not answered yet"
    return _MISSED.get(envelope or "") or presence.doing(name)


def _fit(checks: Sequence[Check]) -> bool:
    return all(check.ok for check in checks if check.name in ("doors", "link"))


def _budget(state: CampaignState, charged: float) -> Budget:
    spent = round(float(state.spent / state.cap), 4)
    return Budget(
        epsilon=state.epsilon,
        delta=state.spec.delta,
        unit=state.spec.unit,
        adjacency=state.spec.neighbours,
        observer="public",
        spent=spent,
        left=round(1 - spent, 4),
        epsilon_charged=charged,
        epsilon_server=server_epsilon(state),
        composition=state.currency.name,
    )
