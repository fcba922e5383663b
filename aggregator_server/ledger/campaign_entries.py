"""The kinds of entries of a campaign's ledger, each with its rule, but for those of votes and answers.

A rule reads only the chain: no clock, no files, no votes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from fractions import Fraction  # noqa: TC003 — its reader looks it up
from typing import TYPE_CHECKING, ClassVar

from aggregator_server.ledger import encoding
from aggregator_server.ledger.state import CampaignState, Phase, PredictionRecord
from pate.campaign import terms
from pate.campaign.choices import UNITS
from pate.campaign.roster import RosterParty
from pate.campaign.spec import CampaignSpec, require_size
from pate.codes import code_of
from pate.errors import (
    LedgerError,
    ProtocolError,
    QuorumError,
    RefusedError,
    SchemaError,
    StateError,
)
from pate.exact import in_text
from pate.mechanisms import MECHANISMS, Mechanism
from pate.rounds.model import RoundModel
from pate.storage.ledger import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Self

    from aggregator_server.ledger.encoding import Probabilities
    from pate.storage.hash_chain import Entry, Json
    from pate.storage.ledger import Row


class CampaignStep(Step["CampaignState | None"]):
    """A step of a campaign that is open, in one of these phases."""

    phases: ClassVar[tuple[Phase, ...]]

    def follow(self, state: CampaignState | None, at: Entry) -> CampaignState:
        """Return the state after this step; StateError in another phase."""
        if state is None:
            raise LedgerError(f"the first entry is {self.kind!r}, not 'open'")
        if state.phase not in self.phases:
            raise StateError(
                f"entry {at.seq}: {self.kind!r} is not allowed while the campaign is {state.phase}"
            )
        return replace(self.after(state), head=at.head)

    @abstractmethod
    def after(self, state: CampaignState) -> CampaignState:
        """Return the state after this step, but for its head; in a phase that allows it."""


@dataclass(frozen=True)
class Open(Step["CampaignState | None"]):
    """The parameters of the campaign, which never change."""

    kind = "open"
    spec: CampaignSpec

    def body(self) -> dict[str, Json]:
        """Return the body of its entry."""
        return {"spec": self.spec.to_dict()}

    @classmethod
    def of_body(cls, body: Mapping[str, Json]) -> Self:
        """Read back what :meth:`body` made."""
        if body.keys() != {"spec"} or not isinstance(text := body["spec"], dict):
            raise LedgerError(f"an opening has the field spec, found {sorted(body)}")
        return cls(CampaignSpec.from_dict(text))

    def follow(self, state: CampaignState | None, at: Entry) -> CampaignState:
        """Begin the campaign, once."""
        if state is not None:
            raise LedgerError(f"entry {at.seq} opens the campaign a second time")
        return CampaignState(self.spec, at.head)


@dataclass(frozen=True)
class Roster(CampaignStep):
    """The parties and classes, and the terms that follow from them."""

    kind, phases = "roster", ("gathering",)
    parties: tuple[RosterParty, ...]
    classes: tuple[str, ...]
    mechanisms: tuple[Mechanism, ...] = field(metadata=in_text(kinds=MECHANISMS.values()))
    composition: str
    cap: Fraction

    @classmethod
    def of(
        cls, spec: CampaignSpec, parties: Sequence[RosterParty], classes: Sequence[str]
    ) -> Roster:
        """Return the step of these parties; BudgetError if not a single answer fits the budget."""
        teachers = sum(party.teachers for party in parties)
        votes = terms.votes_per_unit(spec, parties)
        mechanisms = terms.resolve(spec, teachers, votes, len(classes))
        composition = terms.composition_of(spec, mechanisms)
        cap = terms.budget(spec, mechanisms, composition)
        roster = tuple(RosterParty(p.name, p.identity, p.teachers, p.unit) for p in parties)
        return cls(roster, tuple(classes), mechanisms, composition.name, cap)

    def after(self, state: CampaignState) -> CampaignState:
        """Fix the terms: the parties must be invited and enough, the budget that of the parameters."""
        spec, classes = state.spec, self.classes
        self._check_parties(spec)
        if len(classes) < 2 or len(set(classes)) != len(classes) or not all(classes):
            raise SchemaError(f"a campaign needs two or more different classes, got {classes}")
        if spec.classes is not None and spec.classes != classes:
            raise SchemaError(
                f"the parties' classes {classes} are not the campaign's {spec.classes}"
            )
        if spec.representatives is not None:
            require_size(len(spec.representatives), len(classes))
        if spec.one_release:
            code_of(spec.code).answer.check_columns(classes)
        composition = terms.recorded_terms(
            spec, self.parties, self.mechanisms, self.composition, self.cap
        )
        return replace(
            state,
            phase="voting",
            roster=self.parties,
            classes=classes,
            mechanisms=self.mechanisms,
            composition=composition,
            cap=self.cap,
            voted=terms.voted_rows(spec, self.mechanisms, composition, self.cap),
        )

    def _check_parties(self, spec: CampaignSpec) -> None:
        for party in self.parties:
            if not party.name or party.teachers < 1 or party.unit not in UNITS[:2]:
                raise LedgerError(f"not a party: {party}")
        names = [party.name for party in self.parties]
        if len(set(names)) != len(names):
            raise RefusedError(f"two parties have the same name: {', '.join(names)}")
        keys = [party.identity for party in self.parties if party.identity]
        if len(set(keys)) != len(keys):
            raise RefusedError("two parties have the same identity key")
        if isinstance(spec.parties, tuple) and (strange := sorted(set(names) - set(spec.parties))):
            raise RefusedError(f"not invited to this campaign: {', '.join(strange)}")
        if not spec.sums.min_parties <= len(names) <= spec.wanted_parties:
            raise QuorumError(
                f"{len(names)} parties joined; the campaign needs {spec.sums.min_parties} "
                f"to {spec.wanted_parties}"
            )
        for party in self.parties:
            if spec.unit != "party" and UNITS.index(party.unit) < UNITS.index(spec.unit):
                raise RefusedError(
                    f"the campaign protects each {spec.unit}, but {party.name} keeps only each "
                    f"{party.unit} within one teacher: it must name its group column"
                )
            if spec.most_votes not in (None, party.teachers):
                raise LedgerError(
                    f"{party.name} has another bound on votes per count than the campaign"
                )


@dataclass(frozen=True)
class RoundEnd(CampaignStep):
    """The end of the current round, and whether the next one waits for the student's predictions."""

    kind, phases = "round-end", ("labelling",)
    round: int
    wants_predictions: bool

    def after(self, state: CampaignState) -> CampaignState:
        """End the round; a charge without its release stays spent."""
        spec, more = state.spec, state.round < state.spec.rounds
        if state.rounds_over or self.round != state.round:
            raise LedgerError(f"round {self.round} cannot end now: it is round {state.round}")
        if self.wants_predictions and not (more and spec.interactive):
            raise LedgerError("no further round needs predictions")
        state = state.without_charge()
        if spec.in_rounds:
            # A release that was interrupted is the last: what is shown next would follow from it.
            if not more or len(state.models) < state.round:
                return replace(state, phase="labelling", rounds_over=True)
            return replace(state, phase="voting", round=state.round + 1)
        if self.wants_predictions:
            return replace(state, phase="predicting", round=state.round + 1)
        if more and not spec.interactive:
            return replace(state, phase="labelling", round=state.round + 1)
        return replace(state, phase="labelling", rounds_over=True)


