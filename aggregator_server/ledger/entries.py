"""Construction of ledger entries: the body of each step, and its rows in other tables.

Pure functions of the earlier state; :mod:`aggregator_server.ledger.rules` decides whether they are
admissible, and :class:`aggregator_server.ledger.ledger.Ledger` makes them durable.
"""

from __future__ import annotations

import secrets
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Literal

from aggregator_server.ledger import encoding
from pate.accounting.composition import total_cost
from pate.campaign import terms
from pate.errors import LedgerError
from pate.storage.hash_chain import canonical
from pate.votes import Histogram, LooseSum, NoisySum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.state import CampaignState, Charge
    from pate.campaign.roster import RosterParty
    from pate.campaign.spec import CampaignSpec
    from pate.mechanisms import Outcome
    from pate.storage.hash_chain import Json
    from pate.votes import Counts, Total

    #: The body of an entry.
    Body = dict[str, Json]
    #: A row of another table than the chain.
    Fields = Mapping[str, object]


def roster(spec: CampaignSpec, parties: Sequence[RosterParty], classes: Sequence[str]) -> Body:
    """Return the entry that fixes the parties, and the terms that follow from them.

    Raises:
        BudgetError: if not a single answer fits the budget.
        UsageError: for parameters that make no sense together.
    """
    teachers = sum(party.teachers for party in parties)
    votes = terms.votes_per_unit(spec, parties)
    mechanisms = terms.resolve(spec, teachers, votes, len(classes))
    composition = terms.composition_of(spec, mechanisms)
    return {
        "parties": [
            {"name": p.name, "identity": p.identity, "teachers": p.teachers, "unit": p.unit}
            for p in parties
        ],
        "classes": list(classes),
        "mechanisms": [_object(each.to_dict()) for each in mechanisms],
        "composition": composition.name,
        "cap": str(terms.budget(spec, mechanisms, composition)),
    }


def votes(
    state: CampaignState, first: int, total: Total, responders: Sequence[str]
) -> tuple[Body, Fields]:
    """Return the entry of summed votes, with a hiding commitment to them, and their row.

    Raises:
        LedgerError: if they are of another kind than the campaign's.
    """
    count, classes = total.counts.shape
    if classes != (wanted := len(state.classes)):
        raise LedgerError(f"votes for {classes} classes, the campaign has {wanted}")
    spec = state.spec
    kind = NoisySum if spec.sums.distributed else LooseSum if spec.one_release else Histogram
    if not isinstance(total, kind):
        raise LedgerError(
            f"a {type(total).__name__} of votes in a campaign of {kind.__name__}: with noise shares "
            "and without, of teachers and of records, differ"
        )
    blob = encoding.pack_counts(total.counts)
    salt = secrets.token_bytes(encoding.SALT_BYTES)
    body: Body = {
        "first": first,
        "count": count,
        "teachers": total.teachers,
        "responders": list(responders),
        "digest": encoding.counts_commitment(salt, blob, first, count, classes),
    }
    row: Fields = {
        "first": first,
        "count": count,
        "teachers": total.teachers,
        "responders": canonical(list(responders)),
        "salt": salt,
        "counts": blob,
    }
    return body, row


def charge(state: CampaignState, queries: Sequence[int], *, simulated: bool) -> Body:
    """Return the entry that charges queries of the current round at their worst cost."""
    noise = "simulated" if simulated else "system"
    events, cost = state.charged(len(queries))
    return {
        "round": state.round,
        "queries": list(queries),
        "mechanism": _object(state.mechanism(state.round).to_dict()),
        "events": [_object(event.to_dict()) for event in events],
        "cost": str(cost),
        "noise": "parties" if state.spec.sums.distributed else noise,
    }


def release(
    state: CampaignState,
    charged: Charge,
    outcomes: Sequence[Outcome],
    *,
    gate: Literal["open", "closed"] | None = None,
    noisy: Counts | None = None,
) -> tuple[Body, list[Fields]]:
    """Return the entry of the answers to a charge, and a row for each label.

    Answers behind a gate, or with their noisy counts, have one common charge.

    Raises:
        LedgerError: if an answer has events that were not charged.
    """
    if any(each.events != charged.events[: len(each.events)] for each in outcomes):
        raise LedgerError("an answer has events that were not charged")
    pairs = list(zip(charged.queries, outcomes, strict=True))
    body: Body = {
        "charge": charged.entry,
        "round": charged.round,
        "answers": [[q, each.label, each.source, len(each.events)] for q, each in pairs],
    }
    if gate is None and noisy is None:
        cost = partial(total_cost, state.currency)
        body["cost"] = str(sum((cost(each.events) for each in outcomes), Fraction(0)))
    else:
        body["cost"] = str(charged.cost)
    if gate is not None:
        body["gate"] = gate
    if noisy is not None:
        body["noisy"] = noisy.tolist()
    rows: list[Fields] = [
        {"query": query, "label": each.label, "round": charged.round, "source": each.source}
        for query, each in pairs
        if each.label is not None
    ]
    return body, rows


def predictions(round_: int, probabilities: Probabilities) -> tuple[Body, Fields]:
    """Return the entry of a student's predictions, which commits to them, and their row."""
    rows, classes = probabilities.shape
    blob = encoding.pack_probabilities(probabilities)
    digest = encoding.probabilities_digest(blob, round_, rows, classes)
    return (
        {"round": round_, "rows": rows, "classes": classes, "digest": digest},
        {"round": round_, "probabilities": blob, "digest": bytes.fromhex(digest)},
    )


def _object(fields: Mapping[str, str | int]) -> dict[str, Json]:
    return dict(fields)
