"""Descriptions of campaigns as sent to parties, and parties that accept all: for tests."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import Policy
from party.voting.site import Site
from pate.accounting.composition import Gdp
from pate.data.values import content_hash
from pate.mechanisms import GNMax
from protos.pate.v1 import vote_pb2
from protos.terms import mechanism_texts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pate.data.values import Inputs
    from pate.mechanisms import Mechanism

#: Signs as the campaign.
SERVER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CAMPAIGN_ID = b"c" * 16
#: What campaigns may cost, and what it is worth at delta 1e-5.
CAP = "1/100"
WORTH = Gdp().epsilon(Fraction(CAP), 1e-5)


def request_in(body: bytes) -> vote_pb2.PartyRequest:
    """A signed request as it is, unchecked, perhaps with only the digest of its campaign."""
    return vote_pb2.PartyRequest.FromString(vote_pb2.SignedRequest.FromString(body).body)


def site(home: Path, policy: Policy | None = None) -> Site:
    """What a party on the server's own machine agrees to unless it says otherwise."""
    home.mkdir(parents=True, exist_ok=True)
    return Site(policy or Policy.default(loopback=True), PartyLedger(home / LEDGER_FILE))


def terms_message(
    members: Sequence[tuple[str, bytes, int]],
    mechanisms: Sequence[Mechanism] = (GNMax(Fraction(40), 1),),
    composition: str = "gdp",
    cap: str = CAP,
) -> vote_pb2.Terms:
    """The terms of a campaign; members are (name, identity key, teachers)."""
    return vote_pb2.Terms(
        roster=[
            vote_pb2.Member(name=name, identity=key, teachers=teachers)
            for name, key, teachers in sorted(members)
        ],
        mechanisms=mechanism_texts(mechanisms),
        composition=composition,
        cap=cap,
    )


def campaign_message(
    public: Inputs, terms: vote_pb2.Terms | None = None, **changes: object
) -> vote_pb2.Campaign:
    """A plain campaign of GNMax, or what the changes make of it."""
    made = vote_pb2.Campaign(
        id=CAMPAIGN_ID,
        public_set=content_hash(public),
        queries=len(public),
        schema=public.schema(),
        mechanism="gnmax",
        unit="record",
        aggregation="plain",
        noise="central",
        epsilon=1.0,
        delta=1e-5,
        rounds=1,
        threshold=1,
        terms=terms,
    )
    for name, value in changes.items():
        if name == "classes":
            made.classes.extend(value)  # type: ignore[arg-type]  # a sequence of names
        else:
            setattr(made, name, value)
    return made
