"""Campaigns as described to a party, for its tests."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from party.ledger.sent_votes import Answer
from pate.accounting.composition import Gdp, total_cost
from pate.accounting.events import GatedBatch
from pate.accounting.gate import GateParameters
from pate.campaign.announced import Announced
from pate.campaign.offer import Offer, Settled
from pate.campaign.roster import Member
from pate.errors import ProtocolError, UsageError
from pate.exact import read, write
from pate.formats.privacy_statement import ObserverStatement, PrivacyStatement, adjacency_of
from pate.mechanisms import DistributedGNMax, GNMax, Neighbour

if TYPE_CHECKING:
    from party.ledger.ledger import PartyLedger

KEY = bytes(range(32))
SIX = ("a", "b", "c", "d", "e", "f")
#: Most votes of a party on one count.
MOST = 40
_SETTLED = ("roster", "teachers", "identities", "mechanisms", "composition", "cap", "gate")


def joining(**changes: Any) -> Offer:
    """What a party hears first: no roster yet.

    ``queries`` are of the request, ``public_queries`` the size of the public set. A ``roster`` is of names;
    ``teachers`` are of all parties together, or of each.
    """
    made: dict[str, Any] = {
        "key": KEY, "campaign": "c1" * 16, "queries": 0, "aggregator": "gnmax",
        "aggregation": "masked", "noise": "central", "unit": "record", "epsilon": 2.0,
        "delta": 1e-5, "public_queries": 100, "rounds": 1, "threshold": 5, "colluders": 1,
        "public_set": "ab" * 32, "schema": "images 8x8x1", "classes": ("no", "yes"),
        "vote_proofs": False,
    }  # fmt: skip
    made |= changes
    made.setdefault("most_votes", MOST if made["aggregator"] == "neighbour" else None)
    key, asked = made.pop("key"), made.pop("queries")
    terms = {name: made.pop(name) for name in _SETTLED if name in made}
    other = {"campaign": "id", "public_queries": "queries", "threshold": "min_parties"}
    text = {
        other.get(name, name): each if isinstance(each, float) else write(each)
        for name, each in made.items()
        if each is not None or name in ("classes", "most_votes")
    }
    announced = read(Announced, text, error=ProtocolError, what="a campaign")
    return Offer(key=key, announced=announced, settled=_settled(announced, terms), queries=asked)


def _settled(announced: Announced, terms: dict[str, Any]) -> Settled | None:
    names: tuple[str, ...] | None = terms.pop("roster", None)
    if names is None:
        return None
    teachers = terms.pop("teachers", None)
    identities = terms.pop("identities", None) or [identity_of(name) for name in names]
    if teachers is None and announced.most_votes is None and announced.unit != "party":
        teachers = 250
    if isinstance(teachers, int):
        least, more = divmod(teachers, len(names))
        teachers = [least + (at < more) for at in range(len(names))]
    elif teachers is None:
        each = announced.most_votes or min(one.votes_per_unit for one in terms["mechanisms"])
        teachers = [each] * len(names)
    try:
        return Settled(roster=tuple(map(Member, names, identities, teachers)), **terms)
    except UsageError as error:
        raise ProtocolError(str(error)) from error


def altered(offer: Offer, **changes: Any) -> Offer:
    """An offer with other values, of what is announced or of what is settled."""
    later = {name: changes.pop(name) for name in _SETTLED if name in changes}
    settled_ = offer.settled
    if later:
        settled_ = replace(offer.require_settled(), **later)
    return replace(offer, announced=replace(offer.announced, **changes), settled=settled_)


def identity_of(name: str) -> str:
    """An identity key for a party's name, hex."""
    return hashlib.sha256(name.encode()).hexdigest()


def settled(**changes: Any) -> Offer:
    """The same with its roster: 250 teachers, sigma 40, a cap of 100 labels."""
    terms: dict[str, Any] = {
        "queries": 2, "roster": SIX, "mechanisms": (GNMax(Fraction(40), 1),),
        "composition": "gdp", "cap": Fraction(1, 10),
    }  # fmt: skip
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


def statement(**changes: object) -> PrivacyStatement:
    """What an honest server says of a plain campaign of records' votes, of 4 queries and 3 labels."""
    worth, one = Gdp().epsilon(Fraction(1, 100), 1e-5), Neighbour(3, Fraction(40), 1)
    made: dict[str, object] = {
        "campaign": (b"c" * 16).hex(), "epsilon": worth, "delta": 1e-5, "unit": "record",
        "adjacency": adjacency_of("record", records_vote=True), "mechanism": (one.to_dict(),),
        "aggregation": "plain", "noise": "central: exact discrete noise, drawn by the server",
        "teachers": 0, "queries_asked": 4, "labels_released": 3, "composition": "gdp",
        "cap": "1/100", "realised": str(total_cost(Gdp(), one.worst)),
        "ledger_head": "9:" + "ab" * 32,
        "statements": (
            ObserverStatement("public", worth, 1e-5, "labels"),
            ObserverStatement("server", None, None, "sums"),
        ),
    }  # fmt: skip
    return PrivacyStatement(**(made | changes))  # type: ignore[arg-type]  # of a test's choice
