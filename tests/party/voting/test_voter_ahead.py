"""Whole parties and a server whose keys come ahead: no network, no memory between the steps.

Each party is started anew for every request, as `pate-party answer` is; the server's state is stored and
read after every answer. The server may lie; what comes of it is asked of the real code.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.exchange.aggregation import ANSWERS, Batch, MaskedAggregation
from aggregator_server.exchange.ahead import AheadAggregation, bundle_roster
from party.backup import back_up, restore
from party.identity.keys import identity_key
from party.ledger.ledger import LEDGER_FILE
from party.voting.voter import Voter
from party.voting.voters import ReadyVoters
from pate.campaign.roster import RosterParty
from pate.data.values import batch_hash
from pate.errors import ProtocolError, QuorumError, StateError
from pate.masking.ahead import store
from pate.mechanisms import DistributedGNMax, GNMax
from pate.noise.exact import SystemNoise
from pate.votes import Counts
from protos import ahead, wire
from protos.masked import bits_from_names
from protos.pate.v1 import vote_pb2
from tests.party.voting.test_lying_server import CLASSES, PUBLIC
from tests.support.campaign_messages import (
    SERVER_KEY,
    CampaignMessage,
    campaign_message,
    site,
    terms_message,
)
from tests.support.world.in_process import Unanimous, killed_at

NAMES = ("a", "b", "c", "d", "e")
HASHES = PUBLIC.row_hashes()
WHOLE = Batch(tuple(range(6)), batch_hash(HASHES))
PART = Batch((0, 1, 2), batch_hash(HASHES[:3]))
#: Failpoints of these steps, at which a party is killed below.
FAILPOINTS = frozenset({"bundles-kept", "round-begun", "masked-kept", "list-signed", "list-kept"})


@dataclass
class Post:
    """Five parties that get requests one by one, and a server that may send them any."""

    root: Path
    threshold: int = 4
    noisy: bool = True
    said: list[str] = field(default_factory=list)
    #: What a party answered to the very bytes of a request.
    answers: dict[tuple[str, bytes], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = {
            name: identity_key(self.root / name).public_key().public_bytes_raw() for name in NAMES
        }
        self.roster = [
            RosterParty(name, keys[name].hex(), at + 1, "record") for at, name in enumerate(NAMES)
        ]
        self.campaign = self.terms()
        joining = self.campaign.copy()
        joining.terms = None
        described = {
            name: self.tell(name, vote_pb2.PartyRequest(describe=vote_pb2.Describe()), joining)
            for name in NAMES
        }
        self.sealing = {keys[name]: reply.description.sealing for name, reply in described.items()}
        self.sealed = bundle_roster(self.campaign.offer(), self.sealing, keys)
        # Before the terms: with the description, a party can send bundles in the same envelope.
        asked = vote_pb2.PartyRequest(ask_bundles=ahead.roster_to_wire(self.sealed, 0, 4))
        self.bundles = {name: self.tell(name, asked, joining).bundles for name in NAMES}
        for each in self.bundles.values():
            ahead.check_bundles(each, asked.ask_bundles)

    def at(self, root: Path) -> Post:
        """The same parties, in copies of their homes: keys and bundles are dear to make."""
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        made = copy.copy(self)
        made.root, made.said, made.answers = root, [], {}
        made.bundles = copy.deepcopy(self.bundles)
        return made

    def terms(self, **changes: Any) -> CampaignMessage:
        members = [(each.name, bytes.fromhex(each.identity), each.teachers) for each in self.roster]
        mechanism = (
            DistributedGNMax(Fraction(80), self.threshold - 1, 1)
            if self.noisy
            else GNMax(Fraction(40), 1)
        )
        fields = {
            "classes": CLASSES, "aggregation": "masked", "min_parties": self.threshold, "colluders": 1,
            "noise": "distributed" if self.noisy else "central", **changes,
        }  # fmt: skip
        return campaign_message(PUBLIC, terms_message(members, (mechanism,)), **fields)

    def voter(self, name: str) -> Voter:
        """A party as its command starts it: all that it knows is on disk."""
        at = NAMES.index(name)
        return Voter(
            name=name,
            identity=identity_key(self.root / name),
            voters=ReadyVoters(Unanimous(at + 1, CLASSES[at % 2])),
            home=self.root / name,
            site=site(self.root / name),
            noise=SystemNoise(),
            public=PUBLIC,
            say=self.said.append,
        )

    def envelope(
        self, request: vote_pb2.PartyRequest, campaign: CampaignMessage | None = None,
        key: Ed25519PrivateKey = SERVER_KEY,
    ) -> bytes:  # fmt: skip
        asked = vote_pb2.PartyRequest()
        asked.CopyFrom(request)
        asked.version, asked.nonce = wire.VERSION, b"n" * 16
        asked.campaign = (campaign or self.campaign).packed()
        return wire.sign_request(asked, key)

    def tell(
        self, name: str, request: vote_pb2.PartyRequest, campaign: CampaignMessage | None = None,
        key: Ed25519PrivateKey = SERVER_KEY,
    ) -> vote_pb2.Reply:  # fmt: skip
        """A party's answer; to the same bytes it never gives others."""
        body = self.envelope(request, campaign, key)
        answer = self.voter(name).handle(body)
        about = (campaign or self.campaign).id
        reply = wire.read_reply(answer, campaign=about, nonce=b"n" * 16)[1]
        if reply.WhichOneof("body") != "refusal":
            assert self.answers.setdefault((name, body), answer) == answer
        return reply

    def refuses(
        self, name: str, request: vote_pb2.PartyRequest, words: str,
        campaign: CampaignMessage | None = None,
    ) -> None:  # fmt: skip
        reply = self.tell(name, request, campaign)
        assert reply.WhichOneof("body") == "refusal", reply.WhichOneof("body")
        assert words in self.said[-1], self.said[-1]

    def begin(
        self, number: int = 0, names: Sequence[str] = NAMES, batch: Batch = WHOLE,
        campaign: CampaignMessage | None = None, **others: int,
    ) -> AheadAggregation:  # fmt: skip
        """A round of the bundles of a number, or for some parties of another."""
        bundles = {name: self.bundles[name].bundles[others.get(name, number)] for name in names}
        return AheadAggregation.begin(
            (campaign or self.campaign).offer(),
            self.roster,
            batch,
            sealed=self.sealed,
            bundles=bundles,
        )

    def step(self, server: AheadAggregation, names: Sequence[str]) -> AheadAggregation:
        """Take some parties through a step; the server is killed after every answer."""
        for name in names:
            reply = self.tell(name, server.request(name))
            assert reply.WhichOneof("body") == ANSWERS[server.step], self.said[-1]
            server.take(next(each for each in self.roster if each.name == name), reply)
            server = self.again(server)
        server.advance()
        return self.again(server)

    def again(self, server: AheadAggregation) -> AheadAggregation:
        """The server after a kill: it sends the same."""
        read = AheadAggregation.restore(self.campaign.offer(), self.roster, server.to_bytes())
        assert read.step == server.step
        for name in server.awaited:
            assert read.request(name) == server.request(name)
        return read

    def opened(self) -> dict[str, list[tuple[str, ...]]]:
        """The lists with which each party unmasked, in its own ledger."""
        return {
            name: [
                batch.survivors
                for campaign in self.voter(name)._site.ledger.campaigns()
                for batch in campaign.batches.values()
                if batch.survivors is not None
            ]
            for name in NAMES
        }


