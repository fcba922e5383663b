"""What is written into the ledger for each step: the entry's body, and the rows beside the chain.

Pure values of the state before; :mod:`aggregator_server.ledger.rules` decides whether they may stand there,
and :class:`aggregator_server.ledger.ledger.Ledger` makes them durable.
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
    #: A row of a table beside the chain.
    Fields = Mapping[str, object]


def roster(spec: CampaignSpec, parties: Sequence[RosterParty], classes: Sequence[str]) -> Body:
    """Return the entry that fixes the parties, and all that follows from them.

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
    """Return the entry of summed votes, which hides them behind a commitment, and their row.

    Raises:
        LedgerError: if they are of another kind than the campaign's.
    """
    count, classes = total.counts.shape
    if classes != (wanted := len(state.classes)):
        raise LedgerError(f"votes for {classes} classes, the campaign has {wanted}")
    spec = state.spec
    kind = NoisySum if spec.sums.distributed else LooseSum if spec.records_vote else Histogram
    if not isinstance(total, kind):
        raise LedgerError(
            f"a {type(total).__name__} of votes in a campaign of {kind.__name__}: with noise shares "
            "and without, of teachers and of records, are different things"
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
    """Return the entry that charges queries of the present round at their worst cost."""
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
    held: Charge,
    outcomes: Sequence[Outcome],
    *,
    gate: Literal["open", "closed"] | None = None,
    noisy: Counts | None = None,
) -> tuple[Body, list[Fields]]:
    """Return the entry of the answers to a charge, and a row for each label.

    Answers behind a gate, or with the noisy counts that they were made of, were charged as one.

    Raises:
        LedgerError: if an answer did what was not charged for.
    """
    if any(each.events != held.events[: len(each.events)] for each in outcomes):
        raise LedgerError("an answer did what was not charged for")
    pairs = list(zip(held.queries, outcomes, strict=True))
    body: Body = {
        "charge": held.entry,
        "round": held.round,
        "answers": [[q, each.label, each.source, len(each.events)] for q, each in pairs],
    }
    if gate is None and noisy is None:
        cost = partial(total_cost, state.composition)
        body["cost"] = str(sum((cost(each.events) for each in outcomes), Fraction(0)))
    else:
        body["cost"] = str(held.cost)
    if gate is not None:
        body["gate"] = gate
    if noisy is not None:
        body["noisy"] = noisy.tolist()
    rows: list[Fields] = [
        {"query": query, "label": each.label, "round": held.round, "source": each.source}
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
