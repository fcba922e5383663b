"""What may be seen of a campaign: one frozen value that the page and the metrics are made of.

It holds public facts and liveness alone. Whatever depends on votes beyond the released labels has
no field here: no histogram, no margin, no epsilon that looks at data, no number of records.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

#: The phases of a campaign in their order; ``predicting`` comes between rounds of labels.
PHASES = ("gathering", "voting", "labelling", "predicting", "finished")


@dataclass(frozen=True)
class PartyRow:
    """One party of the roster; before there is one, a party that is here or expected.

    Attributes:
        name: as it calls itself. Foreign text.
        connected: whether it is connected now.
        doing: what it does, in words.
        trouble: whether somebody should look at it: it refused, failed, or is missed.
        done: queries whose sum holds its votes.
        total: queries that parties vote on; 0 while that is not known.
    """

    name: str
    connected: bool
    doing: str
    trouble: bool
    done: int
    total: int


@dataclass(frozen=True)
class Queries:
    """How far the queries are.

    Attributes:
        public_set: size of the public set.
        voted_on: how many of it parties vote on; 0 before the roster.
        votes_in: of how many the summed votes are here.
        asked: answered so far, by a label or by no answer; twice if asked in two rounds.
        labels: labels released.
    """

    public_set: int
    voted_on: int
    votes_in: int
    asked: int
    labels: int


@dataclass(frozen=True)
class Budget:
    """The guarantee, and how much of it was charged. None of it looks at a vote.

    Attributes:
        epsilon: the guarantee, that of the cap; known from the roster on and never changed.
        delta: at which it holds.
        unit: record, patient or party.
        adjacency: what neighbouring worlds differ by, in a few words.
        observer: whom it is a guarantee towards.
        spent: share of the cap that is charged, 0 to 1.
        left: the rest.
        epsilon_charged: what the charges so far are worth at ``delta``. No guarantee: that is
            ``epsilon``, at whatever moment the campaign stops.
        epsilon_server: the same guarantee towards the server; None where nothing is promised.
        composition: how costs add up.
    """

    epsilon: float
    delta: float
    unit: str
    adjacency: str
    observer: str
    spent: float
    left: float
    epsilon_charged: float
    epsilon_server: float | None
    composition: str


@dataclass(frozen=True)
class ClassLabels:
    """How many labels one class has. The name is foreign text."""

    name: str
    labels: int


@dataclass(frozen=True)
class CurvePoint:
    """What had been charged when so many labels were out.

    Attributes:
        labels: released by then.
        epsilon: what the charges by then are worth at the campaign's delta.
    """

    labels: int
    epsilon: float


@dataclass(frozen=True)
class StudentRound:
    """What is known of the student before a round.

    Attributes:
        round: that its predictions were for, from 2.
        received: whether they are here.
        agreement: share of the labels released in earlier rounds that it predicts as well; None
            without predictions or labels.
        accuracy: on labelled inputs of its own, as the student says; None if it does not.
    """

    round: int
    received: bool
    agreement: float | None
    accuracy: float | None


@dataclass(frozen=True)
class LedgerLine:
    """One entry of the ledger, or several of the same meaning that follow each other.

    Attributes:
        number: of the last of them.
        kind: of that entry.
        words: what they mean.
        time: when the last was written, UTC.
        first: number of the first of them.
    """

    number: int
    kind: str
    words: str
    time: str
    first: int


@dataclass(frozen=True)
class LogLine:
    """One line that the server said: when (UTC), how grave, what. Foreign text may be in it."""

    time: str
    level: str
    text: str


@dataclass(frozen=True)
class Check:
    """One thing that can be well or not.

    Attributes:
        name: stable, of a few: doors, link (what carries the parties' messages), ledger, student,
            certificates, noise, interrupted.
        ok: whether it is well.
        text: what is so, in words.
    """

    name: str
    ok: bool
    text: str


@dataclass(frozen=True)
class Overview:
    """A campaign as of one moment.

    Attributes:
        campaign: its name.
        id: its identity, hex.
        mechanism: name of the aggregator.
        mechanism_words: with its parameters; empty before the roster.
        aggregation: ``plain`` or ``masked``.
        noise: ``central`` or ``distributed``.
        publish: ``capped`` or ``gated``.
        gate: of a gated batch, ``open`` or ``closed``; None otherwise, and before it was tried.
        phase: one of :data:`PHASES`.
        phases: those that this campaign goes through.
        round: the present one, from 1.
        rounds: at most so many.
        wanted: number of parties that the campaign waits for.
        min_parties: with fewer it stops.
        teachers: of the whole roster; 0 before it, and where records vote themselves.
        parties: the first of them; see ``parties_unlisted``.
        parties_unlisted: further parties that are not in ``parties``.
        connected: how many are connected, listed or not.
        step: what parties are being asked for, in words; empty if nothing.
        queries: how far they are.
        labels: by class, in the order of the classes; empty before the roster.
        budget: None before the roster.
        curve: from nothing to now, thinned out; empty before the roster.
        student: a value for each round that the student was asked about.
        ledger: the last entries, the newest first.
        ledger_entries: number of all.
        log: the last lines, the newest last.
        checks: what is well and what is not.
        ready: whether parties and students can do their part.
        began: when this process took up the campaign, UTC, ISO 8601.
        made: when this value was made, the same.
    """

    campaign: str
    id: str
    mechanism: str
    mechanism_words: str
    aggregation: str
    noise: str
    publish: str
    gate: str | None
    phase: str
    phases: tuple[str, ...]
    round: int
    rounds: int
    wanted: int
    min_parties: int
    teachers: int
    parties: tuple[PartyRow, ...]
    parties_unlisted: int
    connected: int
    step: str
    queries: Queries
    labels: tuple[ClassLabels, ...]
    budget: Budget | None
    curve: tuple[CurvePoint, ...]
    student: tuple[StudentRound, ...]
    ledger: tuple[LedgerLine, ...]
    ledger_entries: int
    log: tuple[LogLine, ...]
    checks: tuple[Check, ...]
    ready: bool
    began: str
    made: str

    def to_json(self) -> dict[str, object]:
        """Return it as a JSON object, field by field."""
        return asdict(self)