@dataclass(frozen=True)
class Predictions(CampaignStep):
    """The student's predictions for a round, by their digest."""

    kind, phases = "predictions", ("predicting",)
    aside = ("probabilities",)
    round: int
    rows: int
    classes: int
    digest: str
    probabilities: bytes = field(default=b"", metadata=in_text(absent=True))

    @classmethod
    def of(cls, round_: int, probabilities: Probabilities) -> Predictions:
        """Return the step of (queries, classes) float32 probabilities."""
        blob, (rows, classes) = encoding.pack_probabilities(probabilities), probabilities.shape
        digest = encoding.probabilities_digest(blob, round_, rows, classes)
        return cls(round_, rows, classes, digest, blob)

    def other_rows(self) -> Iterable[Row]:
        """Return the row of the predictions."""
        row = {"round": self.round, "probabilities": self.probabilities}
        yield "predictions", {**row, "digest": bytes.fromhex(self.digest)}

    def after(self, state: CampaignState) -> CampaignState:
        """Take the predictions that are expected."""
        if self.round != state.round:
            raise LedgerError(f"predictions for round {self.round}, expected {state.round}")
        if (self.rows, self.classes) != (state.spec.queries, len(state.classes)):
            raise LedgerError("predictions of another shape than (queries, classes)")
        made = PredictionRecord(self.digest, state.head.seq + 1)
        predictions = {**state.predictions, state.round: made}
        return replace(state, phase="labelling", predictions=predictions)


@dataclass(frozen=True)
class Model(CampaignStep):
    """The model that records are shown in the next round, or the final one."""

    kind, phases = "model", ("labelling",)
    round: int
    model: bytes

    def after(self, state: CampaignState) -> CampaignState:
        """Take one model for each release."""
        following = state.round + 1
        if not state.spec.in_rounds or state.rounds_over:
            raise LedgerError("a model where no further round shows one")
        if self.round != following or len(state.models) != state.round - 1:
            raise LedgerError(f"a model for round {self.round} in round {state.round}")
        if len(state.released) != state.round:
            raise LedgerError(
                f"a model for round {following} before round {state.round} is released"
            )
        try:
            model = RoundModel.from_bytes(self.model)
            model.check_shape(len(state.voted.rows), len(state.classes))
            if model.to_bytes() != self.model:
                raise ValueError("other text than that of its bytes")
        except (ValueError, ProtocolError) as error:
            raise LedgerError(f"the model for round {following}: {error}") from error
        return replace(state, models=(*state.models, model))


@dataclass(frozen=True)
class Close(CampaignStep):
    """The end of the campaign: nothing is charged or released afterwards."""

    kind, phases = "close", ("gathering", "voting", "labelling", "predicting")
    labels_released: int
    spent: Fraction

    def after(self, state: CampaignState) -> CampaignState:
        """Close with the labels and the cost that the ledger has."""
        if self != (true := Close(len(state.labels), state.spent)):
            raise LedgerError(f"closed as {self}, but it is {true}")
        return replace(state.without_charge(), phase="finished", rounds_over=True)
