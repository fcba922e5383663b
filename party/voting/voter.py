"""A party's side of the protocol: one request in, one signed reply out.

No Flower, no sockets, no clock: bytes to bytes, so that every rule can be tested by itself.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from party.identity.keys import units_key, votes_key
from party.ledger.sent_votes import Answer, tags_of, view_of
from party.ledger.state import ChangedError
from party.voting.ahead import AheadVotes
from party.voting.casting import Casting, NoiseShares, votes_per_patient
from party.voting.ending import Ending, check_ending, voting_in_words
from party.voting.joining import Joining
from party.voting.masked import MaskedVotes
from party.voting.neighbour import NeighbourVotes, require_different
from party.voting.received import PublicSets
from party.voting.site import check_on_roster
from party.voting.voters import SeriesVoters, series_voters
from pate.campaign.order import query_of_round
from pate.codes import code_of
from pate.data.values import Inputs, batch_hash
from pate.errors import (
    DataError,
    DiskError,
    LedgerError,
    PateError,
    ProtocolError,
    RefusedError,
    SchemaError,
    StateError,
    UsageError,
    every_kind,
)
from pate.runtime.failpoints import reach
from pate.votes import check_cast
from protos import wire
from protos.bounds import check_name
from protos.pate.v1 import vote_pb2
from protos.terms import Campaigns, NotSentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from party.voting.site import Site
    from party.voting.voters import Voters
    from pate.campaign.announced import Announced
    from pate.campaign.offer import Offer
    from pate.noise.exact import NoiseInShares
    from pate.votes import Counts


_log = logging.getLogger(__name__)
#: Error kinds that a refusal may name to the other side.
_KINDS = frozenset(kind for kind in every_kind().values() if kind.__module__ == "pate.errors")
#: Steps of a masked sum whose keys are made for it.
_ONLINE = frozenset({
    "ask_keys", "ask_shares", "ask_masked", "ask_proof", "ask_consent", "ask_opening",
})  # fmt: skip
#: Permanent errors: a party that stayed would not be asked again, without an explanation.
_FINAL = (DataError, SchemaError, StateError, LedgerError, DiskError, UsageError, ChangedError)


@dataclass(frozen=True)
class _Request:
    """An admissible request for votes: its terms, its queries, and how to compute them."""

    offer: Offer
    answer: Answer
    votes: Callable[[], Counts]


class Voter:
    """Answers the server's requests for one party; ``public`` is its own copy of a public set."""

    def __init__(
        self,
        *,
        name: str,
        identity: Ed25519PrivateKey,
        voters: Voters,
        home: Path,
        site: Site,
        noise: NoiseInShares,
        public: Inputs | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        check_name(name)
        self._name = name
        self._identity = identity
        self._voters = voters
        self._home = home
        self._site = site
        self._say = say
        shares = NoiseShares(home / "noise.db")
        self._masked = MaskedVotes(
            name=name, identity=identity, ledger=site.ledger, shares=shares, noise=noise
        )
        self._ahead = AheadVotes(
            name=name, identity=identity, home=home, ledger=site.ledger, shares=shares, noise=noise
        )
        self._votes_key, self._units_key = votes_key(home), units_key(home)
        self._public = PublicSets(home / "public", public)
        self._joining = Joining(
            voters=voters, site=site, public=self._public, sealing=self._ahead.sealing, say=say
        )
        self._campaigns = Campaigns()
        #: Set when the campaign has ended.
        self.ending: Ending | None = None
        #: Set to the error if this party cannot take part.
        self.refusal: PateError | None = None
        #: The error behind the last reply, if that was a refusal.
        self.error: PateError | None = None

    def handle(self, body: bytes) -> bytes:
        """Answer one request; ProtocolError if the bytes are none, which cannot be answered."""
        self.error = None
        try:
            offer, request = wire.read_request(body, self._campaigns)
        except NotSentError as error:
            reply = self._blank(error.request, error.request.digest)
            reply.unknown.SetInParent()
            return wire.sign_reply(reply, self._identity)
        reply = self._blank(request, bytes.fromhex(offer.campaign))
        if self._joining.still_prepares(offer, request):
            reply.preparing.SetInParent()
        else:
            with self._joining.turn:
                self._reply_to(offer, request, reply)
        signed = wire.sign_reply(reply, self._identity)
        self._joining.begin()
        return signed

    def _blank(self, request: vote_pb2.PartyRequest, campaign: bytes) -> vote_pb2.Reply:
        return vote_pb2.Reply(
            version=wire.VERSION, nonce=request.nonce, campaign=campaign, party=self._name
        )

    def _reply_to(
        self, offer: Offer, request: vote_pb2.PartyRequest, reply: vote_pb2.Reply
    ) -> None:
        # Before we have described ourselves there is the reply that was asked for, or one kind of refusal:
        # which of several it is could tell of a record.
        what = request.WhichOneof("body")
        before_terms = what == "describe" or request.public_piece.encoder
        try:
            self._answer(offer, request, reply)
            if what != "finish" and not request.public_piece.encoder:
                # The other steps compare the whole terms with those that were accepted.
                self._campaigns.keep(offer)
        except PateError as error:
            self.error = error
            if isinstance(error, _FINAL) or error is self._site.refused:
                self.refusal = error
            # The other side learns only the kind: a message may contain our values.
            self._say(f"refused the server's request: {error}")
            kinds = (kind.__name__ for kind in type(error).__mro__ if kind in _KINDS)
            kind = next(kinds, PateError.__name__)
            reply.refusal.kind = RefusedError.__name__ if before_terms else kind
        except Exception as error:
            if not before_terms:
                raise
            _log.exception("a request could not be answered")
            self.error = PateError(f"{PateError.public}: {type(error).__name__}")
            reply.refusal.kind = RefusedError.__name__

    def _answer(self, offer: Offer, request: vote_pb2.PartyRequest, reply: vote_pb2.Reply) -> None:
        campaign, masked, ahead = bytes.fromhex(offer.campaign), self._masked, self._ahead
        what = request.WhichOneof("body")
        if what in _ONLINE:
            ahead.require_none(campaign)
        match what:
            case "describe":
                self._joining.describe(offer, request.describe, reply)
            case "public_piece" if request.public_piece.encoder:
                self._joining.take_encoder(offer, request.public_piece, reply.receipt)
            case "public_piece":
                self._site.compare(offer)
                self._joining.take_piece(offer.announced, request.public_piece, reply.receipt)
            case "ask":
                asked = self._asked(offer, request.ask.batch)
                votes = asked.votes()
                self._leave(self._site.answer, asked, votes)
                reply.votes.CopyFrom(
                    wire.pack_votes(
                        votes,
                        teachers=self._voters.weight(offer.announced),
                        batch=asked.answer.batch,
                        code=code_of(offer.announced.code) if offer.announced.one_release else None,
                    )
                )
            case "ask_keys":
                asked = self._asked(offer, request.ask_keys.batch)
                reply.keys.CopyFrom(masked.keys(offer, request.ask_keys, asked.answer.hashes))
            case "ask_shares":
                self._site.known(offer.key, campaign)
                reply.boxes.CopyFrom(masked.boxes(offer, request.ask_shares))
            case "ask_masked":
                reach("shares-sent")
                batch = masked.batch(offer, request.ask_masked.attempt)
                asked = self._asked(offer, batch)
                reply.masked.CopyFrom(
                    masked.masked(
                        offer,
                        request.ask_masked,
                        votes=asked.votes,
                        check=partial(self._leave, self._site.check, asked),
                        record=partial(self._leave, self._site.answer, asked),
                    )
                )
            case "ask_proof":
                self._site.known(offer.key, campaign)
                reply.proof.CopyFrom(masked.proof(offer, request.ask_proof))
            case "ask_consent":
                reach("masked-sent")
                self._site.known(offer.key, campaign)
                reply.consent.CopyFrom(masked.consent(offer, request.ask_consent))
            case "ask_opening":
                self._site.known(offer.key, campaign)
                reply.opening.CopyFrom(
                    masked.opening(offer, request.ask_opening, allow_other=self._site.allows_again)
                )
            case "ask_bundles":
                # They say nothing of our data; who they are for is the campaign's.
                self._site.consider(offer)
                self._site.require_open(campaign)
                reply.bundles.SetInParent()  # there may be none
                reply.bundles.CopyFrom(ahead.bundles(offer.key, campaign, request.ask_bundles))
            case "ask_masked_ahead":
                asked = self._asked(offer, request.ask_masked_ahead.batch)
                reply.masked_ahead.CopyFrom(
                    ahead.masked(
                        offer,
                        request.ask_masked_ahead,
                        asked.answer.hashes,
                        votes=asked.votes,
                        check=partial(self._leave, self._site.check, asked),
                        record=partial(self._leave, self._site.answer, asked),
                    )
                )
            case "ask_consent_ahead":
                self._site.known(offer.key, campaign)
                reply.consent.CopyFrom(ahead.consent(offer, request.ask_consent_ahead))
            case "ask_opening_ahead":
                self._site.known(offer.key, campaign)
                reply.opening.CopyFrom(
                    ahead.opening(
                        offer, request.ask_opening_ahead, allow_other=self._site.allows_again
                    )
                )
            case "finish":
                self._finish(offer.key, campaign, request.finish)
                reply.farewell.SetInParent()
            case _:
                raise ProtocolError("a request of no known kind")

    def public(self, campaign: Announced) -> Inputs | None:
        """Return the public set of a campaign if it is in memory: nothing is read for it."""
        return self._public.current(campaign)

    def prepare(self, offer: Offer) -> None:
        """Check that we may take part in a campaign, and train its teachers; join nothing."""
        self._joining.check(offer)
        self._voters.voters(offer.announced)

    # --- votes ---------------------------------------------------------------------------

    def _asked(self, offer: Offer, batch: vote_pb2.Batch) -> _Request:
        """Check that votes on a batch are allowed. Nothing is computed yet."""
        self._joining.check(offer)
        own, weight = self._identity.public_key().public_bytes_raw(), self._voters.weight
        check_on_roster(offer.require_settled(), self._name, own, weight(offer.announced))
        public = self._public.find(offer.announced)
        if public is None:
            raise ProtocolError("votes are requested on a public set that never arrived")
        queries = public.take(list(batch.rows))
        whole = _hashes_of(queries, batch)
        if batch_hash(whole) != batch.digest:
            raise ProtocolError("the requested queries have another hash than the server states")
        # From here on a query is what our teachers see of it: an additional unused column does not
        # make it new.
        who = self._voters.voters(offer.announced)
        seen = who.conform(queries)
        hashes = whole if seen is queries else _hashes_of(seen, batch)
        offer = offer.asking(len(hashes))
        if isinstance(who, NeighbourVotes):
            require_different(hashes)
        view = view_of(who.schema)
        answer = Answer(batch.digest, hashes, who.fingerprint, view, round=batch.round)
        voters: SeriesVoters | None = None
        if isinstance(who, NeighbourVotes) and offer.announced.series is not None:
            voted = partial(self._site.ledger.voted, offer)
            cap = votes_per_patient(offer)
            voters = series_voters(who, offer, self._units_key, voted, cap)
            answer = replace(answer, units=voters.units, known_by=voters.known_by)
        self._site.admit(offer, answer)
        casting = Casting.of(who, public, batch, offer, voters)
        return _Request(offer, answer, lambda: self._vote(offer, batch, hashes, casting))

    def _leave(self, how: Callable[[Offer, Answer], None], asked: _Request, votes: Counts) -> None:
        """Compare votes that are about to leave with all earlier ones, or record their tags as well."""
        classes = asked.offer.announced.classes or ()
        tags = tags_of(self._votes_key, asked.answer.hashes, classes, votes)
        how(asked.offer, replace(asked.answer, tags=tags))

    def _vote(
        self,
        offer: Offer,
        batch: vote_pb2.Batch,
        hashes: Sequence[bytes],
        casting: Casting,
    ) -> Counts:
        self._say(voting_in_words(offer.announced, batch))
        votes = casting.votes(self._home / "votes.db", offer.announced.classes or (), hashes)
        code = code_of(offer.announced.code)
        if code.of_teachers:  # what is charged rests on it, and a mask would hide it
            check_cast(votes, code, self._voters.weight(offer.announced))
        return votes

    def _finish(self, key: bytes, campaign: bytes, finish: vote_pb2.Finish) -> None:
        offer = self._site.known(key, campaign)
        record = self._site.ledger.find(campaign.hex())
        asked = 0 if record is None else record.asked
        check_ending(finish, offer, asked)
        self._masked.forget(campaign)
        self._ahead.forget(campaign)
        self._site.ended(campaign, finish)
        self.ending = Ending.of(campaign, finish, offer, asked)


def _hashes_of(queries: Inputs, batch: vote_pb2.Batch) -> Sequence[bytes]:
    """Return the hashes of the queries of a batch: in each round others, since something else is asked."""
    hashes = queries.row_hashes()
    if not batch.round:
        return hashes
    return [query_of_round(each, batch.round, batch.shown) for each in hashes]
