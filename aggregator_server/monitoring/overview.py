"""The public view of a campaign: a frozen value from which page and metrics are rendered.

It contains only public facts and liveness. Nothing else that depends on votes than the released
labels has a field: no histogram, margin, data-dependent epsilon or number of records.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from importlib import resources

#: The phases of a campaign in their order; ``predicting`` comes between rounds of labels.
PHASES = ("gathering", "voting", "labelling", "predicting", "finished")


@dataclass(frozen=True)
class PartyRow:
    """One party of the roster; before the roster is fixed, a connected or expected party.

    Attributes:
        name: chosen by the party. Untrusted text.
        connected: whether it is connected now.
        doing: its state, in words.
        trouble: whether it needs attention: it refused, failed, or is awaited and disconnected.
        done: number of queries whose sum includes its votes.
        total: number of queries that parties vote on; 0 while unknown.
        by_envelope: whether it has no connection: it is ``connected`` once it has described itself.
    """

    name: str
    connected: bool
    doing: str
    trouble: bool
    done: int
    total: int
    by_envelope: bool = False


@dataclass(frozen=True)
class EnvelopeRow:
    """The last envelope for a party. Times are UTC, ISO 8601.

    Attributes:
        party: name of the recipient. Untrusted text.
        number: of the envelope, for this party.
        asks: what its last request asks for, in words.
        made: when.
        until: when the party stops answering it; empty: never.
        answered: when its answer was looked at; empty: there was none.
        state: see :attr:`aggregator_server.exchange.envelope.Out.state`.
    """

    party: str
    number: int
    asks: str
    made: str
    until: str
    answered: str
    state: str


@dataclass(frozen=True)
class Queries:
    """Progress of the queries.

    Attributes:
        public_set: size of the public set.
        voted_on: number of its queries that parties vote on; 0 before the roster.
        votes_in: number of queries with summed votes.
        asked: answered so far, by a label or by no answer; twice if asked in two rounds.
        labels: labels released.
        labelled: whether queries get labels; else noisy counts of them are released, and no label.
    """

    public_set: int
    voted_on: int
    votes_in: int
    asked: int
    labels: int
    labelled: bool = True


@dataclass(frozen=True)
class Budget:
    """The guarantee and the charged part of it. All fields are independent of votes.

    Attributes:
        epsilon: the guarantee, at the cap; fixed with the roster.
        delta: at which it holds.
        unit: record, patient or party.
        adjacency: the neighbouring relation, in a few words.
        observer: towards whom the guarantee holds.
        spent: charged share of the cap, 0 to 1.
        left: the remaining share.
        epsilon_charged: the charges so far, converted at ``delta``. Not the guarantee, which is
            ``epsilon`` even if the campaign stops early.
        epsilon_server: the same guarantee towards the server; None without one.
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
    """Number of labels of one class. The name is untrusted text."""

    name: str
    labels: int


@dataclass(frozen=True)
class CurvePoint:
    """The charged epsilon at a number of released labels.

    Attributes:
        labels: released by then.
        epsilon: the charges by then, converted at the campaign's delta.
    """

    labels: int
    epsilon: float


@dataclass(frozen=True)
class StudentRound:
    """Public figures of the student's predictions for a round.

    Attributes:
        round: of its predictions, from 2.
        received: whether they have arrived.
        agreement: share of the labels released in earlier rounds that it predicts identically; None
            without predictions or labels.
        accuracy: on labelled inputs of its own, as stated by the student, or None.
    """

    round: int
    received: bool
    agreement: float | None
    accuracy: float | None


@dataclass(frozen=True)
class LedgerLine:
    """One ledger entry, or consecutive ones of the same meaning.

    Attributes:
        number: of the last of them.
        kind: of that entry.
        words: their meaning.
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
    """One line of the server's log: time (UTC), level, text, part of which may be untrusted."""

    time: str
    level: str
    text: str


