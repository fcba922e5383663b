"""How a party joins a campaign: it checks the terms, prepares, describes itself and receives public sets.

What a party replies before it has described itself depends on the terms and on its options, not on its
records.
"""

from __future__ import annotations

import contextvars
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from party.voting.ending import joined_in_words, kind_in_words
from party.voting.own_data import GaveUpError
from party.voting.site import other_classes
from party.voting.voters import check_fits
from pate.codes import code_of
from pate.data.embeddings import encoder_in
from pate.data.encoded import NoEncoderError
from pate.errors import ProtocolError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from party.voting.received import PublicSets
    from party.voting.site import Site
    from party.voting.voters import Voters, Voting
    from pate.campaign.announced import Announced
    from pate.campaign.offer import Offer
    from protos.pate.v1 import vote_pb2

#: How long a party that prepares lets the server wait before it says so again.
_HOLD_S: Final = 20.0


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


class Joining:
    """Answers what a server asks of a party before it asks for votes.

    ``sealing`` makes the key that bundles of keys are sealed for.
    """

    def __init__(
        self,
        *,
        voters: Voters,
        site: Site,
        public: PublicSets,
        sealing: Callable[[], vote_pb2.SealingKey],
        say: Callable[[str], None],
    ) -> None:
        self._voters = voters
        self._site = site
        self._public = public
        self._sealing = sealing
        self._say = say
        #: Taken by one request at a time, or by the preparation.
        self.turn = threading.Lock()
        self._preparation: _Preparation | None = None

    # --- preparation -------------------------------------------------------------------------

    def still_prepares(self, offer: Offer, request: vote_pb2.PartyRequest) -> bool:
        """Return whether a request for a description finds its preparation under way, after a wait."""
        now = self._preparation
        if now is None or not (request.HasField("describe") and request.describe.at_once):
            return False
        if now.offer != offer:
            now.abandoned = True
            return False
        return not now.over.wait(_HOLD_S)

    def begin(self) -> None:
        """Start the preparation that was announced: the reply is made, so that nothing of it is known yet."""
        now = self._preparation
        if now is not None and not now.begun:
            now.begun = True
            run = partial(contextvars.copy_context().run, self._prepare, now)
            threading.Thread(target=run, name="preparation", daemon=True).start()

    def _prepare(self, now: _Preparation) -> None:
        """Read, join and train as announced. The next request for a description meets an error again."""
        try:
            with self.turn:
                self.check(now.offer)
                self._site.join(now.offer)
                self._voters.voters(now.offer.announced, lambda: now.abandoned)
        except Exception as error:  # noqa: BLE001 - raised again where it is asked for
            now.error = error
        finally:
            now.over.set()

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
        if not asked.at_once or not self._voters.by_terms:
            return False
        if self._preparation is not None and self._preparation.offer == offer:
            return False
        self._accept_terms(offer)
        self._voters.require_fit(offer.announced)
        self._preparation = _Preparation(offer)
        self._say(
            f"the terms of campaign {offer.campaign[:8]} are accepted: our data are read by them, "
            "and the server sees that we prepare"
        )
        return True

    # --- terms and description ---------------------------------------------------------------

    def check(self, offer: Offer) -> Voting:
        """Check that we may take part in a campaign, and that our data fit it; return what we know of them.

        For a campaign that the site's rules refuse, or whose terms changed, no file is read, no teacher
        trained, and nothing about our data revealed.
        """
        self._accept_terms(offer)
        campaign = offer.announced
        who = self._voters.read(campaign)
        check_fits(
            who,
            unit=campaign.unit,
            schema=campaign.schema,
            classes=campaign.classes,
            of_teachers=code_of(campaign.code).of_teachers,
        )
        return who

    def describe(self, offer: Offer, asked: vote_pb2.Describe, reply: vote_pb2.Reply) -> None:
        """Join a campaign, and describe ourselves; or reply that we prepare, or want its encoder."""
        offer = self._completed(offer)
        campaign = offer.announced
        try:
            if self._announces(offer, asked):
                reply.preparing.SetInParent()
                return
            self.check(offer)
        except NoEncoderError:
            if not asked.sends_encoder or self._voters.encoders is None:
                raise
            reply.wanted.SetInParent()
            return
        self._site.join(offer)
        # Teachers are trained by now: a party that has described itself can vote.
        who = self._voters.voters(campaign)
        # Which of a campaign's classes occur among our records must not be revealed needlessly.
        classes = tuple(campaign.classes or who.classes)
        if asked.agreed and classes != tuple(asked.agreed):
            raise SchemaError(other_classes(classes, tuple(asked.agreed)))
        said = reply.description
        said.teachers = self._voters.weight(campaign)
        said.classes.extend(classes)
        said.unit = who.unit
        if campaign.sums.masked and not campaign.vote_proofs:
            said.sealing.CopyFrom(self._sealing())
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

    # --- pieces ------------------------------------------------------------------------------

    def take_piece(
        self, campaign: Announced, piece: vote_pb2.PublicPiece, receipt: vote_pb2.PieceReceipt
    ) -> None:
        """Take a piece of a campaign's public set."""
        receipt.index = piece.index
        if self._public.find(campaign) is None:
            inputs = self._public.take(campaign, piece)
            if inputs is None:
                return
            self._say(f"received the public set: {len(inputs)} queries, {kind_in_words(inputs)}")
        receipt.public_set = bytes.fromhex(campaign.public_set)

    def take_encoder(
        self, offer: Offer, piece: vote_pb2.PublicPiece, receipt: vote_pb2.PieceReceipt
    ) -> None:
        """Take a piece of a campaign's encoder."""
        # Our policy names the encoders that it accepts: of another one no piece is stored.
        self._site.consider(offer)
        encoders, digest = self._voters.encoders, encoder_in(offer.announced.schema)
        if encoders is None or not digest:
            raise ProtocolError("a piece of an encoder that this party does not need")
        receipt.index = piece.index
        if encoders.find(digest) is None:
            described = encoders.take(digest, piece)
            if described is None:
                return
            self._say(f"received the campaign's encoder: {described.statement()}")
        receipt.encoder = bytes.fromhex(digest)
