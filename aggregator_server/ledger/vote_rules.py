"""Ledger rules for votes: the parties of a sum, and its unmasking.

A part of :mod:`aggregator_server.ledger.rules`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aggregator_server.ledger.json_fields import Fields
from aggregator_server.ledger.state import SumUnmasking, VoteBatch
from pate.errors import LedgerError, QuorumError

if TYPE_CHECKING:
    from aggregator_server.ledger.state import CampaignState
    from pate.storage.hash_chain import Entry, Json


def opening(state: CampaignState, entry: Entry, body: dict[str, Json]) -> CampaignState:
    """Return the state after recording the survivors of a masked sum.

    Parties refuse to unmask any sum of the campaign with another list than the first, or in rounds with
    a party that an earlier list lacks. A server that asked for one would never get its labels.

    Raises:
        LedgerError: if votes are not masked, the queries have votes or an unmasking, the parties
            are not of the roster, or an earlier sum has other ones: in rounds, lacks one of them.
        QuorumError: if they are too few.
    """
    fields = Fields(body, "first count survivors")
    if not state.spec.sums.masked:
        raise LedgerError("votes that are not masked need no unmasking")
    first, count = _place(state, fields, "the unmasking of", (*state.openings, *state.batches))
    survivors = _parties(state, fields, "survivors")
    fixed = state.survivors
    fewer = state.spec.in_rounds and fixed is not None and set(survivors) < set(fixed)
    if fixed not in (None, survivors) and not fewer:
        raise LedgerError(f"the sums of this campaign are unmasked only with {fixed}")
    made = SumUnmasking(first, count, survivors, entry.seq)
    openings = sorted((*state.openings, made), key=lambda each: each.first)
    return replace(state, openings=tuple(openings))


def votes(state: CampaignState, entry: Entry, body: dict[str, Json]) -> CampaignState:
    """Return the state after the summed votes of a batch.

    Raises:
        LedgerError: if they were recorded before, the parties or their teachers are not of the
            roster, or the unmasking of a masked sum was not recorded.
        QuorumError: if too few parties answered.
    """
    fields = Fields(body, "first count teachers responders digest")
    first, count = _place(state, fields, "votes for", state.batches)
    if state.spec.one_release and count != len(state.places):
        raise LedgerError("votes of one release are cast on all its queries together, in one batch")
    responders = _parties(state, fields, "responders")
    opened = {(each.first, each.count): each.survivors for each in state.openings}
    if state.spec.sums.masked and opened.get((first, count)) != responders:
        raise LedgerError(
            f"masked votes of {responders} on queries {first} to {first + count - 1}, and no "
            "unmasking of exactly that sum before"
        )
    held = {party.name: party.teachers for party in state.roster}
    teachers = fields.integer("teachers", 1)
    if teachers != sum(held[name] for name in responders):
        raise LedgerError(f"{teachers} teachers voted, but the responders have another number")
    batch = VoteBatch(first, count, teachers, responders, fields.text("digest"), entry.seq)
    batches = tuple(sorted((*state.batches, batch), key=lambda each: each.first))
    after = replace(state, batches=batches)
    return after if after.missing_votes else replace(after, phase="labelling")


def _place(
    state: CampaignState, fields: Fields, what: str, taken: tuple[SumUnmasking | VoteBatch, ...]
) -> tuple[int, int]:
    """Return first place and number of a batch's queries, none of which is in ``taken``."""
    first, count = fields.integer("first"), fields.integer("count", 1)
    if first < state.places.start or first + count > state.places.stop:
        raise LedgerError(f"{what} query {first + count - 1} of {state.places.stop}, or too early")
    for each in taken:
        if first < each.first + each.count and each.first < first + count:
            raise LedgerError(f"{what} queries {first} to {first + count - 1} were recorded before")
    return first, count


def _parties(state: CampaignState, fields: Fields, name: str) -> tuple[str, ...]:
    parties = fields.texts(name)
    if parties != tuple(p.name for p in state.roster if p.name in set(parties)):
        raise LedgerError(f"{name} are not parties in the roster's order: {parties}")
    if len(parties) < state.spec.sums.min_parties:
        raise QuorumError(
            f"{len(parties)} parties answered; the campaign needs {state.spec.sums.min_parties}"
        )
    return parties
