"""Campaigns as some server may send them, and parties that accept all: for tests."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import Policy
from party.voting.site import Site
from pate.accounting.composition import Gdp
from pate.campaign.announced import Announced
from pate.campaign.offer import Offer, Settled
from pate.data.values import Inputs, content_hash
from pate.errors import ProtocolError
from pate.exact import read, write
from pate.mechanisms import GNMax, Mechanism
from pate.storage.hash_chain import canonical
from protos.pate.v1 import vote_pb2
from protos.terms import offer_in, packed

#: Signs as the campaign.
SERVER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CAMPAIGN_ID = b"c" * 16
#: What campaigns may cost, and what it is worth at delta 1e-5.
CAP = "1/100"
WORTH = Gdp().epsilon(Fraction(CAP), 1e-5)


@dataclass
class MemberMessage:
    """A party of the roster, as sent."""

    name: str
    identity: bytes
    teachers: int


@dataclass
class TermsMessage:
    """What is settled, as sent: perhaps not what any roster comes to."""

    roster: list[MemberMessage]
    mechanisms: list[Any]
    composition: str
    cap: str
    gate: Any = None

    def settled(self) -> Settled:
        """What it settles, if it is right."""
        return read(Settled, self.text(), error=ProtocolError, what="terms")

    def text(self) -> dict[str, Any]:
        members = [
            {"name": each.name, "identity": each.identity.hex(), "teachers": each.teachers}
            for each in self.roster
        ]
        gate = {} if self.gate is None else {"gate": _text(self.gate)}
        return {
            "roster": members,
            "mechanisms": [_text(each) for each in self.mechanisms],
            "composition": self.composition,
            "cap": self.cap,
            **gate,
        }


@dataclass
class CampaignMessage:
    """A campaign as sent, right or wrong; what is empty or 0 is not stated."""

    id: bytes = CAMPAIGN_ID
    public_set: bytes = bytes(32)
    queries: int = 1
    schema: str = "images 8x8x1"
    aggregator: str = "gnmax"
    unit: str = "record"
    aggregation: str = "plain"
    noise: str = "central"
    epsilon: float = 1.0
    delta: float = 1e-5
    rounds: int = 1
    min_parties: int = 1
    colluders: int = 0
    classes: Sequence[str] = ()
    vote_proofs: bool = False
    most_votes: int = 0
    code: str = ""
    series: str = ""
    wanted_teachers: int = 0
    terms: TermsMessage | None = None
    #: Fields of no campaign.
    more: dict[str, Any] = field(default_factory=dict)

    def copy(self, **changes: Any) -> CampaignMessage:
        made = copy.deepcopy(self)
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    def text(self) -> dict[str, Any]:
        plain = (
            "queries", "schema", "aggregator", "unit", "aggregation", "noise", "epsilon", "delta",
            "rounds", "min_parties", "colluders", "vote_proofs",
        )  # fmt: skip
        omitted = ("code", "series", "wanted_teachers")
        announced = {
            "id": self.id.hex(),
            "public_set": self.public_set.hex(),
            "classes": list(self.classes) or None,
            "most_votes": self.most_votes or None,
            **{name: getattr(self, name) for name in plain},
            **{name: value for name in omitted if (value := getattr(self, name))},
            **self.more,
        }
        settled = {} if self.terms is None else {"settled": self.terms.text()}
        return {"announced": announced, **settled}

    def packed(self) -> bytes:
        return packed(canonical(self.text()))

    def offer(self, key: Ed25519PrivateKey = SERVER_KEY) -> Offer:
        """What it offers, if it is right."""
        text = canonical(self.text()).encode()
        return Offer.of_text(key.public_key().public_bytes_raw(), text)

    @property
    def announced(self) -> Announced:
        return self.offer().announced


def request_in(body: bytes) -> vote_pb2.PartyRequest:
    """A signed request as it is, unchecked, perhaps with only the digest of its campaign."""
    return vote_pb2.PartyRequest.FromString(vote_pb2.SignedRequest.FromString(body).body)


def campaign_in(body: bytes) -> Offer | None:
    """The campaign in a signed request; None if there is only the digest of one."""
    packed_, key = request_in(body).campaign, vote_pb2.SignedRequest.FromString(body).key
    return offer_in(key, packed_) if packed_ else None


def site(home: Path, policy: Policy | None = None) -> Site:
    """What a party on the server's own machine agrees to unless it says otherwise."""
    home.mkdir(parents=True, exist_ok=True)
    return Site(policy or Policy.default(loopback=True), PartyLedger(home / LEDGER_FILE))


def terms_message(
    members: Sequence[tuple[str, bytes, int]],
    mechanisms: Sequence[Mechanism] = (GNMax(Fraction(40), 1),),
    composition: str = "gdp",
    cap: str = CAP,
) -> TermsMessage:
    """The terms of a campaign; members are (name, identity key, teachers)."""
    roster = [MemberMessage(*each) for each in sorted(members)]
    return TermsMessage(roster, list(mechanisms), composition, cap)


def campaign_message(
    public: Inputs, terms: TermsMessage | None = None, **changes: Any
) -> CampaignMessage:
    """A plain campaign of GNMax, or what the changes make of it."""
    about: dict[str, Any] = {
        "public_set": content_hash(public), "queries": len(public), "schema": public.schema(),
    }  # fmt: skip
    return CampaignMessage(**about | {"terms": terms} | changes)


def _text(value: Any) -> Any:
    return write(value) if hasattr(value, "to_dict") else value