@pytest.fixture(scope="module")
def posts(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Post]:
    """With noise, and without."""
    return {noisy: Post(tmp_path_factory.mktemp("posts"), noisy=noisy) for noisy in (True, False)}


@pytest.fixture
def post(posts: dict[bool, Post], tmp_path: Path) -> Post:
    return posts[True].at(tmp_path)


@pytest.fixture
def exact(posts: dict[bool, Post], tmp_path: Path) -> Post:
    return posts[False].at(tmp_path)


def votes_of(names: Sequence[str]) -> Counts:
    counts = np.zeros((6, 2), dtype=np.int64)
    for name in names:
        at = NAMES.index(name)
        counts[:, at % 2] += at + 1
    return counts


def test_five_parties_by_envelope_one_lost_in_each_step(post: Post) -> None:
    """With noise and four of five, no consent is taken: two envelopes a party."""
    server = post.begin()
    server = post.step(server, ("a", "b", "d", "e"))
    assert server.step == "ask_opening_ahead"
    server = post.step(server, ("a", "b", "d", "e"))
    found = server.result()
    assert found.responders == ("a", "b", "d", "e")
    error = found.total.counts - votes_of(found.responders)
    # The noise has a standard deviation of some 80: not none, and not a mask's.
    assert 0 < np.abs(error).max() < 2_000
    late = next(each for each in post.roster if each.name == "c")
    with pytest.raises(ProtocolError, match="list is fixed"):
        server.take(late, post.tell("c", post.begin(1).request("c")))
    for name, lists in post.opened().items():
        assert lists == ([] if name == "c" else [("a", "b", "d", "e")])
        assert post.voter(name)._site.ledger.verify()


