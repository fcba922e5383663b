"""What is written into the ledger for each step: the entry's body, and the rows beside the chain.

Pure values of the state before; :mod:`aggregator_server.ledger.rules` decides whether they may stand there,
and :class:`aggregator_server.ledger.ledger.Ledger` makes them durable.
"""

from __future__ import annotations

import secrets
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from aggregator_server.ledger import encoding
from pate.accounting.composition import total_cost
from pate.campaign import terms
from pate.errors import LedgerError
from pate.mechanisms import MatrixMechanism
from pate.storage.hash_chain import canonical
from pate.votes import Histogram, LooseSum, NoisySum

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
    mechanisms = terms.resolve(spec, teachers, terms.votes_per_unit(spec, parties))
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


def charge(state: CampaignState, queries: Sequence[int], noise: str) -> Body:
    """Return the entry that charges queries of the present round at their worst cost."""
    events, cost = state.charged(len(queries))
    return {
        "round": state.round,
        "queries": list(queries),
        "mechanism": _object(state.mechanism(state.round).to_dict()),
        "events": [_object(event.to_dict()) for event in events],
        "cost": str(cost),
        "noise": noise,
    }


def release(
    state: CampaignState, held: Charge, outcomes: Sequence[Outcome]
) -> tuple[Body, list[Fields]]:
    """Return the entry of answers to single queries, and a row for each label.

    Raises:
        LedgerError: if an answer did what was not charged for.
    """
    if any(each.events != held.events[: len(each.events)] for each in outcomes):
        raise LedgerError("an answer did what was not charged for")
    pairs = list(zip(held.queries, outcomes, strict=True))
    cost = partial(total_cost, state.composition)
    body: Body = {
        "charge": held.entry,
        "round": held.round,
        "answers": [[q, each.label, each.source, len(each.events)] for q, each in pairs],
        "cost": str(sum((cost(each.events) for each in outcomes), Fraction(0))),
    }
    return body, _labelled(held, ((q, each.label, each.source) for q, each in pairs))


def release_batch(held: Charge, labels: Sequence[int | None] | None) -> tuple[Body, list[Fields]]:
    """Return the entry of a gated batch, labels or a closed gate (None), and a row for each label."""
    given = labels or [None] * len(held.queries)
    body = _together(held, given, "teachers")
    body["gate"] = "closed" if labels is None else "open"
    return body, _labelled(
        held, ((q, x, "teachers") for q, x in zip(held.queries, given, strict=True))
    )


def release_matrix(state: CampaignState, held: Charge, noisy: Counts) -> tuple[Body, list[Fields]]:
    """Return the entry of neighbour votes, their noisy counts with it, and a row for each label.

    Raises:
        LedgerError: if the campaign releases no matrix.
    """
    mechanism = state.mechanism(held.round)
    if not isinstance(mechanism, MatrixMechanism):
        raise LedgerError(f"{mechanism.name} releases no matrix")
    given = mechanism.labels(noisy)
    body = _together(held, given, "records")
    body["noisy"] = noisy.tolist()
    return body, _labelled(
        held, ((q, x, "records") for q, x in zip(held.queries, given, strict=True))
    )


def _together(held: Charge, labels: Sequence[int | None], source: str) -> Body:
    """Return the entry of answers that were charged as one."""
    pairs = zip(held.queries, labels, strict=True)
    return {
        "charge": held.entry,
        "round": held.round,
        "answers": [[q, x, None if x is None else source, 1] for q, x in pairs],
        "cost": str(held.cost),
    }


def _labelled(held: Charge, answers: Iterable[tuple[int, int | None, str | None]]) -> list[Fields]:
    return [
        {"query": query, "label": label, "round": held.round, "source": source}
        for query, label, source in answers
        if label is not None
    ]


def _object(fields: Mapping[str, str | int]) -> dict[str, Json]:
    return dict(fields)
