"""One party, and a server that may send it any request: bytes to bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from party.identity.keys import identity_key
from party.voting.voter import Voter
from pate.accounting.filters import Delta
from pate.data.values import batch_hash
from pate.noise.exact import SystemNoise
from protos import wire
from protos.pate.v1 import vote_pb2
from tests.support.campaign_messages import SERVER_KEY, site

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from party.policy.policy import Policy
    from party.voting.voters import Voters
    from pate.data.values import Inputs
    from tests.support.campaign_messages import CampaignMessage


def tell(
    voter: Voter,
    request: vote_pb2.PartyRequest,
    campaign: CampaignMessage,
    key: Ed25519PrivateKey = SERVER_KEY,
    nonce: bytes | None = None,
) -> vote_pb2.Reply:
    """Return the reply to a request with a campaign, or with its digest if the request has one."""
    asked = vote_pb2.PartyRequest()
    asked.CopyFrom(request)
    asked.version, asked.nonce = wire.VERSION, nonce or wire.new_id()
    if not request.digest:
        asked.campaign = campaign.packed()
    body = voter.handle(wire.sign_request(asked, key))
    return wire.read_reply(body, campaign=campaign.id, nonce=asked.nonce, digest=request.digest)[1]


def describe(**asked: object) -> vote_pb2.PartyRequest:
    return vote_pb2.PartyRequest(describe=vote_pb2.Describe(**asked))  # type: ignore[arg-type]


def ask(public: Inputs, rows: Sequence[int] | None = None) -> vote_pb2.PartyRequest:
    """A request for plain votes on some rows of a public set, or on all."""
    hashes = public.row_hashes()
    rows = range(len(hashes)) if rows is None else rows
    batch = vote_pb2.Batch(rows=rows, digest=batch_hash([hashes[row] for row in rows]))
    return vote_pb2.PartyRequest(ask=vote_pb2.Ask(batch=batch))


class Asked:
    """A party over its home, whose memory is new, and all that it said on its screen."""

    def __init__(
        self,
        home: Path,
        voters: Voters,
        *,
        name: str = "a",
        policy: Policy | None = None,
        public: Inputs | None = None,
        said: list[str] | None = None,
    ) -> None:
        self.home, self.name, self.said = home, name, [] if said is None else said
        self.site = site(home, policy)
        identity = identity_key(home)
        self.key = identity.public_key().public_bytes_raw()
        self.voter = Voter(
            name=name, identity=identity, voters=voters, home=home, site=self.site,
            noise=SystemNoise(), public=public, say=self.said.append,
        )  # fmt: skip

    def tell(self, request: vote_pb2.PartyRequest, campaign: CampaignMessage) -> vote_pb2.Reply:
        return tell(self.voter, request, campaign)

    def refuses(self, reply: vote_pb2.Reply, kind: str, words: str) -> None:
        """Check that it refused, said why on its own screen, and the server learns the kind."""
        assert reply.WhichOneof("body") == "refusal", reply.WhichOneof("body")
        assert reply.refusal.kind == kind, self.said[-1]
        assert words in self.said[-1], self.said[-1]

    @property
    def answered(self) -> int:
        """Batches that its own ledger says votes left for."""
        return sum(len(each.batches) for each in self.site.ledger.campaigns())

    def epsilon(self) -> float:
        return self.site.ledger.cumulative_epsilon(Delta(1e-5)).epsilon