def test_a_later_batch_has_the_same_parties(exact: Post) -> None:
    """Whose ledgers unmask no other list in the campaign; so none of them may be missing."""
    post = exact
    four, rest = ("a", "b", "d", "e"), Batch((3, 4, 5), batch_hash(HASHES[3:]))
    server = post.begin(batch=PART)
    while server.step:
        server = post.step(server, four)
    other = post.begin(1, batch=rest)
    other = post.step(post.step(other, NAMES), NAMES)
    post.refuses("a", other.request("a"), "unmasked with other parties")
    bundles = {name: post.bundles[name].bundles[2] for name in four}
    again = AheadAggregation.begin(
        post.campaign.offer(),
        post.roster,
        rest,
        sealed=post.sealed,
        bundles=bundles,
        all_needed=True,
    )
    assert again.needed == four
    with pytest.raises(QuorumError, match="no votes from e"):
        post.step(again, four[:3])
    again = post.again(again)
    # It had no answer of e, and its list is still open.
    while again.step:
        again = post.step(again, four)
    assert again.needed == ()
    np.testing.assert_array_equal(again.result().total.counts, votes_of(four)[3:])


def test_exact_sums_take_consent(exact: Post) -> None:
    server = exact.step(exact.begin(), NAMES)
    assert server.step == "ask_consent_ahead"
    server = exact.step(server, ("a", "b", "c", "e"))
    server = exact.step(server, ("a", "b", "c", "d"))
    assert server.result().responders == NAMES
    np.testing.assert_array_equal(server.result().total.counts, votes_of(NAMES))


def test_a_late_answer_is_refused_for_good(post: Post) -> None:
    server = post.begin()
    answer = post.tell("c", server.request("c"))
    server = post.step(server, ("a", "b", "d", "e"))
    late = next(each for each in post.roster if each.name == "c")
    with pytest.raises(ProtocolError, match="list is fixed"):
        server.take(late, answer)
    assert server.survivors == ("a", "b", "d", "e")


def test_the_server_reads_its_state_in_the_same_campaign_only(post: Post) -> None:
    raw = post.begin().to_bytes()
    with pytest.raises(StateError, match="another round"):
        AheadAggregation.restore(post.terms(epsilon=0.5).offer(), post.roster, raw)
    with pytest.raises(StateError, match="damaged"):
        AheadAggregation.restore(post.campaign.offer(), post.roster, raw[:-1])


def test_the_list_is_stored_before_any_party_is_sent_it(post: Post) -> None:
    """If it cannot be, no request with it exists."""
    server = post.begin()
    raw = server.to_bytes()

    def full(_: bytes) -> None:
        raise OSError("the disk is full")

    for name in NAMES:
        reply = post.tell(name, server.request(name))
        server.take(next(each for each in post.roster if each.name == name), reply)
        raw = server.to_bytes()
    server = AheadAggregation.restore(post.campaign.offer(), post.roster, raw, save=full)
    with pytest.raises(OSError, match="full"):
        server.advance()
    assert server.step == "ask_masked_ahead"


