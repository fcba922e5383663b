"""A party's side of the protocol: one request in, one signed reply out.

No Flower, no sockets, no clock: bytes to bytes, so that every rule can be tested by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from party.masked_votes import MaskedVotes
from party.noise_shares import NoiseShares
from party.offer import Offer
from party.vote_cache import VoteCache
from pate.data.values import Inputs, Table, batch_hash, content_hash
from pate.errors import PateError, ProtocolError, RefusedError, SchemaError
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory, write_file
from pate.statement import NEIGHBOURS, in_words
from protos import wire
from protos.bounds import check_name
from protos.pate.v1 import vote_pb2
from protos.public_set import read_public_set
from protos.terms import cap_of, mechanisms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from party.site import Site
    from pate.noise import Noise
    from pate.votes import Counts


#: How votes leave, for the party's screen.
_AGGREGATION = {
    "plain": "plain aggregation: the server sees our vote vectors",
    "masked": "masked sums: nobody sees our votes alone",
}
_NOISE = {"central": "noise by the server", "distributed": "noise by the parties"}


class Ensemble(Protocol):
    """What the voter needs of a party's teachers."""

    @property
    def teachers(self) -> int:
        """k, the number of teachers."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The class list of the party's data."""

    @property
    def unit(self) -> str:
        """``record`` or ``patient``: what the shards keep together."""

    @property
    def schema(self) -> str:
        """One line that describes the inputs the teachers take."""

    @property
    def fingerprint(self) -> bytes:
        """What changes when the data or the settings do."""

    def vote(self, inputs: Inputs, classes: Sequence[str]) -> Counts:
        """Return (n, m) int64 votes, columns in the order of ``classes``."""


@dataclass(frozen=True)
class Ending:
    """How a campaign ended for a party.

    Attributes:
        campaign: its id, hexadecimal.
        queries_asked: queries that the server put to its mechanism.
        labels_released: labels that left the server.
        epsilon: the campaign's cap towards the public, data-independent.
        delta: at which the cap holds.
        unit: what it protects: ``record``, ``patient`` or ``party``.
        adjacency: what neighbouring data sets differ by.
        observer: against whom it holds.
        votes_given: queries that this party answered for the campaign.
    """

    campaign: str
    queries_asked: int
    labels_released: int
    epsilon: float
    delta: float
    unit: str
    adjacency: str
    observer: str
    votes_given: int


