"""Random requests of a server that lies to real parties, and all that it can work out of the replies.

The server has the campaign's key and every reply, and some parties work with it. It takes parties through
sums by both protocols at once, and at any step sends something else. What it can unmask follows from the
shares that were revealed: the parties' own secrets are noted as they are drawn, so that nothing is guessed.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.exchange.aggregation import ANSWERS, Batch, MaskedAggregation
from aggregator_server.exchange.ahead import AheadAggregation, bundle_roster
from party.identity.keys import identity_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import Policy
from party.voting.neighbour import NeighbourVotes
from party.voting.voter import Voter
from party.voting.voters import ReadyVoters, series_voters
from pate.campaign.order import query_of_round
from pate.campaign.roster import RosterParty
from pate.codes import GRID
from pate.data.values import Dataset, Table, batch_hash
from pate.errors import PateError, ProtocolError
from pate.masking import keys as masking_keys
from pate.masking import masks
from pate.mechanisms import DistributedGNMax, DistributedNeighbour, GNMax, Neighbour
from pate.rounds.model import RoundModel
from protos import ahead, masked, wire
from protos.masked import bits_from_names
from protos.pate.v1 import vote_pb2
from tests.support.campaign_messages import (
    SERVER_KEY,
    CampaignMessage,
    campaign_message,
    terms_message,
)
from tests.support.party.asked import Asked, describe
from tests.support.party.histories import Teachers, alone

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pate.votes import Counts

CLASSES: Final = ("x", "y")
QUERIES: Final = 8
RECORDS: Final = 6
MOST: Final = 60
_RNG = np.random.default_rng(6)
PUBLIC: Final = Table(
    ("one", "two"), (_RNG.normal(size=QUERIES), _RNG.normal(size=QUERIES).astype(np.float64))
)
HASHES: Final = PUBLIC.row_hashes()
#: Parties, the least in a sum, and colluders that a campaign states.
SIZES: Final = ((4, 3, 1), (5, 4, 1), (5, 4, 2), (5, 3, 0), (3, 2, 0), (4, 4, 2))
#: What is summed.
KINDS: Final = ("exact", "noisy", "records", "series", "rounds", "plain")
#: Where records vote in rounds.
PLACES: Final = (0, 2, 3, 5)
ROUNDS: Final = 3
STRANGER: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


@dataclass(frozen=True, eq=False)
class Masked:
    """Votes that a party masked, with the public mask keys of the parties that it masked with."""

    name: str
    about: bytes  # digest of the context and all keys, from which masks are derived
    campaign: str
    batch: bytes
    own: bytes  # its public mask key
    peers: dict[str, bytes]
    values: Counts


@dataclass
class Secrets:
    """All that parties drew, dealt and masked; see :func:`noted`."""

    dealt: dict[bytes, dict[str, tuple[int, int]]] = field(default_factory=dict)
    hidden: dict[bytes, Masked] = field(default_factory=dict)
    cast: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)


@contextmanager
def noted(patch: pytest.MonkeyPatch) -> Iterator[Secrets]:
    """Note what parties draw, deal and mask."""
    found = Secrets()
    deal = masking_keys.OneTime.deal

    def dealing(self: masking_keys.OneTime, *args: Any) -> Any:
        found.dealt[self.mask.public] = parts = deal(self, *args)
        return parts

    with patch.context() as patched:
        patched.setattr(masking_keys.OneTime, "deal", dealing)
        for place in ("pate.masking.party", "pate.masking.ahead.party"):
            _note_masks(patched, place, found)
        _note_voters(patched, found)
        yield found


def _note_masks(patched: pytest.MonkeyPatch, place: str, found: Secrets) -> None:
    real = masks.hide

    def hide(known: Any, name: str, secrets: Any, values: Counts, peers: Any, stream: Any) -> bytes:
        peers = sorted(peers)
        packed: bytes = real(known, name, secrets, values, peers, stream)
        found.hidden[packed] = Masked(
            name, known.digest, known.context.campaign.hex(), known.context.matrix.batch,
            secrets[0].public, {peer: known.keys[peer].mask_key for peer in peers},
            np.array(values),
        )  # fmt: skip
        return packed

    patched.setattr(f"{place}.hide", hide)


def _note_voters(patched: pytest.MonkeyPatch, found: Secrets) -> None:
    real = series_voters

    def voters(records: Any, offer: Any, *args: Any) -> Any:
        made = real(records, offer, *args)
        found.cast[records.key.decode(), offer.campaign] = tuple(made.rows.tolist())
        return made

    patched.setattr("party.voting.voter.series_voters", voters)


@dataclass
class Talk:
    """Parties that are taken through one sum, and the replies that the server has of it."""

    kind: str
    campaign: CampaignMessage
    batch: Batch
    sum: Any
    replies: dict[tuple[str, str], vote_pb2.Reply] = field(default_factory=dict)


class Hostile:
    """A server that sends whatever it likes, and parties that answer."""

    def __init__(
        self, root: Path, seed: int, secrets: Secrets, kinds: Sequence[str] = KINDS
    ) -> None:
        self.kinds = kinds  # of its campaigns
        self.random = random.Random(seed)  # noqa: S311
        self.secrets = secrets
        parties, self.least, self.colluders = self.random.choice(SIZES)
        self.names = tuple("abcde"[:parties])
        self.accomplices = frozenset(self.names[: self.random.choice((0, self.colluders))])
        self.root = root
        self.training = dict.fromkeys(self.names, 0)
        self.data = dict.fromkeys(self.names, 0)
        self.said: list[str] = []
        self.voters: dict[str, Voter] = {}
        for name in self.names:
            self.start(name)
        self.roster = [
            RosterParty(name, self.key(name).hex(), Teachers(name, 0).teachers, "record")
            for name in self.names
        ]
        self.campaigns: list[tuple[str, CampaignMessage]] = []
        self.talks: list[Talk] = []
        self.bodies: list[tuple[str, bytes]] = []
        self.bundles: dict[tuple[str, int], vote_pb2.Bundle] = {}
        self.sealing: dict[bytes, vote_pb2.SealingKey] = {}
        #: What left: votes under masks, in the clear, and shares that unmask.
        self.left: dict[bytes, Masked] = {}
        self.plain: list[tuple[str, str, bytes]] = []
        self.seeds: dict[bytes, set[str]] = defaultdict(set)
        self.keys: dict[bytes, set[str]] = defaultdict(set)
        self.outcomes: Counter[str] = Counter()
        #: Of each batch: its queries, and the round in which records vote on it.
        self.rows: dict[bytes, tuple[int, ...]] = {}
        self.rounds: dict[bytes, int] = {}
        self.numbers = self.random.randrange(1000)

    # --- parties ---------------------------------------------------------------------------------

    def key(self, name: str) -> bytes:
        return identity_key(self.root / name).public_key().public_bytes_raw()

    def start(self, name: str) -> None:
        """Start a party anew: what it had in memory is lost."""
        home = self.root / name
        held = np.random.default_rng([ord(name), self.data[name]])
        records = Table(PUBLIC.names, (held.normal(size=RECORDS), held.normal(size=RECORDS)))
        rules = Policy.default(loopback=True)
        if self.random.random() < 0.5:
            rules = replace(
                rules,
                aggregation=("masked",),
                least_survivors=self.least,
                least_colluders=self.colluders,
            )
        voters = ReadyVoters(
            Teachers(name, self.data[name], self.training[name], schema=PUBLIC.schema()),
            NeighbourVotes(Dataset(records, held.integers(0, 2, RECORDS), CLASSES), name.encode()),
        )
        self.voters[name] = Asked(
            home, voters, name=name, policy=rules, public=PUBLIC, said=self.said
        ).voter

    # --- campaigns -------------------------------------------------------------------------------

    def campaign(self) -> CampaignMessage:
        """Begin a campaign of some kind, and return it as all parties are told at first."""
        often = {"exact": 5, "noisy": 4, "records": 2, "series": 3, "rounds": 3, "plain": 1}
        kind = self.random.choices(self.kinds, [often[each] for each in self.kinds])[0]
        honest, records = self.least - self.colluders, kind in ("records", "series", "rounds")
        fields: dict[str, Any] = {
            "id": self.random.randbytes(16), "classes": CLASSES, "aggregation": "masked",
            "min_parties": self.least, "colluders": self.colluders, "epsilon": 1000.0,
        }  # fmt: skip
        match kind:
            case "exact":
                mechanisms: list[Any] = [GNMax(Fraction(400), 1)]
            case "noisy":
                mechanisms = [DistributedGNMax(Fraction(80), honest, 1)]
            case "records":
                mechanisms = [Neighbour(0, Fraction(400), 1)]
            case "series":
                mechanisms = [DistributedNeighbour(0, Fraction(80), honest, 1)]
                fields["series"] = "monthly"
            case "rounds":
                share = Fraction(80 * GRID)
                mechanisms = [
                    DistributedNeighbour(0, share, honest, 1, code="dense-4 residual")
                ] * 2
                fields |= {"code": "dense-4 residual", "rounds": ROUNDS}
            case _:
                mechanisms = [GNMax(Fraction(400), 1)]
                fields |= {"aggregation": "plain", "colluders": 0}
        if records:
            fields |= {"aggregator": "neighbour", "most_votes": MOST}
        if kind in ("noisy", "series", "rounds"):
            fields["noise"] = "distributed"
        members = [
            (each.name, bytes.fromhex(each.identity), MOST if records else each.teachers)
            for each in self.roster
        ]
        terms = terms_message(members, mechanisms, composition="zcdp", cap="1")
        made = campaign_message(PUBLIC, terms, **fields)
        made.offer()  # it is a campaign
        self.campaigns.append((kind, made))
        return made

    def altered(self, campaign: CampaignMessage) -> CampaignMessage:
        """Return a campaign of the same id that says something else."""
        told, pick = campaign.copy(), self.random
        other = pick.choice(self.campaigns)[1]
        match pick.randrange(16):
            case 0:
                told.classes = told.classes[::-1]
            case 1:
                told.epsilon = told.epsilon * 2
            case 2:
                told.min_parties = pick.choice((2, self.least + 1, self.least - 1, len(self.names)))
            case 3:
                told.colluders = pick.choice((0, self.colluders + 1))
            case 4:
                told.noise = "central" if told.noise == "distributed" else "distributed"
            case 5:
                told.aggregation = "plain" if told.aggregation == "masked" else "masked"
            case 6:
                told.terms = None
            case 7:
                told.more = {pick.choice(("later", "version", "votes_per_unit")): 1}
            case 8:
                told.series = "other" if told.series else "monthly"
            case 9:
                told.rounds += 1
            case 10:
                told.public_set = bytes(32)
            case 11:
                told.terms = other.terms and campaign_terms(other)
            case 12 if told.terms:
                told.terms.roster[pick.randrange(len(told.terms.roster))].teachers += 1
            case 13 if told.terms:
                del told.terms.roster[pick.randrange(len(told.terms.roster))]
            case 14 if told.terms:
                key = STRANGER.public_key().public_bytes_raw()
                told.terms.roster[pick.randrange(len(told.terms.roster))].identity = key
            case _:
                told.id = other.id
        return told

    def batch(self, kind: str, number: int = 0) -> Batch:
        """Return queries to be asked; where records vote in rounds with a model of the server's choice."""
        pick = self.random
        if kind == "rounds":
            number = number or pick.randint(1, ROUNDS)
            shown = b""
            if number > 1:
                weights = np.array(
                    [[pick.choice((0, 1, 2**20, -(2**20), pick.randrange(-4000, 4000))) for _ in CLASSES]
                     for _ in PLACES], dtype=np.int64,
                )  # fmt: skip
                shown = RoundModel(weights, pick.choice((1, 700, 1023))).to_bytes()
            rows: tuple[int, ...] = PLACES
            hashes = [query_of_round(HASHES[row], number, shown) for row in rows]
            made = Batch(rows, batch_hash(hashes), number, shown)
        else:
            rows = tuple(sorted(pick.sample(range(QUERIES), pick.choice((2, 3, 4)))))
            hashes = [HASHES[row] for row in rows]
            made = Batch(rows, batch_hash(hashes))
        self.rows[made.digest], self.rounds[made.digest] = rows, made.round
        return made

    # --- requests --------------------------------------------------------------------------------

    def tell(
        self, name: str, request: vote_pb2.PartyRequest, campaign: CampaignMessage,
        key: Ed25519PrivateKey = SERVER_KEY,
    ) -> vote_pb2.Reply | None:  # fmt: skip
        """Send a request, note all that its reply gives away, and return it; None if it is no request."""
        asked = vote_pb2.PartyRequest()
        asked.CopyFrom(request)
        asked.version, asked.nonce = wire.VERSION, self.random.randbytes(16)
        asked.campaign = campaign.packed()
        body = wire.sign_request(asked, key)
        self.bodies.append((name, body))
        return self.send(name, body)

    def send(self, name: str, body: bytes) -> vote_pb2.Reply | None:
        """Send some bytes, and note all that the reply gives away."""
        try:
            answer = self.voters[name].handle(body)
        except ProtocolError:
            self.outcomes["no request"] += 1
            return None
        signed = vote_pb2.SignedReply.FromString(answer)
        reply = vote_pb2.Reply.FromString(signed.body)
        what = reply.WhichOneof("body") or ""
        self.outcomes[what] += 1
        if what in ("masked", "masked_ahead"):
            packed = getattr(reply, what).packed
            mine = self.secrets.hidden[packed]
            assert mine.name == name
            self.require_charged(name, mine.campaign, mine.batch)
            same = self.left.setdefault(mine.own, mine)
            assert same is mine, f"{name} masked twice with one key"
        elif what == "votes":
            self.plain.append((name, reply.campaign.hex(), reply.votes.batch))
            self.require_charged(name, reply.campaign.hex(), reply.votes.batch)
        elif what == "opening":
            self.revealed(name, reply.opening)
        return reply

    def require_charged(self, name: str, campaign: str, batch: bytes) -> None:
        """Check that votes that left are in the party's ledger."""
        ledger = self.voters[name]._site.ledger
        assert ledger.answered(campaign, batch), f"votes of {name} left uncharged"

    def revealed(self, holder: str, opening: vote_pb2.Opening) -> None:
        """Note whose secrets a party revealed shares of."""
        for shares, at, of in ((opening.seeds, 0, self.seeds), (opening.keys, 1, self.keys)):
            for share in shares:
                value = int.from_bytes(share.value, "little")
                whose = [
                    key
                    for key, parts in self.secrets.dealt.items()
                    if holder in parts and parts[holder][at] == value
                ]
                assert len(whose) == 1, "a share of nobody"
                of[whose[0]].add(holder)

    # --- a history -------------------------------------------------------------------------------

    def play(self, steps: int) -> None:
        """Begin a campaign, or go on with one, and do a number of things."""
        if not self.campaigns or self.random.random() < 0.8:
            message = self.campaign()
            joining = message.copy(terms=None)
            for name in self.names:
                if self.random.random() < 0.9:
                    reply = self.tell(name, describe(), joining)
                    if reply is not None and reply.description.HasField("sealing"):
                        self.sealing[self.key(name)] = reply.description.sealing
        for _ in range(steps):
            with suppress(PateError):  # of the server's own side: it takes the reply as none
                self.step()

    def step(self) -> None:
        """Do one thing: most often what an honest server does next, in some sum that was begun."""
        pick = self.random.random()
        if pick < 0.12 or not self.talks:
            self.begin()
        elif pick < 0.72:
            self.onward(self.random.choice(self.talks[-3:]))
        elif pick < 0.94:
            self.lie(self.random.choice(self.talks[-3:]))
        else:
            self.event()

    def begin(self) -> None:
        kind, campaign = self.random.choice(self.campaigns[-2:])
        batch = self.batch(kind)
        old = [each.batch for each in self.talks if each.campaign is campaign]
        if old and self.random.random() < 0.4:
            batch = self.random.choice(old)
        elif old and self.random.random() < 0.5:
            batch = self.batch(kind, self.random.choice(old).round)  # the same round, another model
        if kind == "plain":
            for name in self.names:
                self.tell(name, ask(batch), campaign)
            return
        if self.random.random() < 0.45 and len(self.sealing) == len(self.names):
            made: Any = self.begun_ahead(campaign, batch)
        else:
            made = MaskedAggregation(campaign.offer(), self.members(campaign), batch)
        self.talks.append(Talk(kind, campaign, batch, made))

    def members(self, campaign: CampaignMessage) -> list[RosterParty]:
        assert campaign.terms is not None
        counts = {each.name: each.teachers for each in campaign.terms.roster}
        return [
            replace(each, teachers=counts.get(each.name, each.teachers)) for each in self.roster
        ]

    def begun_ahead(self, campaign: CampaignMessage, batch: Batch) -> AheadAggregation:
        offer = campaign.offer()
        sealed = bundle_roster(offer, self.sealing, {name: self.key(name) for name in self.names})
        number = self.numbers
        self.numbers += self.random.random() < 0.8
        bundles = {}
        for name in self.names:
            if self.random.random() < 0.08:
                continue  # lost
            place = (name, number)
            if place not in self.bundles:
                asked = vote_pb2.PartyRequest(ask_bundles=ahead.roster_to_wire(sealed, number, 1))
                reply = self.tell(name, asked, campaign)
                if reply is None or not reply.bundles.bundles:
                    continue
                self.bundles[place] = reply.bundles.bundles[0]
            bundles[name] = self.bundles[place]
            if self.random.random() < 0.05:  # one of another round
                others = [each for (who, _), each in self.bundles.items() if who == name]
                bundles[name] = self.random.choice(others)
        return AheadAggregation.begin(
            offer, self.members(campaign), batch, sealed=sealed, bundles=bundles
        )

    def onward(self, talk: Talk) -> None:
        """Take some parties through the step that comes next."""
        if not talk.sum.step:
            return
        awaited = sorted(talk.sum.awaited)
        lost = self.random.choice((0, 0, 0, 1, 2))
        for name in self.random.sample(awaited, max(0, len(awaited) - lost)):
            reply = self.tell(name, talk.sum.request(name), talk.campaign)
            self.take(talk, name, reply)
        if self.random.random() < 0.85:
            talk.sum.advance()
            if not talk.sum.step:
                self.outcomes["sum"] += 1

    def take(self, talk: Talk, name: str, reply: vote_pb2.Reply | None) -> None:
        if reply is None or reply.WhichOneof("body") != ANSWERS.get(talk.sum.step):
            return
        talk.replies[name, talk.sum.step] = reply
        with suppress(ProtocolError):
            talk.sum.take(
                next(each for each in self.members(talk.campaign) if each.name == name), reply
            )

    def event(self) -> None:
        """Something happens at a party, or the server ends a campaign."""
        pick, name = self.random, self.random.choice(self.names)
        match pick.randrange(6):
            case 0 | 1:
                self.start(name)
            case 2:
                self.data[name] += 1
                self.start(name)
            case 3:
                self.training[name] += 1
                (self.root / name / "votes.db").unlink(missing_ok=True)
                self.start(name)
            case 4:
                campaign = pick.choice(self.campaigns)[1]
                finish = vote_pb2.Finish(queries_asked=0, delta=campaign.delta)
                self.tell(name, vote_pb2.PartyRequest(finish=finish), campaign)
            case _:
                who, body = pick.choice(self.bodies)
                self.send(who, body)

    def lie(self, talk: Talk) -> None:
        """Send a request that an honest server would not send."""
        pick = self.random
        name, campaign = pick.choice(self.names), talk.campaign
        other = pick.choice(self.talks)
        request, key = vote_pb2.PartyRequest(), SERVER_KEY
        if talk.sum.step and talk.sum.awaited:
            request.CopyFrom(talk.sum.request(pick.choice(sorted(talk.sum.awaited))))
        else:
            request.CopyFrom(
                pick.choice((ask(talk.batch), describe(), keys_of(talk, self.batch(talk.kind))))
            )
        match pick.randrange(9):
            case 0:
                pass  # what another party is to get
            case 1 | 2:
                campaign = self.altered(campaign)
            case 3:
                key = STRANGER
            case 4:
                what = request.WhichOneof("body") or ""
                if hasattr(getattr(request, what), "attempt"):
                    getattr(request, what).attempt = other.sum.attempt
            case 5:
                request = self.list_of(talk, other)
                for each in pick.sample(self.names, pick.randrange(len(self.names))):
                    self.take(talk, each, self.tell(each, request, campaign))
            case 6:
                self.mixed(request, talk, other)
            case 7:
                request = keys_of(talk, self.batch(talk.kind))
            case _:
                request, campaign = (
                    ask(self.batch(other.kind)),
                    pick.choice((campaign, other.campaign)),
                )
        reply = self.tell(name, request, campaign, key)
        if talk.sum.step and name in talk.sum.awaited and campaign is talk.campaign:
            self.take(talk, name, reply)

    def list_of(self, talk: Talk, other: Talk) -> vote_pb2.PartyRequest:
        """Return a request to sign or unmask a list of the server's own choice."""
        pick, request = self.random, vote_pb2.PartyRequest()
        some = pick.sample(self.names, pick.randint(2, len(self.names)))
        signed = {
            who: each.replies[who, what].consent.signature
            for each in (talk, other)
            for what in ("ask_consent", "ask_consent_ahead")
            for who in some
            if (who, what) in each.replies and pick.random() < 0.8
        }
        ahead_ = {
            name: talk.replies[name, "ask_masked_ahead"].masked_ahead.signature
            for name in some
            if (name, "ask_masked_ahead") in talk.replies
        }
        match pick.randrange(4):
            case 0:
                request.ask_consent.attempt = talk.sum.attempt
                request.ask_consent.survivors = bits_from_names(
                    [each for each in self.names if each in some], self.names
                )
            case 1:
                request.ask_opening.attempt = talk.sum.attempt
                request.ask_opening.signatures.extend(masked.signatures_to_wire(signed))
            case 2:
                request.ask_consent_ahead.attempt = talk.sum.attempt
                request.ask_consent_ahead.masked.extend(masked.signatures_to_wire(ahead_))
            case _:
                request.ask_opening_ahead.attempt = talk.sum.attempt
                request.ask_opening_ahead.masked.extend(masked.signatures_to_wire(ahead_))
                request.ask_opening_ahead.consents.extend(masked.signatures_to_wire(signed))
        return request

    def mixed(self, request: vote_pb2.PartyRequest, talk: Talk, other: Talk) -> None:
        """Put keys, boxes, bundles or a batch of another sum into a request, or leave some out."""
        pick, what = self.random, request.WhichOneof("body") or ""
        theirs = vote_pb2.PartyRequest()
        if other.sum.step == what and other.sum.awaited:
            theirs.CopyFrom(other.sum.request(pick.choice(sorted(other.sum.awaited))))
        for field_ in ("keys", "boxes", "bundles", "signatures", "masked", "consents"):
            mine = getattr(getattr(request, what), field_, None)
            if not mine:
                continue
            own, more = list(mine), list(getattr(getattr(theirs, what), field_, []))
            by = {
                each.party: each for each in pick.sample(own, max(0, len(own) - pick.randrange(2)))
            }
            by |= {
                each.party: each for each in pick.sample(more, min(len(more), pick.randrange(3)))
            }
            del mine[:]
            mine.extend(by[name] for name in sorted(by))
        if hasattr(getattr(request, what), "batch"):
            part = getattr(request, what).batch
            if pick.random() < 0.5:
                part.rows.append(part.rows[0])
            else:
                part.digest = other.batch.digest

    # --- what came of it -------------------------------------------------------------------------

    def released(self) -> list[tuple[frozenset[str], list[Masked]]]:
        """Return the sums that can be unmasked: the honest parties in each, and what they masked."""
        helpers = len(self.accomplices)
        honest = {key: each for key, each in self.left.items() if each.name not in self.accomplices}
        own = {
            key: len(self.seeds[key] - self.accomplices) + helpers >= self.least for key in honest
        }

        def known(key: bytes) -> bool:
            return len(self.keys[key] - self.accomplices) + helpers >= self.least

        group = {key: {key} for key in honest}
        blocked = set()
        for key, each in honest.items():
            for peer, theirs in each.peers.items():
                if peer in self.accomplices or known(key) or known(theirs):
                    continue
                them = honest.get(theirs)
                if them is None or them.about != each.about or them.peers.get(each.name) != key:
                    blocked.add(key)  # nothing takes off this mask
                    continue
                joined = group[key] | group[theirs]
                for member in joined:
                    group[member] = joined
        sums = {frozenset(each) for each in group.values()}
        found = []
        for keys in sums:
            if all(own[key] for key in keys) and not keys & blocked:
                members = [honest[key] for key in sorted(keys)]
                found.append((frozenset(each.name for each in members), members))
        return found

    def check(self) -> None:
        """Check what the ledgers say against what left, and what the server can work out."""
        sums = self.released()
        kinds = {message.id.hex(): kind for kind, message in self.campaigns}
        for names, members in sums:
            assert len(names) >= self.least - self.colluders, f"a sum of {sorted(names)}"
            assert len({(each.campaign, each.batch) for each in members}) == 1
        self.check_rank(sums, kinds)
        self.check_units(kinds)
        self.check_noise(kinds)
        for name in self.names:
            ledger = PartyLedger(self.root / name / LEDGER_FILE, read_only=True)
            ledger.verify()
            gone: dict[str, set[bytes]] = defaultdict(set)
            for each in self.left.values():
                if each.name == name:
                    gone[each.campaign].add(each.batch)
            for who, campaign, batch in self.plain:
                if who == name:
                    gone[campaign].add(batch)
            for campaign, batches in gone.items():
                record = ledger.find(campaign)
                assert record is not None
                assert {each.hex() for each in batches} <= record.batches.keys()
                most = sum(len(self.rows[each]) for each in batches)
                assert record.asked >= most
                if kinds[campaign] != "rounds":
                    assert record.queries >= len(
                        {row for each in batches for row in self.rows[each]}
                    )

    def check_rank(
        self, sums: list[tuple[frozenset[str], list[Masked]]], kinds: dict[str, str]
    ) -> None:
        """Check that no combination of exact sums holds votes, or a change of votes, of one party only."""
        for kind in ("exact", "records"):
            for query in range(QUERIES):
                rows = [
                    {
                        (
                            each.name,
                            tuple(each.values[self.rows[each.batch].index(query)].tolist()),
                        ): 1
                        for each in members
                    }
                    for _, members in sums
                    if kinds[members[0].campaign] == kind and query in self.rows[members[0].batch]
                ]
                assert not alone(rows, colluder=""), (
                    f"votes on {query} of {alone(rows, colluder='')}"
                )

    def check_units(self, kinds: dict[str, str]) -> None:
        """Check that no record votes more often than it is charged for."""
        batches: dict[tuple[str, str], set[bytes]] = defaultdict(set)
        for each in self.left.values():
            batches[each.name, each.campaign].add(each.batch)
        voted: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
        for (name, campaign), these in batches.items():
            kind = kinds[campaign]
            if kind in ("records", "series", "rounds"):
                rounds = Counter(self.rounds[each] for each in these)
                assert max(rounds.values()) == 1, f"records of {name} voted twice in a round"
                assert max(rounds) <= ROUNDS
            if kind == "series" and not self.data[name]:
                voted[name].update((0, row) for row in self.secrets.cast[name, campaign])
        for name, counts in voted.items():
            assert max(counts.values(), default=0) <= 1, (
                f"a record of {name} voted twice in a series"
            )

    def check_noise(self, kinds: dict[str, str]) -> None:
        """Check that the same votes have the same noise whenever they leave."""
        seen: dict[tuple[str, str, bytes], Counts] = {}
        for each in self.left.values():
            first = seen.setdefault((each.name, each.campaign, each.batch), each.values)
            if kinds[each.campaign] in ("noisy", "series", "rounds"):
                assert np.array_equal(first, each.values), f"two noise shares of {each.name}"


def campaign_terms(campaign: CampaignMessage) -> Any:
    return campaign.copy().terms


def ask(batch: Batch) -> vote_pb2.PartyRequest:
    request = vote_pb2.PartyRequest()
    request.ask.batch.CopyFrom(on_wire(batch))
    return request


def keys_of(talk: Talk, batch: Batch) -> vote_pb2.PartyRequest:
    request = vote_pb2.PartyRequest()
    request.ask_keys.attempt = talk.sum.attempt
    request.ask_keys.batch.CopyFrom(on_wire(batch))
    return request


def on_wire(batch: Batch) -> vote_pb2.Batch:
    return vote_pb2.Batch(
        rows=batch.rows, digest=batch.digest, round=batch.round, shown=batch.shown
    )
