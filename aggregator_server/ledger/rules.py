"""The rules of the ledger: which entry may follow a state, and the state after it.

The same function admits an entry before it is written and checks it when the ledger is read, so
every ledger that this code wrote verifies. It reads only the chain: no clock, no files, no votes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from aggregator_server.ledger.json_fields import Fields
from aggregator_server.ledger.release_rules import release
from aggregator_server.ledger.state import (
    CampaignState,
    Charge,
    PredictionRecord,
)
from aggregator_server.ledger.vote_rules import opening, votes
from pate.accounting.budget import PrivacyFilter
from pate.accounting.events import event_from_dict
from pate.campaign.choices import UNITS
from pate.campaign.neighbour_terms import require_size
from pate.campaign.roster import RosterParty
from pate.campaign.spec import CampaignSpec
from pate.campaign.terms import recorded_terms, voted_rows
from pate.codes import code_of
from pate.errors import (
    BudgetError,
    LedgerError,
    PateError,
    ProtocolError,
    QuorumError,
    RefusedError,
    SchemaError,
    StateError,
)
from pate.mechanisms import mechanism_from_dict
from pate.rounds.model import RoundModel
from pate.storage.hash_chain import Chain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pate.storage.hash_chain import Entry, Json

CHAIN: Final = Chain(b"pate ledger entry v1\0", b"pate ledger v1")

#: Kinds of noise in a charge. ``simulated`` is seeded and gives no protection; ``parties`` is
#: already in the votes.
NOISE_NAMES: Final = ("system", "simulated", "parties")

#: Most queries of one charge, which bounds the waste of an interruption.
MOST_QUERIES: Final = 256


def follow(state: CampaignState | None, entry: Entry) -> CampaignState:
    """Return the state after ``entry``.

    Args:
        state: before it; None before the first.
        entry: the next one of the chain.

    Raises:
        LedgerError: if the entry is invalid there: a broken chain, a step out of order, a release
            without its charge, a query answered twice, a cost that is not the accountant's.
        BudgetError: if a charge does not fit the budget, the round's share or ``max_queries``.
        QuorumError: if too few parties joined or answered.
        SchemaError: if the classes are not the campaign's.
        RefusedError: if a party is not invited, or protects a smaller unit than the campaign.
        StateError: if the campaign is finished or in another phase.
    """
    body = CHAIN.check(entry, state.head if state else CHAIN.start)
    if state is None:
        if entry.kind != "open":
            raise LedgerError(f"the first entry is {entry.kind!r}, not 'open'")
        fields = Fields(body, "spec")
        return CampaignState(CampaignSpec.from_dict(fields.object("spec")), entry.head)
    if entry.kind == "open":
        raise LedgerError(f"entry {entry.seq} opens the campaign a second time")
    if entry.kind not in _STEPS:
        raise LedgerError(f"entry {entry.seq} has the unknown kind {entry.kind!r}")
    phases, step = _STEPS[entry.kind]
    if state.phase not in phases:
        raise StateError(
            f"entry {entry.seq}: {entry.kind!r} is not allowed while the campaign is {state.phase}"
        )
    return replace(step(state, entry, body), head=entry.head)


def replay(entries: Iterable[Entry]) -> CampaignState:
    """Return the state after all entries of a ledger.

    Raises:
        LedgerError: if there are none, or any is invalid in its place.
    """
    state: CampaignState | None = None
    for entry in entries:
        try:
            state = follow(state, entry)
        except LedgerError as error:
            raise LedgerError(f"entry {entry.seq} ({entry.kind}): {error}") from error
        except PateError as error:
            raise LedgerError(f"entry {entry.seq} ({entry.kind}) breaks a rule: {error}") from error
    if state is None:
        raise LedgerError("the ledger is empty")
    return state


def _roster(state: CampaignState, entry: Entry, body: dict[str, Json]) -> CampaignState:
    del entry
    fields = Fields(body, "parties classes mechanisms composition cap")
    parties = tuple(_party(each) for each in fields.many("parties"))
    spec = state.spec
    names = [party.name for party in parties]
    if len(set(names)) != len(names):
        raise RefusedError(f"two parties have the same name: {', '.join(names)}")
    keys = [party.identity for party in parties if party.identity]
    if len(set(keys)) != len(keys):
        raise RefusedError("two parties have the same identity key")
    if isinstance(spec.parties, tuple) and (uninvited := sorted(set(names) - set(spec.parties))):
        raise RefusedError(f"not invited to this campaign: {', '.join(uninvited)}")
    if not spec.sums.min_parties <= len(parties) <= spec.wanted_parties:
        raise QuorumError(
            f"{len(parties)} parties joined; the campaign needs {spec.sums.min_parties} "
            f"to {spec.wanted_parties}"
        )
    for party in parties:
        if spec.unit != "party" and UNITS.index(party.unit) < UNITS.index(spec.unit):
            raise RefusedError(
                f"the campaign protects each {spec.unit}, but {party.name} keeps only each "
                f"{party.unit} within one teacher: it must name its group column"
            )
        if spec.neighbour is not None and party.teachers != spec.neighbour.most_votes:
            raise LedgerError(
                f"{party.name} has another bound on votes per count than the campaign"
            )
    classes = fields.texts("classes")
    if len(classes) < 2 or len(set(classes)) != len(classes) or not all(classes):
        raise SchemaError(f"a campaign needs two or more different classes, got {classes}")
    if spec.classes is not None and spec.classes != classes:
        raise SchemaError(f"the parties' classes {classes} are not the campaign's {spec.classes}")
    if spec.neighbour is not None:
        require_size(len(spec.neighbour.representatives), len(classes))
    if spec.one_release:
        code_of(spec.code).answer.check_columns(classes)
    mechanisms = tuple(mechanism_from_dict(_plain(each)) for each in fields.many("mechanisms"))
    cap = fields.fraction("cap")
    composition = recorded_terms(spec, parties, mechanisms, fields.text("composition"), cap)
    return replace(
        state,
        phase="voting",
        roster=parties,
        classes=classes,
        mechanisms=mechanisms,
        composition=composition,
        cap=cap,
        voted=voted_rows(spec, mechanisms, composition, cap),
    )


def _charge(state: CampaignState, entry: Entry, body: dict[str, Json]) -> CampaignState:
    fields = Fields(body, "round queries mechanism events cost noise")
    if state.rounds_over:
        raise StateError("the last round has ended: nothing more can be charged")
    if (round_ := fields.integer("round", 1)) != state.round:
        raise LedgerError(f"a charge for round {round_} in round {state.round}")
    mechanism = state.mechanism(round_)
    if _plain(fields.object("mechanism")) != mechanism.to_dict():
        raise LedgerError(f"a charge for another mechanism than the one of round {round_}")
    if state.spec.interactive and round_ > 1 and round_ not in state.predictions:
        raise StateError(f"round {round_} has no predictions of the student yet")
    queries = fields.integers("queries")
    _check_free(state, round_, queries)
    events = tuple(event_from_dict(_plain(each)) for each in fields.many("events"))
    worst, cost = state.charged(len(queries))
    if events != worst:
        raise LedgerError("the events of a charge are not the worst case of its mechanism")
    if fields.fraction("cost") != cost:
        raise LedgerError(f"a charge of {fields.text('cost')}, the accountant says {cost}")
    if (name := fields.text("noise")) not in NOISE_NAMES:
        raise LedgerError(f"unknown noise {name!r}")
    if (name == "parties") != state.spec.sums.distributed:
        raise LedgerError(f"noise of {name!r} in a campaign with {state.spec.sums.noise} noise")
    if state.queries_left is not None and len(queries) > state.queries_left:
        raise BudgetError(
            f"{len(queries)} queries, but only {state.queries_left} more may be asked"
        )
    # A charge without a release stays spent: see Ledger.charge.
    PrivacyFilter(state.limit, min(state.spent, state.limit)).reserve(cost)
    PrivacyFilter(state.cap, state.spent).reserve(cost)
    lost = state.open_charge.cost if state.open_charge else 0
    return replace(
        state,
        phase="labelling",
        spent=state.spent + cost,
        wasted=state.wasted + lost,
        open_charge=Charge(entry.seq, round_, queries, events, cost),
        simulated=state.simulated or name == "simulated",
    )


def _check_free(state: CampaignState, round_: int, queries: tuple[int, ...]) -> None:
    # A gated batch, or a matrix, is charged once, whatever its number of queries.
    most = state.spec.queries if state.spec.gate or state.spec.one_release else MOST_QUERIES
    if not 0 < len(queries) <= most or len(set(queries)) != len(queries):
        raise LedgerError(f"a charge is for 1 to {most} queries, and each once")
    answered = state.answered.get(round_, frozenset())
    if state.spec.one_release and queries != state.voted.at(state.places):
        raise LedgerError("votes of one release are charged for all their queries together")
    for query in queries:
        if query in state.labels:
            raise LedgerError(f"query {query} already has its label: it is never asked again")
        if query in answered:
            raise LedgerError(f"query {query} was already answered in round {round_}")
        state.batch_of(query)


def _round_end(state: CampaignState, entry: Entry, body: dict[str, Json]) -> CampaignState:
    del entry
    fields = Fields(body, "round wants_predictions")
    if state.rounds_over or fields.integer("round", 1) != state.round:
        raise LedgerError(f"round {body['round']} cannot end now: it is round {state.round}")
    wants, more = fields.flag("wants_predictions"), state.round < state.spec.rounds
    if wants and not (more and state.spec.interactive):
        raise LedgerError("no further round needs predictions")
    after = _waste_open(state)
    if state.spec.in_rounds:
        # A release that was interrupted is the last: what is shown next would follow from it.
        if not more or len(state.models) < state.round:
            return replace(after, phase="labelling", rounds_over=True)
        return replace(after, phase="voting", round=state.round + 1)
    if wants:
        return replace(after, phase="predicting", round=state.round + 1)
    if more and not state.spec.interactive:
        return replace(after, phase="labelling", round=state.round + 1)
    return replace(after, phase="labelling", rounds_over=True)


def _predictions(state: CampaignState, entry: Entry, body: dict[str, Json]) -> CampaignState:
    fields = Fields(body, "round rows classes digest")
    if fields.integer("round", 1) != state.round:
        raise LedgerError(f"predictions for round {body['round']}, expected {state.round}")
    if (fields.integer("rows"), fields.integer("classes")) != (
        state.spec.queries,
        len(state.classes),
    ):
        raise LedgerError("predictions of another shape than (queries, classes)")
    return replace(
        state,
        phase="labelling",
        predictions={
            **state.predictions,
            state.round: PredictionRecord(fields.text("digest"), entry.seq),
        },
    )


def _model(state: CampaignState, entry: Entry, body: dict[str, Json]) -> CampaignState:
    """Return the state after the model that records are shown in the next round, or the final one."""
    del entry
    fields = Fields(body, "round model")
    following = state.round + 1
    if not state.spec.in_rounds or state.rounds_over:
        raise LedgerError("a model where no further round shows one")
    if fields.integer("round", 1) != following or len(state.models) != state.round - 1:
        raise LedgerError(f"a model for round {body['round']} in round {state.round}")
    if len(state.released) != state.round:
        raise LedgerError(f"a model for round {following} before round {state.round} is released")
    text = fields.text("model")
    try:
        model = RoundModel.from_bytes(bytes.fromhex(text))
        model.check_shape(len(state.voted.rows), len(state.classes))
        if model.to_bytes().hex() != text:
            raise ValueError("other text than that of its bytes")
    except (ValueError, ProtocolError) as error:
        raise LedgerError(f"the model for round {following}: {error}") from error
    return replace(state, models=(*state.models, model))


def _close(state: CampaignState, entry: Entry, body: dict[str, Json]) -> CampaignState:
    del entry
    fields = Fields(body, "labels_released spent")
    if fields.integer("labels_released") != len(state.labels):
        raise LedgerError(
            f"closed with {body['labels_released']} labels, but there are {len(state.labels)}"
        )
    if fields.fraction("spent") != state.spent:
        raise LedgerError(f"closed with {body['spent']} spent, but it is {state.spent}")
    return replace(_waste_open(state), phase="finished", rounds_over=True)


def _waste_open(state: CampaignState) -> CampaignState:
    if state.open_charge is None:
        return state
    return replace(state, wasted=state.wasted + state.open_charge.cost, open_charge=None)


def _party(body: Json) -> RosterParty:
    fields = Fields(body, "name identity teachers unit")
    party = RosterParty(
        fields.text("name"),
        fields.text("identity"),
        fields.integer("teachers", 1),
        fields.text("unit"),
    )
    if not party.name or party.unit not in ("record", "patient"):
        raise LedgerError(f"not a party: {body!r}")
    return party


def _plain(body: Json) -> Mapping[str, str | int]:
    """Return an object of texts and integers, the form of events and mechanisms."""
    if not isinstance(body, dict) or not all(isinstance(v, str | int) for v in body.values()):
        raise LedgerError(f"not an event or a mechanism: {body!r}")
    return cast("Mapping[str, str | int]", body)


_Step = Callable[[CampaignState, "Entry", "dict[str, Json]"], CampaignState]

#: By kind of entry: the phases that allow it, and its rule.
_STEPS: Final[Mapping[str, tuple[tuple[str, ...], _Step]]] = {
    "roster": (("gathering",), _roster),
    "opening": (("voting",), opening),
    "votes": (("voting", "labelling"), votes),
    "charge": (("voting", "labelling"), _charge),
    "release": (("labelling",), release),
    "round-end": (("labelling",), _round_end),
    "predictions": (("predicting",), _predictions),
    "model": (("labelling",), _model),
    "close": (("gathering", "voting", "labelling", "predicting"), _close),
}