# --- kills ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "step"),
    [
        ("bundles-kept", "ask_bundles"),
        ("round-begun", "ask_masked_ahead"),
        ("votes-cached", "ask_masked_ahead"),
        ("noise-share-kept", "ask_masked_ahead"),
        ("answer-recorded", "ask_masked_ahead"),
        ("masked-kept", "ask_masked_ahead"),
        ("list-signed", "ask_consent_ahead"),
        ("list-kept", "ask_opening_ahead"),
        ("opening-recorded", "ask_opening_ahead"),
        ("party-entry-written", "ask_masked_ahead"),
        ("party-entry-written", "ask_opening_ahead"),
    ],
)
def test_a_party_killed_anywhere_takes_part_all_the_same(
    posts: dict[bool, Post], tmp_path: Path, point: str, step: str
) -> None:
    """Killed for real, in a process of its own; then asked the same."""
    post = posts[step != "ask_consent_ahead"].at(tmp_path)

    def killed(request: vote_pb2.PartyRequest) -> None:
        body = post.envelope(request)
        assert killed_at(point, lambda: post.voter("a").handle(body))

    if step == "ask_bundles":
        asked = vote_pb2.PartyRequest(ask_bundles=ahead.roster_to_wire(post.sealed, 2, 4))
        killed(asked)
        made = post.tell("a", asked).bundles
        assert made.bundles[:2] == post.bundles["a"].bundles[2:]
        return
    server = post.begin()
    while server.step:
        if server.step == step:
            killed(server.request("a"))
        server = post.step(server, NAMES)
    assert server.result().responders == NAMES
    assert post.opened() == {name: [NAMES] for name in NAMES}
    record = post.voter("a")._site.ledger.campaigns()[-1]
    assert (record.queries, len(record.batches)) == (6, 1)


# --- a server that lies -----------------------------------------------------------------------


def test_one_bundle_for_two_rounds(post: Post) -> None:
    post.step(post.begin(), NAMES)
    for server in (post.begin(), post.begin(batch=PART), post.begin(names=NAMES[:4])):
        post.refuses("a", server.request("a"), "used once")
    # Its own one is new, another's is not: for the shares of that one.
    post.refuses("a", post.begin(1, b=0).request("a"), "bundle 0 of b was in another round")
    other = post.terms(id=b"another campaign")
    post.refuses("a", post.begin(campaign=other).request("a"), "used once", other)


def test_two_lists(post: Post) -> None:
    server = post.step(post.begin(), NAMES)
    whole = server.request("a")
    assert post.tell("a", whole).WhichOneof("body") == "opening"
    for left_out in "bcde":
        less = vote_pb2.PartyRequest()
        less.CopyFrom(whole)
        del less.ask_opening_ahead.masked[:]
        less.ask_opening_ahead.masked.extend(
            each for each in whole.ask_opening_ahead.masked if each.party != left_out
        )
        post.refuses("a", less, "another list of survivors")
    assert post.tell("a", whole).WhichOneof("body") == "opening"
    assert post.opened()["a"] == [NAMES]


def test_other_parties_or_bundles_for_each_party(post: Post) -> None:
    """Two forks of one round: signatures of one are on no list of the other."""
    one, two = post.begin(), post.begin(1)
    forks = {"a": one, "b": one, "c": one, "d": two, "e": two}
    said = {name: post.tell(name, server.request(name)) for name, server in forks.items()}
    for server in (one, two):
        for name, reply in said.items():
            party = next(each for each in post.roster if each.name == name)
            if forks[name] is server:
                server.take(party, reply)
            else:
                with pytest.raises(ProtocolError, match="did not sign"):
                    server.take(party, reply)
        with pytest.raises(QuorumError):
            server.advance()
    lie = vote_pb2.PartyRequest()
    lie.ask_opening_ahead.attempt = one.attempt
    lie.ask_opening_ahead.masked.extend(
        vote_pb2.PeerSignature(party=name, signature=reply.masked_ahead.signature)
        for name, reply in said.items()
    )
    post.refuses("a", lie, "d did not sign")
    assert post.opened() == {name: [] for name in NAMES}


def changed(raw: bytes) -> bytes:
    return bytes([raw[0] ^ 1]) + raw[1:]


