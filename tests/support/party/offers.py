"""Campaigns as described to a party, for its tests."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from party.ledger.sent_votes import Answer
from pate.accounting.events import GatedBatch
from pate.accounting.gate import GateParameters
from pate.campaign.offer import Offer
from pate.exact import write
from pate.mechanisms import DistributedGNMax, GNMax

if TYPE_CHECKING:
    from party.ledger.ledger import PartyLedger

KEY = bytes(range(32))
SIX = ("a", "b", "c", "d", "e", "f")


def joining(**changes: Any) -> Offer:
    """What a party hears first: no roster yet. Changes are by the names that ledgers have for them."""
    made: dict[str, Any] = {
        "key": KEY,
        "campaign": "c1" * 16,
        "aggregator": "gnmax",
        "aggregation": "masked",
        "noise": "central",
        "unit": "record",
        "epsilon": 2.0,
        "delta": 1e-5,
        "public_queries": 100,
        "rounds": 1,
        "threshold": 5,
        "colluders": 1,
        **dict.fromkeys(("public_set", "schema", "classes", "roster", "identities")),
        **dict.fromkeys(("teachers_each", "teachers", "mechanisms", "composition", "cap", "gate")),
    }
    made |= changes
    asked = made.pop("queries", 0)
    text = {name: each if isinstance(each, float) else write(each) for name, each in made.items()}
    if text["gate"] is None:
        del text["gate"]
    return replace(Offer.from_dict(text), queries=asked)


def settled(**changes: Any) -> Offer:
    """The same with its roster: 250 teachers, sigma 40, a cap of 100 labels."""
    terms: dict[str, Any] = {
        "queries": 2,
        "roster": SIX,
        "teachers": 250,
        "mechanisms": (GNMax(Fraction(40), 1),),
        "composition": "gdp",
        "cap": Fraction(1, 10),
    }
    return joining(**terms | changes)


def noisy(**changes: Any) -> Offer:
    """The same with noise shares: four honest ones of sigma 20 are a sigma of 40."""
    return settled(
        **{"noise": "distributed", "mechanisms": (DistributedGNMax(Fraction(20), 4, 1),)} | changes
    )


def gated(epsilon: float = 2.0, delta: float = 1e-6, **changes: Any) -> Offer:
    """The same behind a gate that is worth just what it announces."""
    order = round(2 * (1 + 2 * math.log(1 / delta) / epsilon)) / 2
    made = GateParameters.worth(epsilon, delta, order=order, share=0.15)
    names = ("order", "target", "test", "failure")
    gate = GatedBatch(*(Fraction(repr(getattr(made, name))) for name in names))
    terms: dict[str, Any] = {"composition": "gate", "cap": Fraction(1), "gate": gate}
    return settled(**{"epsilon": epsilon, "delta": delta} | terms | changes)


def queries(first: int, count: int) -> list[bytes]:
    return [hashlib.sha256(b"%d" % at).digest() for at in range(first, first + count)]


def batch_of(hashes: list[bytes]) -> bytes:
    return hashlib.sha256(b"".join(hashes)).digest()


def tags(hashes: list[bytes]) -> list[bytes]:
    """Tags of votes that are always the same on a query."""
    return [each[:16] for each in hashes]


def answer(
    ledger: PartyLedger, offer: Offer, hashes: list[bytes], source: bytes = bytes(32)
) -> bytes:
    """Answer a batch, and return its digest."""
    batch = batch_of(hashes)
    ledger.answer(
        replace(offer, queries=len(hashes)), Answer(batch, hashes, source, tags=tags(hashes))
    )
    return batch


def answer_and_open(
    ledger: PartyLedger,
    offer: Offer,
    hashes: list[bytes],
    survivors: tuple[str, ...] = SIX,
    *,
    allow_other: bool = False,
) -> bytes:
    batch = answer(ledger, offer, hashes)
    ledger.open_batch(offer.campaign, batch, hashes, survivors, allow_other=allow_other)
    return batch