@dataclass(frozen=True)
class Check:
    """One health check.

    Attributes:
        name: stable; one of doors, link (transport to the parties), ledger, student, certificates,
            noise, interrupted.
        ok: whether it passed.
        text: the finding, in words.
    """

    name: str
    ok: bool
    text: str


@dataclass(frozen=True)
class Forecast:
    """What to expect, before the labels are there. All of it follows from public facts and guesses.

    Attributes:
        text: in words.
        few: whether a student probably learns too little.
        advice: what helps then; else empty.
    """

    text: str
    few: bool
    advice: str


@dataclass(frozen=True)
class Command:
    """A command to copy: ``who`` is to type it, or what it is for, in words."""

    who: str
    line: str


@dataclass(frozen=True)
class Overview:
    """A snapshot of a campaign.

    Attributes:
        campaign: its name.
        id: its identity, hex.
        mechanism: name of the aggregator.
        mechanism_words: mechanism with its parameters; empty before the roster.
        aggregation: ``plain`` or ``masked``.
        noise: ``central`` or ``distributed``.
        publish: ``capped`` or ``gated``.
        gate: of a gated batch, ``open`` or ``closed``; None otherwise, and before it was tried.
        phase: one of :data:`PHASES`.
        failed: why this run of the server ended early, in words; empty while it runs, and at its end.
        phases: those of this campaign.
        round: the current one, from 1.
        rounds: largest number of rounds.
        wanted: number of parties that the campaign waits for.
        min_parties: least number of parties.
        teachers: of the whole roster; 0 before it, and for neighbour votes.
        parties: the first of them; see ``parties_unlisted``.
        parties_unlisted: further parties that are not in ``parties``.
        connected: number of connected parties, listed or not.
        by_envelope: number of those parties, listed or not, that have no connection.
        envelopes: the last one for each of the first of them; those without answer come first.
        step: the current request to parties, in words; empty if none.
        queries: their progress.
        labels: by class, in the order of the classes; empty before the roster.
        promise: the guarantee at most, in words, known from the start.
        expected: what to expect; None once all labels are released, or if it cannot be known.
        commands: what to type next, and who.
        budget: None before the roster.
        curve: from zero to now, subsampled; empty before the roster.
        student: one value per round with predictions requested.
        ledger: the last entries, the newest first.
        ledger_entries: number of all.
        log: the latest lines, the newest last.
        checks: passed and failed ones.
        ready: whether parties and students can connect.
        began: start of this process's run, UTC, ISO 8601.
        made: time of this snapshot, UTC, ISO 8601.
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
    failed: str
    phases: tuple[str, ...]
    round: int
    rounds: int
    wanted: int
    min_parties: int
    teachers: int
    parties: tuple[PartyRow, ...]
    parties_unlisted: int
    connected: int
    by_envelope: int
    envelopes: tuple[EnvelopeRow, ...]
    step: str
    queries: Queries
    labels: tuple[ClassLabels, ...]
    promise: str
    expected: Forecast | None
    commands: tuple[Command, ...]
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
        """Return it as a JSON object with the same fields."""
        return asdict(self)

    def to_html(self) -> bytes:
        """Return the page with this overview inside, as one HTML file that needs no server."""
        told = json.dumps(self.to_json(), allow_nan=False).replace("<", "\\u003c")
        icon = f"data:image/svg+xml;base64,{base64.b64encode(static('page.svg')).decode()}"
        style, script = static("page.css").decode(), static("page.js").decode()
        text = static("page.html").decode()
        for link, inside in (
            ('<link rel="stylesheet" href="/page.css">', f"<style>{style}</style>"),
            (
                '<script src="/page.js"></script>',
                f'<script type="application/json" id="last">{told}</script><script>{script}</script>',
            ),
            ("/page.svg", icon),
        ):
            text = text.replace(link, inside)
        return text.encode()


def static(name: str) -> bytes:
    """Return one of the page's files."""
    return (resources.files("aggregator_server.monitoring") / "static" / name).read_bytes()