class Voter:
    """Answers the server's requests for one party.

    Args:
        name: of the party.
        identity: its signing key.
        ensemble: its trained teachers.
        home: where public sets and given votes are kept.
        site: what this site agrees to, and its record of what left.
        noise: where its noise shares are drawn from.
        public: its own copy of the public set, or None to be sent one.
        say: one line for the party's own screen.
    """

    def __init__(
        self,
        *,
        name: str,
        identity: Ed25519PrivateKey,
        ensemble: Ensemble,
        home: Path,
        site: Site,
        noise: Noise,
        public: Inputs | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        check_name(name)
        self._name = name
        self._identity = identity
        self._ensemble = ensemble
        self._home = home
        self._site = site
        self._say = say
        self._masked = MaskedVotes(
            name=name,
            identity=identity,
            ledger=site.ledger,
            shares=NoiseShares(home / "noise.db"),
            noise=noise,
        )
        self._public: dict[bytes, Inputs] = {}
        self._own_copy: bytes | None = None
        if public is not None:
            self._own_copy = content_hash(public)
            self._public[self._own_copy] = public
        self._pieces: dict[bytes, dict[int, bytes]] = {}
        self._answered: dict[bytes, int] = {}
        #: Set when the campaign has ended.
        self.ending: Ending | None = None
        #: Set when this party cannot take part, by the error that says why.
        self.refusal: PateError | None = None

    def handle(self, body: bytes) -> bytes:
        """Answer one request.

        Raises:
            ProtocolError: if the bytes are not a request; nobody can be answered then.
        """
        key, request = wire.read_request(body)
        reply = vote_pb2.Reply(
            version=wire.VERSION,
            nonce=request.nonce,
            campaign=request.campaign.id,
            party=self._name,
        )
        try:
            self._answer(key, request, reply)
        except PateError as error:
            # The other side learns the kind alone: a message may hold values of ours.
            self._say(f"refused the server's request: {error}")
            joining = request.WhichOneof("body") == "describe"
            if isinstance(error, SchemaError) or (joining and isinstance(error, RefusedError)):
                self.refusal = error
            reply.refusal.kind = type(error).__name__
        return wire.sign_reply(reply, self._identity)

    def _answer(self, key: bytes, request: vote_pb2.PartyRequest, reply: vote_pb2.Reply) -> None:
        campaign, masked = request.campaign, self._masked
        match request.WhichOneof("body"):
            case "describe":
                self._describe(key, campaign, reply.description)
            case "public_piece":
                self._site.known(key, campaign.id)
                self._take_piece(campaign, request.public_piece, reply.receipt)
            case "ask":
                hashes, votes = self._asked(key, campaign, request.ask.batch)
                digest = request.ask.batch.digest
                self._site.answer(self._offer(key, campaign, len(hashes)), digest, hashes)
                reply.votes.CopyFrom(
                    wire.pack_votes(votes(), teachers=self._ensemble.teachers, batch=digest)
                )
            case "ask_keys":
                hashes, _ = self._asked(key, campaign, request.ask_keys.batch)
                reply.keys.CopyFrom(
                    masked.keys(campaign, request.ask_keys.attempt, request.ask_keys.batch, hashes)
                )
            case "ask_shares":
                self._site.known(key, campaign.id)
                reply.boxes.CopyFrom(masked.boxes(campaign.id, request.ask_shares))
            case "ask_masked":
                reach("shares-sent")
                batch = masked.batch(campaign.id, request.ask_masked.attempt)
                hashes, votes = self._asked(key, campaign, batch)
                self._site.answer(self._offer(key, campaign, len(hashes)), batch.digest, hashes)
                reply.masked.CopyFrom(masked.masked(campaign, request.ask_masked, votes))
            case "ask_consent":
                reach("masked-sent")
                self._site.known(key, campaign.id)
                reply.consent.CopyFrom(masked.consent(campaign.id, request.ask_consent))
            case "ask_opening":
                self._site.known(key, campaign.id)
                reply.opening.CopyFrom(
                    masked.opening(
                        campaign.id, request.ask_opening, allow_other=self._site.allows_again
                    )
                )
            case "finish":
                self._site.known(key, campaign.id)
                reply.farewell.SetInParent()
                self._finish(campaign, request.finish)
            case _:
                raise ProtocolError("a request of no known kind")

    def _describe(
        self, key: bytes, campaign: vote_pb2.Campaign, said: vote_pb2.Description
    ) -> None:
        self._check_campaign(campaign)
        self._site.join(self._offer(key, campaign, 0))
        said.teachers = self._ensemble.teachers
        said.classes.extend(self._ensemble.classes)
        said.unit = self._ensemble.unit
        said.public_set = campaign.public_set if self._find(campaign) is not None else b""
        self._say(
            f"joined campaign {campaign.id.hex()[:8]}: {campaign.mechanism}, "
            f"{campaign.queries} queries, at most "
            f"{in_words(campaign.epsilon, campaign.delta, campaign.unit)}, "
            f"{_AGGREGATION[campaign.aggregation]}, {_NOISE[campaign.noise]}"
        )

    def _offer(self, key: bytes, campaign: vote_pb2.Campaign, queries: int) -> Offer:
        """Return what a request asks of us, for the policy and the ledger."""
        known = campaign.HasField("terms")
        terms = campaign.terms
        return Offer(
            key=key,
            campaign=campaign.id.hex(),
            aggregator=campaign.mechanism,
            aggregation=campaign.aggregation,
            noise=campaign.noise,
            unit=campaign.unit,
            epsilon=campaign.epsilon,
            delta=campaign.delta,
            public_queries=campaign.queries,
            rounds=campaign.rounds,
            queries=queries,
            threshold=campaign.threshold,
            colluders=campaign.colluders,
            roster=tuple(member.name for member in terms.roster) if known else None,
            identities=tuple(member.identity.hex() for member in terms.roster) if known else None,
            teachers=sum(member.teachers for member in terms.roster) if known else None,
            mechanisms=mechanisms_of(terms) if known else None,
            composition=terms.composition if known else None,
            cap=cap_of(terms) if known else None,
        )

    def _check_campaign(self, campaign: vote_pb2.Campaign) -> None:
        if self._own_copy is not None and self._own_copy != campaign.public_set:
            raise SchemaError(
                f"our copy of the public set has the hash {self._own_copy.hex()[:12]}…, "
                f"the campaign's is {campaign.public_set.hex()[:12]}…; "
                "leave --public out to be sent the right one"
            )
        if campaign.unit == "patient" and self._ensemble.unit != "patient":
            raise SchemaError(
                "the campaign protects patients, but our teachers were sharded by record; "
                "start again with --group COLUMN, the column that names the patient"
            )
        unknown = sorted(set(self._ensemble.classes) - set(campaign.classes))
        if campaign.classes and unknown:
            raise SchemaError(
                f"our data has classes that the campaign has not: {', '.join(unknown)}; "
                f"the campaign's are {', '.join(campaign.classes)}"
            )
        both_images = campaign.schema.startswith("images") or self._ensemble.schema.startswith(
            "images"
        )
        if both_images and campaign.schema != self._ensemble.schema:
            raise SchemaError(
                f"the public set is {campaign.schema}, our data is {self._ensemble.schema}"
            )

    # --- the public set ------------------------------------------------------------------

    def _find(self, campaign: vote_pb2.Campaign) -> Inputs | None:
        if campaign.public_set not in self._public:
            try:
                body = self._stored(campaign.public_set).read_bytes()
                inputs = read_public_set(
                    body, public_set=campaign.public_set, queries=campaign.queries
                )
            except (FileNotFoundError, ProtocolError):
                return None  # not here, or damaged on disk: it will be sent again
            self._public[campaign.public_set] = inputs
        held = self._public[campaign.public_set]
        if len(held) != campaign.queries:
            raise ProtocolError(
                f"the campaign announces {campaign.queries} queries, its public set has {len(held)}"
            )
        return held

    def _stored(self, public_set: bytes) -> Path:
        return self._home / "public" / f"{public_set.hex()}.bin"

    def _take_piece(
        self,
        campaign: vote_pb2.Campaign,
        piece: vote_pb2.PublicPiece,
        receipt: vote_pb2.PieceReceipt,
    ) -> None:
        receipt.index = piece.index
        if self._find(campaign) is None:
            # One public set at a time: a server that starts a second one gives up the first.
            held = self._pieces.get(campaign.public_set)
            if held is None:
                self._pieces = {campaign.public_set: {}}
                held = self._pieces[campaign.public_set]
            held[piece.index] = piece.content
            if len(held) < piece.pieces:
                return
            body = b"".join(held[at] for at in sorted(held))
            self._pieces.clear()
            inputs = read_public_set(body, public_set=campaign.public_set, queries=campaign.queries)
            path = self._stored(campaign.public_set)
            private_directory(path.parent)
            write_file(path, body)
            self._public[campaign.public_set] = inputs
            self._say(f"received the public set: {len(inputs)} queries, {_kind(inputs)}")
        receipt.public_set = campaign.public_set

    # --- votes ---------------------------------------------------------------------------

    def _asked(
        self, key: bytes, campaign: vote_pb2.Campaign, batch: vote_pb2.Batch
    ) -> tuple[list[bytes], Callable[[], Counts]]:
        """Check that votes on a batch may be given; return its query hashes and how to vote.

        Nothing is computed yet.

        Raises:
            PateError: if they may not.
        """
        self._check_campaign(campaign)
        self._check_roster(campaign)
        public = self._find(campaign)
        if public is None:
            raise ProtocolError("votes are asked for on a public set that never came")
        queries = public.take(list(batch.rows))
        hashes = queries.row_hashes()
        if batch_hash(hashes) != batch.digest:
            raise ProtocolError("the queries asked for have another hash than the server says")
        self._site.admit(self._offer(key, campaign, len(hashes)), batch.digest, hashes)
        return hashes, lambda: self._vote(campaign, queries, hashes)

    def _check_roster(self, campaign: vote_pb2.Campaign) -> None:
        """Check that we are on the roster as what we are."""
        own = self._identity.public_key().public_bytes_raw()
        for member in campaign.terms.roster:
            if (member.name, member.identity) == (self._name, own):
                if member.teachers == self._ensemble.teachers:
                    return
                raise ProtocolError(
                    f"the roster has us with {member.teachers} teachers, we have "
                    f"{self._ensemble.teachers}"
                )
        raise ProtocolError("we are not on the roster of the campaign that asks for our votes")

    def _vote(
        self, campaign: vote_pb2.Campaign, queries: Inputs, hashes: Sequence[bytes]
    ) -> Counts:
        classes = tuple(campaign.classes)
        cache = VoteCache(
            self._home / "votes.db", ensemble=self._ensemble.fingerprint, classes=classes
        )
        self._say(f"voting on {len(hashes)} queries")
        votes = cache.votes(
            hashes,
            lambda rows: self._ensemble.vote(queries.take(rows), classes),
            before_store=lambda: reach("voting"),
        )
        self._answered[campaign.id] = max(self._answered.get(campaign.id, 0), len(hashes))
        return votes

    def _finish(self, campaign: vote_pb2.Campaign, finish: vote_pb2.Finish) -> None:
        self.ending = Ending(
            campaign=campaign.id.hex(),
            queries_asked=finish.queries_asked,
            labels_released=finish.labels_released,
            epsilon=finish.epsilon_cap,
            delta=finish.delta,
            unit=campaign.unit,
            adjacency=NEIGHBOURS[campaign.unit],
            observer="public",
            votes_given=self._answered.get(campaign.id, 0),
        )
        self._masked.forget(campaign.id)
        self._site.ended(campaign.id, finish)


def _kind(inputs: Inputs) -> str:
    return (
        f"a table of {len(inputs.names)} columns" if isinstance(inputs, Table) else inputs.schema()
    )
