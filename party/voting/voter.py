"""A party's side of the protocol: one request in, one signed reply out.

No Flower, no sockets, no clock: bytes to bytes, so that every rule can be tested by itself.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from party.identity.keys import units_key, votes_key
from party.ledger.sent_votes import Answer, tags_of, view_of
from party.voting.ahead import AheadVotes
from party.voting.casting import Casting, votes_per_patient
from party.voting.ending import (
    Ending,
    check_ending,
    joined_in_words,
    kind_in_words,
    voting_in_words,
)
from party.voting.masked import MaskedVotes
from party.voting.neighbour import NeighbourVotes, require_answer, require_different
from party.voting.noise_shares import NoiseShares
from party.voting.own_data import GaveUpError
from party.voting.received import PublicSets
from party.voting.request import (
    check_fits,
    check_on_roster,
    nobody_votes,
    other_classes,
)
from party.voting.series import SeriesVoters, series_voters
from pate.campaign.order import query_of_round
from pate.codes import code_of
from pate.data.embeddings import encoder_in
from pate.data.encoded import NoEncoderError
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

    from party.voting.own_data import OwnVoters
    from party.voting.request import Ensemble, Voting
    from party.voting.site import Site
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
#: How long a party that prepares lets the server wait before it says so again.
_HOLD_S: Final = 20.0
#: Permanent errors: a party that stayed would not be asked again, without an explanation.
_FINAL = (DataError, SchemaError, StateError, LedgerError, DiskError)


@dataclass(frozen=True)
class _Request:
    """An admissible request for votes: its terms, its queries, and how to compute them."""

    offer: Offer
    answer: Answer
    votes: Callable[[], Counts]


@dataclass(eq=False)
class _Preparation:
    """The reading and training for one campaign, in a thread, after we have said that we prepare.

    ``error`` is met by the next request; ``abandoned``: another campaign is asked for meanwhile.
    """

    offer: Offer
    begun: bool = False
    over: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    abandoned: bool = False


class Voter:
    """Answers the server's requests for one party.

    It has teachers or records, or ``own`` creates either, from its file as read for the campaign.
    """

    def __init__(
        self,
        *,
        name: str,
        identity: Ed25519PrivateKey,
        ensemble: Ensemble | None,
        home: Path,
        site: Site,
        noise: NoiseInShares,
        public: Inputs | None = None,
        records: NeighbourVotes | None = None,
        own: OwnVoters | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        check_name(name)
        self._name = name
        self._identity = identity
        if ensemble is None and records is None and own is None:
            raise UsageError("a party votes with its teachers or with its records")
        self._ensemble = ensemble
        self._records = records
        self._own = own
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
        self._campaigns = Campaigns()
        #: Set when the campaign has ended.
        self.ending: Ending | None = None
        #: Set to the error if this party cannot take part.
        self.refusal: PateError | None = None
        #: The error behind the last reply, if that was a refusal.
        self.error: PateError | None = None
        self._one_at_a_time = threading.Lock()
        self._preparation: _Preparation | None = None

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
        if self._still_prepares(offer, request):
            reply.preparing.SetInParent()
        else:
            with self._one_at_a_time:
                self._reply_to(offer, request, reply)
        signed = wire.sign_reply(reply, self._identity)
        self._begin()
        return signed

    def _blank(self, request: vote_pb2.PartyRequest, campaign: bytes) -> vote_pb2.Reply:
        return vote_pb2.Reply(
            version=wire.VERSION, nonce=request.nonce, campaign=campaign, party=self._name
        )

    def _still_prepares(self, offer: Offer, request: vote_pb2.PartyRequest) -> bool:
        """Return whether a request for a description finds its preparation under way, after a wait."""
        now = self._preparation
        if now is None or not (request.HasField("describe") and request.describe.at_once):
            return False
        if now.offer != offer:
            now.abandoned = True
            return False
        return not now.over.wait(_HOLD_S)

    def _begin(self) -> None:
        """Start the preparation that was announced: the reply is made, so that nothing of it is known yet."""
        now = self._preparation
        if now is not None and not now.begun:
            now.begun = True
            run = partial(contextvars.copy_context().run, self._prepare, now)
            threading.Thread(target=run, name="preparation", daemon=True).start()

    def _prepare(self, now: _Preparation) -> None:
        """Read, join and train as announced. The next request for a description meets an error again."""
        try:
            with self._one_at_a_time:
                self._check(now.offer)
                self._site.join(now.offer)
                self._who(now.offer, lambda: now.abandoned)
        except Exception as error:  # noqa: BLE001 - raised again where it is asked for
            now.error = error
        finally:
            now.over.set()

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
            # The other side learns only the kind: a message may contain our values.
            self._say(f"refused the server's request: {error}")
            if isinstance(error, _FINAL) or error is self._site.refused:
                self.refusal = error
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
                self._describe(offer, request.describe, reply)
            case "public_piece" if request.public_piece.encoder:
                self._take_encoder(offer, request.public_piece, reply.receipt)
            case "public_piece":
                self._site.compare(offer)
                self._take_piece(offer.announced, request.public_piece, reply.receipt)
            case "ask":
                asked = self._asked(offer, request.ask.batch)
                votes = asked.votes()
                self._leave(self._site.answer, asked, votes)
                reply.votes.CopyFrom(
                    wire.pack_votes(
                        votes,
                        teachers=self._weight(offer),
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
        self._check(offer)
        self._who(offer)

    def _describe(
        self,
        offer: Offer,
        asked: vote_pb2.Describe,
        reply: vote_pb2.Reply,
    ) -> None:
        offer = self._completed(offer)
        campaign = offer.announced
        try:
            if self._announces(offer, asked):
                reply.preparing.SetInParent()
                return
            self._check(offer)
        except NoEncoderError:
            if not asked.sends_encoder or self._own is None or self._own.encoders is None:
                raise
            reply.wanted.SetInParent()
            return
        self._site.join(offer)
        # Teachers are trained by now: a party that has described itself can vote.
        who = self._who(offer)
        # Which of a campaign's classes occur among our records must not be revealed needlessly.
        classes = tuple(campaign.classes or who.classes)
        if asked.agreed and classes != tuple(asked.agreed):
            raise SchemaError(other_classes(classes, tuple(asked.agreed)))
        said = reply.description
        said.teachers = self._weight(offer)
        said.classes.extend(classes)
        said.unit = who.unit
        if campaign.sums.masked and not campaign.vote_proofs:
            said.sealing.CopyFrom(self._ahead.sealing())
        if self._public.find(campaign) is not None:
            said.public_set = bytes.fromhex(campaign.public_set)
        for line in joined_in_words(campaign):
            self._say(line)

    def _completed(self, offer: Offer) -> Offer:
        """Put in a class list that was stated before: else a request without it would reveal ours."""
        joined = self._site.ledger.offer_of(offer.campaign)
        if joined is None or joined.key != offer.key or offer.announced.classes:
            return offer
        classes = joined.announced.classes
        return replace(offer, announced=replace(offer.announced, classes=classes))

    def _announces(self, offer: Offer, asked: vote_pb2.Describe) -> bool:
        """Return whether we answer that we prepare: once for each campaign, before any record is read for it.

        Always, whatever is read or trained already: that could depend on a record.
        """
        now = self._preparation
        if now is not None and now.offer == offer and now.over.is_set():
            error = now.error
            if error is not None:
                self._preparation = None
                if not isinstance(error, GaveUpError):
                    raise error
        if not asked.at_once or self._own is None:
            return False
        if self._preparation is not None and self._preparation.offer == offer:
            return False
        self._accept_terms(offer)
        self._own.require_fit(offer.announced)
        self._preparation = _Preparation(offer)
        self._say(
            f"the terms of campaign {offer.campaign[:8]} are accepted: our data are read by them, "
            "and the server sees that we prepare"
        )
        return True

    def _accept_terms(self, offer: Offer) -> None:
        """Check what the terms say before a record is read for them; the site's own rules come first."""
        self._site.consider(offer)
        own, wanted = self._public.own, offer.announced.public_set
        if own is not None and own.hex() != wanted:
            raise SchemaError(
                f"our copy of the public set has the hash {own.hex()[:12]}…, "
                f"the campaign's is {wanted[:12]}…; "
                "leave --public out to be sent the right one"
            )

    def _check(self, offer: Offer) -> Voting:
        """Check that we may take part in a campaign, and that our data fit it; return what we know of them.

        For a campaign that the site's rules refuse, or whose terms changed, no file is read, no teacher
        trained, and nothing about our data revealed.
        """
        self._accept_terms(offer)
        campaign, ours = offer.announced, self._own
        code = code_of(campaign.code)
        who: Ensemble | NeighbourVotes
        if ours is None:
            who = self._who(offer)
            require_answer(code, who.answer, of_teachers=not campaign.records_vote)
        else:
            who = ours.read(campaign)
        check_fits(
            who,
            unit=campaign.unit,
            schema=campaign.schema,
            classes=campaign.classes,
            of_teachers=code.of_teachers,
        )
        return who

    def _who(
        self, offer: Offer, stops: Callable[[], bool] = lambda: False
    ) -> Ensemble | NeighbourVotes:
        """Return the voters of a campaign: our teachers or our records."""
        if self._own is not None:
            return self._own.voters(offer.announced, stops)
        found = self._records if offer.announced.records_vote else self._ensemble
        if found is None:
            raise nobody_votes(offer.announced)
        return found

    def _weight(self, offer: Offer) -> int:
        """Return the sum of our vote rows, or for records the largest count."""
        if self._own is not None:
            return self._own.weight(offer.announced)
        who = self._who(offer)
        if isinstance(who, NeighbourVotes):
            return offer.announced.most_votes or 0
        return who.teachers

    def _take_piece(
        self,
        campaign: Announced,
        piece: vote_pb2.PublicPiece,
        receipt: vote_pb2.PieceReceipt,
    ) -> None:
        receipt.index = piece.index
        if self._public.find(campaign) is None:
            inputs = self._public.take(campaign, piece)
            if inputs is None:
                return
            self._say(f"received the public set: {len(inputs)} queries, {kind_in_words(inputs)}")
        receipt.public_set = bytes.fromhex(campaign.public_set)

    def _take_encoder(
        self,
        offer: Offer,
        piece: vote_pb2.PublicPiece,
        receipt: vote_pb2.PieceReceipt,
    ) -> None:
        # Our policy names the encoders that it accepts: of another one no piece is stored.
        self._site.consider(offer)
        encoders, digest = (
            None if self._own is None else self._own.encoders,
            encoder_in(offer.announced.schema),
        )
        if encoders is None or not digest:
            raise ProtocolError("a piece of an encoder that this party does not need")
        receipt.index = piece.index
        if encoders.find(digest) is None:
            described = encoders.take(digest, piece)
            if described is None:
                return
            self._say(f"received the campaign's encoder: {described.statement()}")
        receipt.encoder = bytes.fromhex(digest)

    # --- votes ---------------------------------------------------------------------------

    def _asked(self, offer: Offer, batch: vote_pb2.Batch) -> _Request:
        """Check that votes on a batch are allowed. Nothing is computed yet."""
        self._check(offer)
        own = self._identity.public_key().public_bytes_raw()
        check_on_roster(offer.require_settled(), self._name, own, self._weight(offer))
        public = self._public.find(offer.announced)
        if public is None:
            raise ProtocolError("votes are requested on a public set that never arrived")
        queries = public.take(list(batch.rows))
        whole = _hashes_of(queries, batch)
        if batch_hash(whole) != batch.digest:
            raise ProtocolError("the requested queries have another hash than the server states")
        # From here on a query is what our teachers see of it: an additional unused column does not
        # make it new.
        who = self._who(offer)
        seen = who.conform(queries)
        hashes = whole if seen is queries else _hashes_of(seen, batch)
        offer = replace(offer, queries=len(hashes))
        if isinstance(who, NeighbourVotes):
            require_different(hashes)
        view = view_of(who.schema)
        answer = Answer(batch.digest, hashes, who.fingerprint, view, round=batch.round)
        voters = None
        if isinstance(who, NeighbourVotes) and offer.announced.series is not None:
            voters = self._voters(offer, who)
            answer = replace(answer, units=voters.units, known_by=voters.known_by)
        self._site.admit(offer, answer)
        casting = Casting.of(who, public, batch, offer, voters)
        return _Request(offer, answer, lambda: self._vote(offer, batch, hashes, casting))

    def _voters(self, offer: Offer, records: NeighbourVotes) -> SeriesVoters:
        """Return our records that vote in a campaign of a series: it may be none."""
        voted = partial(self._site.ledger.voted, offer)
        cap = votes_per_patient(offer)
        return series_voters(records, offer, self._units_key, voted, cap)

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
            check_cast(votes, code, self._weight(offer))
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
