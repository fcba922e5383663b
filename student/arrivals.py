"""Validation of a server's messages to a student: trusted for labels, but not for form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pate.errors import ProtocolError, SchemaError
from pate.formats.labels import LabelRow
from pate.printable import printable
from protos.pate.v1 import student_pb2 as wire
from protos.terms import announced_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from pate.campaign.announced import Announced

PHASES: Final = ("gathering", "voting", "labelling", "predicting", "finished")
_LONGEST_WARNING: Final = 1_000

_SOURCES: Final = {
    wire.SOURCE_TEACHERS: "teachers",
    wire.SOURCE_RECORDS: "records",
    wire.SOURCE_REINFORCED: "reinforced",
}


@dataclass(frozen=True)
class PublicSet:
    """The properties in which the student's public set must agree with the campaign's."""

    content_hash: bytes  # 32 bytes
    queries: int
    schema: str  # one line, see ``Inputs.schema``


@dataclass(frozen=True)
class Campaign:
    """The server's description of a campaign, checked against the student's public set."""

    announced: Announced  # what it is; without classes until the server knows all parties
    name: str
    phase: str
    expected: str = ""  # a warning for display, if few labels are to be expected; else empty

    @property
    def id(self) -> bytes:
        """Its id, 16 bytes."""
        return bytes.fromhex(self.announced.id)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names; empty until the server knows all parties."""
        return self.announced.classes or ()


@dataclass(frozen=True)
class RoundEnd:
    """All labels of a round are released."""

    round: int
    wants_predictions: bool


@dataclass(frozen=True)
class CampaignEnd:
    """All labels are released."""

    labels_released: int


Event: TypeAlias = LabelRow | RoundEnd | CampaignEnd


class EventCheck:
    """Consistency checks of the sequence of events, across connections."""

    def __init__(self, queries: int) -> None:
        self.cursor = 0  # of the last event, 0 before the first
        self._queries = queries
        self._labelled: set[int] = set()
        self._round = 0

    def event(self, event: wire.LabelEvent, class_count: Callable[[], int]) -> Event:
        """Return an event as a value."""
        if event.cursor <= self.cursor:
            raise ProtocolError(f"event {event.cursor} came after event {self.cursor}")
        kind = event.WhichOneof("body")
        made: Event
        if kind == "label":
            made = self._label(event.label, class_count())
        elif kind == "round_end":
            made = self._round_end(event.round_end)
        elif kind == "campaign_end":
            made = self._campaign_end(event.campaign_end)
        else:
            raise ProtocolError(f"event {event.cursor} has a kind unknown to this version")
        self.cursor = event.cursor
        return made

    def _label(self, label: wire.Label, classes: int) -> LabelRow:
        if label.query >= self._queries:
            raise ProtocolError(f"a label for query {label.query} of {self._queries}")
        if label.label >= classes:
            raise ProtocolError(f"a label for class {label.label} of {classes}")
        if label.query in self._labelled:
            raise ProtocolError(f"query {label.query} was labelled twice")
        if label.round != self._round + 1:
            raise ProtocolError(f"a label of round {label.round} after the end of {self._round}")
        if label.source not in _SOURCES:
            raise ProtocolError(f"a label of the unknown source {label.source}")
        self._labelled.add(label.query)
        return LabelRow(label.query, label.label, label.round, _SOURCES[label.source])

    def _round_end(self, end: wire.RoundEnd) -> RoundEnd:
        if end.round != self._round + 1:
            raise ProtocolError(f"round {end.round} ended after round {self._round}")
        self._round = end.round
        return RoundEnd(end.round, end.wants_predictions)

    def _campaign_end(self, end: wire.CampaignEnd) -> CampaignEnd:
        if end.labels_released != len(self._labelled):
            raise ProtocolError(
                f"the server released {end.labels_released} labels, {len(self._labelled)} arrived"
            )
        return CampaignEnd(end.labels_released)


def checked_campaign(info: wire.CampaignInfo, own: PublicSet) -> Campaign:
    """Return a campaign as a value."""
    announced = announced_in(info.campaign)
    if announced.schema != own.schema:
        raise SchemaError(
            f"the campaign's inputs are {readable(announced.schema)}, the public set's are {own.schema}"
        )
    if announced.queries != own.queries or announced.public_set != own.content_hash.hex():
        raise SchemaError(
            f"the campaign's public set has {announced.queries} inputs and the hash "
            f"{announced.public_set[:12]}, this one {own.queries} and {own.content_hash.hex()[:12]};"
            " give --public the same files in the same order as the server has"
        )
    if info.phase not in PHASES:
        raise ProtocolError(f"a campaign in the unknown phase {info.phase!r:.200}")
    return Campaign(
        announced=announced,
        name=readable(info.name),
        phase=info.phase,
        expected=printable(info.expected, _LONGEST_WARNING),
    )


def readable(text: str) -> str:
    """Return a foreign text made safe for one line of a screen."""
    return printable(text, 200)