FORGED: Mapping[str, tuple[Callable[[vote_pb2.AskMaskedAhead], object], str]] = {
    "a mask key": (
        lambda asked: setattr(asked.bundles[1].keys, "mask_key", changed(asked.bundles[1].keys.mask_key)),
        "not signed",
    ),
    "a box": (lambda asked: setattr(asked.bundles[1], "box", changed(asked.bundles[1].box)), "not open"),
    "no box": (lambda asked: setattr(asked.bundles[1], "box", b""), "0 bytes"),
    "another's box": (lambda asked: setattr(asked.bundles[1], "box", asked.bundles[2].box), "not open"),
    "another's bundle": (
        lambda asked: asked.bundles[1].keys.CopyFrom(asked.bundles[2].keys), "not signed",
    ),
    "another number": (lambda asked: setattr(asked.bundles[1], "number", 9), "not signed"),
    "another roster": (lambda asked: setattr(asked, "roster", bytes(32)), "has none for: it made none"),
    "the recipient missing": (lambda asked: asked.bundles.__delitem__(0), "without its bundle"),
    "too few": (lambda asked: asked.bundles.__delitem__(slice(2, 5)), "4 are needed"),
    "out of order": (lambda asked: asked.bundles.reverse(), "not sorted"),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
def test_forged_rounds(post: Post, what: str) -> None:
    change, says = FORGED[what]
    request = post.begin().request("a")
    change(request.ask_masked_ahead)
    if what == "out of order":  # not a request that a party reads
        with pytest.raises(ProtocolError, match=says):
            post.tell("a", request)
    else:
        post.refuses("a", request, says)
    # Nothing was spent.
    assert post.tell("a", post.begin().request("a")).WhichOneof("body") == "masked_ahead"


def test_bundles_for_another_roster(post: Post) -> None:
    """A server that puts its own key in a party's place has no signature of it."""
    asked = ahead.roster_to_wire(post.sealed, 9, 1)
    asked.roster[1].sealing.key = asked.roster[0].sealing.key
    post.refuses("a", vote_pb2.PartyRequest(ask_bundles=asked), "not signed by its identity")


def test_a_server_takes_no_room_of_another(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is counted by the key that signed the request: the first server asked for four."""
    monkeypatch.setattr(store, "MOST_OF_KEY", 6)
    asked = vote_pb2.PartyRequest(ask_bundles=ahead.roster_to_wire(post.sealed, 4, 4))
    later = vote_pb2.PartyRequest(ask_bundles=ahead.roster_to_wire(post.sealed, 8, 4))
    other = Ed25519PrivateKey.generate()
    its = post.campaign.copy(id=b"d" * 16, terms=None)
    post.tell("a", vote_pb2.PartyRequest(describe=vote_pb2.Describe()), its, other)
    assert len(post.tell("a", asked, its, other).bundles.bundles) == 4, post.said[-1]
    post.refuses("a", later, "4 bundles for campaigns of this key wait")


def test_a_campaign_that_has_ended_gets_no_more_bundles(post: Post) -> None:
    """Else one campaign could end, have its bundles dropped, and ask for others, without end."""
    end = vote_pb2.Finish(epsilon_cap=post.campaign.epsilon, delta=post.campaign.delta)
    post.tell("a", vote_pb2.PartyRequest(finish=end))
    asked = vote_pb2.PartyRequest(ask_bundles=ahead.roster_to_wire(post.sealed, 4, 4))
    post.refuses("a", asked, "has ended: no more keys ahead")


def test_a_step_before_its_time_or_for_another_party(post: Post) -> None:
    server = post.begin()
    opening = vote_pb2.PartyRequest()
    opening.ask_opening_ahead.attempt = server.attempt
    post.refuses("a", opening, "not begun here")
    post.refuses("a", server.request("b"), "bytes")
    consent = vote_pb2.PartyRequest()
    server = post.step(server, NAMES)
    consent.ask_consent_ahead.attempt = server.attempt
    consent.ask_consent_ahead.masked.extend(server.request("a").ask_opening_ahead.masked)
    post.refuses("a", consent, "without consent")


def test_other_terms_for_the_list(post: Post) -> None:
    """Another order of classes, of the same campaign: another round, which nobody masked in."""
    server = post.step(post.begin(), NAMES)
    other = post.terms(classes=CLASSES[::-1])
    post.refuses("a", server.request("a"), "before this party has masked", other)
    assert post.opened()["a"] == []


def test_a_batch_is_unmasked_in_one_round(post: Post) -> None:
    """Another round of it, or of a part of it, masks the same votes, and is not unmasked."""
    first = post.step(post.begin(), NAMES)
    others = [post.step(post.begin(1), NAMES), post.step(post.begin(2, batch=PART), NAMES)]
    post.step(first, NAMES)
    for server, says in zip(others, ("in another round", "unmasked in batch"), strict=True):
        for name in NAMES:
            post.refuses(name, server.request(name), says)
    assert post.opened() == {name: [NAMES] for name in NAMES}


def test_a_campaign_by_bundles_is_not_summed_online(post: Post) -> None:
    online = MaskedAggregation(post.campaign.offer(), post.roster, WHOLE)
    asked = online.request("a")
    assert post.tell("a", asked).WhichOneof("body") == "keys"
    post.tell("a", post.begin().request("a"))
    for step in ("ask_keys", "ask_shares", "ask_masked", "ask_consent", "ask_opening"):
        asked = vote_pb2.PartyRequest()
        getattr(asked, step).attempt = online.attempt
        if step == "ask_keys":
            asked = online.request("a")
        elif step == "ask_shares":
            asked.ask_shares.announced = bits_from_names(NAMES, NAMES)
        elif step == "ask_consent":
            asked.ask_consent.survivors = bits_from_names(NAMES, NAMES)
        post.refuses("a", asked, "masked with bundles")


def test_a_campaign_summed_online_is_not_summed_by_bundles(post: Post) -> None:
    """Once votes left: what its ledger has of them is of no round."""
    voters = {name: post.voter(name) for name in NAMES}
    online = MaskedAggregation(post.campaign.offer(), post.roster, WHOLE)
    for _ in range(3):
        for party in post.roster:
            body = voters[party.name].handle(post.envelope(online.request(party.name)))
            reply = wire.read_reply(body, campaign=post.campaign.id, nonce=b"n" * 16)[1]
            online.take(party, reply)
        online.advance()
    post.refuses("a", post.begin().request("a"), "by the steps online")


def test_a_restored_home_uses_no_bundle_again(post: Post, tmp_path: Path) -> None:
    """The copy has no bundles: what was masked with them stays unmasked, and they stay used."""
    server = post.step(post.begin(), NAMES)
    home, copy = post.root / "a", tmp_path / "copy"
    back_up(home, copy)
    head = post.voter("a")._site.ledger.head
    for file in (LEDGER_FILE, "ledger.head", "noise.db", "votes.db", "bundles.db"):
        for each in home.glob(f"{file}*"):
            each.unlink()
    restore(copy, home, head=head)
    assert not (home / "bundles.db").exists()
    post.refuses("a", server.request("a"), "not begun here")
    post.refuses("a", post.begin(1).request("a"), "whose bundles are lost")
    server = post.step(server, NAMES[1:])
    assert server.result().responders == NAMES


def test_bundles_put_back_without_the_ledger_mask_in_no_second_round(
    post: Post, tmp_path: Path
) -> None:
    """The copy of their file has all secrets of a bundle that masked since; the ledger has its round."""
    home, copy = post.root / "a", tmp_path / "copy"
    copy.mkdir()
    for each in home.glob("bundles.db*"):
        shutil.copy(each, copy)
    post.step(post.begin(), NAMES)
    for each in home.glob("bundles.db*"):
        each.unlink()
    for each in copy.iterdir():
        shutil.copy(each, home)
    other = post.terms(id=b"another campaign")
    post.refuses(
        "a",
        post.begin(campaign=other).request("a"),
        "masked in another round, by our ledger",
        other,
    )
    unused = post.tell("a", post.begin(1, campaign=other).request("a"), other)
    assert unused.WhichOneof("body") == "masked_ahead"
    listed = post.voter("a")._site.ledger.bundles()
    assert [(each.number, bool(each.round)) for each in listed] == [
        (0, True), (1, True), (2, False), (3, False)
    ]  # fmt: skip


def test_a_bundle_of_a_number_that_left_is_not_made_anew(post: Post) -> None:
    """Bundles are lost, the ledger is not: whoever has the first one is given no second one."""
    for each in (post.root / "a").glob("bundles.db*"):
        each.unlink()
    asked = ahead.roster_to_wire(post.sealed, 3, 1)
    post.refuses("a", vote_pb2.PartyRequest(ask_bundles=asked), "no other one takes its number")
    asked.first = 4
    reply = post.tell("a", vote_pb2.PartyRequest(ask_bundles=asked))
    ahead.check_bundles(reply.bundles, asked)


def test_a_ledger_put_back_without_the_bundles_masks_with_none_of_them(
    post: Post, tmp_path: Path
) -> None:
    home = post.root / "a"
    early = tmp_path / "early"
    shutil.copytree(home, early)
    asked = ahead.roster_to_wire(post.sealed, 4, 1)
    found = post.tell("a", vote_pb2.PartyRequest(ask_bundles=asked)).bundles
    for each in (LEDGER_FILE, "ledger.head"):
        for file in home.glob(f"{each}*"):
            file.unlink()
        for file in early.glob(f"{each}*"):
            shutil.copy(file, home)
    post.bundles["a"].bundles.extend(found.bundles)
    post.refuses("a", post.begin(0, a=4).request("a"), "older than the bundles")
