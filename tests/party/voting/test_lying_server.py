"""A malicious server against real parties: each lie is refused, and reveals nothing.

The server here has the campaign's key and every reply; it is the one that parties must not trust.
What it may learn is a sum over ``threshold`` parties or more, once. Everything it collects on the
way to a lie is handed to the real opening code, and the tests check that no sum comes of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.exchange.aggregation import ANSWERS, Batch, MaskedAggregation
from party.backup import back_up, restore
from party.identity.keys import identity_key
from party.ledger.ledger import PartyLedger
from party.policy.policy import Policy
from party.voting.casting import NoiseShares
from party.voting.voter import Voter
from party.voting.voters import ReadyVoters
from pate.campaign.roster import RosterParty
from pate.codes import Code
from pate.data.values import Images, Inputs, batch_hash
from pate.errors import LedgerError, ProtocolError, QuorumError
from pate.mechanisms import DistributedGNMax
from pate.noise.exact import SystemNoise
from pate.votes import Counts
from protos import wire
from protos.bounds import MAX_REQUEST
from protos.masked import bits_from_names
from protos.pate.v1 import vote_pb2
from tests.support.campaign_messages import (
    CAMPAIGN_ID,
    SERVER_KEY,
    CampaignMessage,
    campaign_message,
    site,
    terms_message,
)
from tests.support.party.asked import Asked, ask, describe, tell
from tests.support.world.in_process import Unanimous

PUBLIC = Images(np.random.default_rng(4).integers(0, 255, (6, 4, 4, 1), dtype=np.uint8))
HASHES = PUBLIC.row_hashes()
CLASSES = ("x", "y")
NAMES = ("a", "b", "c", "d")
WHOLE = Batch(tuple(range(6)), batch_hash(HASHES))
PART = Batch((0, 1, 2), batch_hash(HASHES[:3]))


class Liar:
    """Four parties, and a server that may send them any request."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said: dict[str, list[str]] = {name: [] for name in NAMES}
        self.voters: dict[str, Voter] = {}
        self.roster = []
        for at, name in enumerate(NAMES):
            self.start(name)
            key = identity_key(root / name).public_key().public_bytes_raw()
            self.roster.append(RosterParty(name, key.hex(), at + 1, "record"))
        self.campaign = self.terms(self.roster)
        joining = self.campaign.copy()
        joining.terms = None
        for name in NAMES:
            assert self.tell(name, describe(), joining).WhichOneof("body") == "description"

    def start(self, name: str, answer: str | None = None, policy: Policy | None = None) -> None:
        """Start or restart a party; its memory is lost. With an answer, it is retrained."""
        at = NAMES.index(name)
        one = Unanimous(
            at + 1, answer or CLASSES[at % 2], fingerprint=(answer or "f").encode() * 32
        )
        self.voters[name] = Asked(
            self.root / name, ReadyVoters(one), name=name, policy=policy, public=PUBLIC,
            said=self.said[name],
        ).voter  # fmt: skip

    def terms(self, roster: Sequence[RosterParty], **changes: object) -> CampaignMessage:
        members = [(party.name, bytes.fromhex(party.identity), party.teachers) for party in roster]
        fields = {
            "classes": CLASSES, "aggregation": "masked", "min_parties": 3, "colluders": 1, **changes
        }  # fmt: skip
        return campaign_message(PUBLIC, terms_message(members), **fields)

    def tell(
        self,
        name: str,
        request: vote_pb2.PartyRequest,
        campaign: CampaignMessage | None = None,
        key: Ed25519PrivateKey = SERVER_KEY,
    ) -> vote_pb2.Reply:
        """Return the reply to a request with a campaign, or with its digest if the request has one."""
        return tell(self.voters[name], request, campaign or self.campaign, key)

    def aggregation(self, batch: Batch = WHOLE) -> MaskedAggregation:
        return MaskedAggregation(self.campaign.offer(), self.roster, batch)

    def step(
        self, aggregation: MaskedAggregation, names: Sequence[str] = NAMES, *, advance: bool = True
    ) -> None:
        """Take some parties honestly through one step."""
        for name in names:
            reply = self.tell(name, aggregation.request(name))
            assert reply.WhichOneof("body") == ANSWERS[aggregation.step], self.said[name][-1]
            aggregation.take(self.party(name), reply)
        if advance:
            aggregation.advance()

    def through(
        self, aggregation: MaskedAggregation, steps: Sequence[Sequence[str]]
    ) -> MaskedAggregation:
        """Take parties through several steps; who is in each is listed."""
        for names in steps:
            self.step(aggregation, names)
        return aggregation

    def refuses(
        self,
        name: str,
        request: vote_pb2.PartyRequest,
        words: str,
        campaign: CampaignMessage | None = None,
        key: Ed25519PrivateKey = SERVER_KEY,
    ) -> None:
        """Check that a party refuses, says why on its own screen, and the server learns no more."""
        reply = self.tell(name, request, campaign, key)
        assert reply.WhichOneof("body") == "refusal", reply.WhichOneof("body")
        assert reply.refusal.kind in ("ProtocolError", "RefusedError", "QuorumError")
        assert words in self.said[name][-1], self.said[name][-1]

    def what_comes(self, aggregation: MaskedAggregation) -> Counts | None:
        """Ask everybody for all that is left of a sum; return it, None if there is none.

        A party that refuses is as one that dropped out: the others' sum may come about without it.
        """
        while aggregation.step:
            for name in sorted(aggregation.awaited):
                reply = self.tell(name, aggregation.request(name))
                if reply.WhichOneof("body") == ANSWERS[aggregation.step]:
                    aggregation.take(self.party(name), reply)
            try:
                aggregation.advance()
            except QuorumError:
                return None
        return aggregation.result().total.counts

    def party(self, name: str) -> RosterParty:
        return next(party for party in self.roster if party.name == name)

    def opened(self) -> dict[str, int]:
        """Number of unmasked sums in each party's own ledger."""
        return {
            name: sum(
                batch.survivors is not None
                for campaign in voter._site.ledger.campaigns()
                for batch in campaign.batches.values()
            )
            for name, voter in self.voters.items()
        }


@pytest.fixture
def liar(tmp_path: Path) -> Liar:
    return Liar(tmp_path)


def test_an_honest_server_learns_the_sum(liar: Liar) -> None:
    found = liar.through(liar.aggregation(), [NAMES] * 5).result()
    np.testing.assert_array_equal(found.total.counts, [[4, 6]] * 6)
    assert liar.opened() == dict.fromkeys(NAMES, 1)


def test_with_a_party_that_drops_out_it_learns_the_others_sum(liar: Liar) -> None:
    rest = ("a", "b", "c")
    found = liar.through(liar.aggregation(), [NAMES, NAMES, rest, rest, rest]).result()
    np.testing.assert_array_equal(found.total.counts, [[4, 2]] * 6)
    assert found.responders == rest


def test_different_queries_to_different_parties(liar: Liar) -> None:
    aggregation, other = liar.aggregation(), liar.aggregation(PART)
    other.attempt = aggregation.attempt
    asked = other.request("a")
    asked.ask_keys.attempt = aggregation.attempt
    reply = liar.tell("a", asked)
    liar.step(aggregation, NAMES[1:])
    # The others get what "a" said of its three queries, and "a" what they said of their six.
    keys = aggregation.request("b")
    keys.ask_shares.keys.insert(0, vote_pb2.PeerKeys(party="a", keys=reply.keys))
    keys.ask_shares.announced = bits_from_names(NAMES, NAMES)
    for name in NAMES:
        liar.refuses(name, keys, "not signed")
    assert liar.opened() == dict.fromkeys(NAMES, 0)


@pytest.mark.parametrize("change", ["stranger", "teachers", "fewer", "threshold", "noise"])
def test_different_rosters_or_terms_to_different_parties(liar: Liar, change: str) -> None:
    roster, fields = list(liar.roster), dict[str, object]()
    if change == "stranger":
        sybil = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
        roster[3] = RosterParty("d", sybil.hex(), 4, "record")
    elif change == "teachers":
        roster[3] = RosterParty("d", roster[3].identity, 1, "record")
    elif change == "fewer":
        roster = roster[:3]
    elif change == "threshold":
        fields["min_parties"] = 4
    else:
        fields["epsilon"] = 0.5
    aggregation, lie = liar.aggregation(), liar.terms(roster, **fields)
    lied = MaskedAggregation(lie.offer(), roster, WHOLE)
    asked = lied.request("a")
    asked.ask_keys.attempt = aggregation.attempt
    if change in ("threshold", "noise"):
        # Said when it joined, so its own ledger knows better.
        liar.refuses("a", asked, "has changed its", lie)
        return
    reply = liar.tell("a", asked, lie)
    assert reply.WhichOneof("body") == "keys", liar.said["a"][-1]
    liar.step(aggregation, NAMES[1:])
    keys = aggregation.request("b")
    keys.ask_shares.keys.insert(0, vote_pb2.PeerKeys(party="a", keys=reply.keys))
    keys.ask_shares.announced = bits_from_names(NAMES, NAMES)
    for name in NAMES[1:]:
        liar.refuses(name, keys, "not signed")
    # What is left is the sum of those that were told the same.
    np.testing.assert_array_equal(liar.what_comes(aggregation), [[3, 6]] * 6)
    # The first roster is final.
    liar.refuses("a", liar.aggregation().request("a"), "has changed its")


def test_a_campaign_signed_by_another_key(liar: Liar) -> None:
    aggregation = liar.through(liar.aggregation(), [NAMES, NAMES])
    stolen = Ed25519PrivateKey.generate()
    liar.refuses("a", liar.aggregation().request("a"), "has changed its key", key=stolen)
    for step in ("ask_masked", "ask_consent", "ask_opening"):
        request = aggregation.request("a")
        if step != "ask_masked":
            request = vote_pb2.PartyRequest()
            getattr(request, step).attempt = aggregation.attempt
            if step == "ask_consent":
                request.ask_consent.survivors = bits_from_names(NAMES, NAMES)
        if step == "ask_masked":
            liar.refuses("a", request, "has changed its key", key=stolen)
        else:
            liar.refuses("a", request, "signed by another key", key=stolen)


def test_a_replayed_message_gets_the_same_bytes_and_no_more(liar: Liar) -> None:
    aggregation = liar.aggregation()
    while aggregation.step:
        replies = [liar.tell("a", aggregation.request("a")) for _ in range(2)]
        for reply in replies:
            reply.nonce = b""
        assert replies[0] == replies[1]
        liar.step(aggregation)
    assert liar.opened() == dict.fromkeys(NAMES, 1)


def test_what_was_asked_of_another_party_changes_nothing(liar: Liar) -> None:
    """Each genuine request, told to somebody else as well: before its own one, and after."""
    aggregation = liar.aggregation()
    while aggregation.step:
        own, others = aggregation.request("a"), aggregation.request("d")
        before = liar.tell("a", others)
        liar.step(aggregation, advance=False)
        after = liar.tell("a", others)
        right = liar.tell("a", own)
        for reply in (before, after, right):
            reply.nonce = b""
        for reply in (before, after):
            # It says what it says to its own request, or nothing.
            assert reply == right or reply.WhichOneof("body") == "refusal"
        aggregation.advance()
    np.testing.assert_array_equal(aggregation.result().total.counts, [[4, 6]] * 6)
    assert liar.opened() == dict.fromkeys(NAMES, 1)


def test_a_request_of_an_earlier_attempt_ends_the_present_one_and_opens_nothing(liar: Liar) -> None:
    """An attacker who replays an old request could stop a sum, but learn nothing."""
    old = liar.aggregation()
    begins = old.request("d")
    liar.through(old, [NAMES, NAMES, NAMES])
    aggregation = liar.through(liar.aggregation(), [NAMES, NAMES, NAMES])
    reply = liar.tell("a", begins)
    # New keys for the old attempt: what was masked with the ones before is not opened by them.
    assert reply.WhichOneof("body") == "keys"
    liar.refuses("a", aggregation.request("a"), "not started here")
    liar.refuses("a", old.request("a"), "and the next is")
    liar.through(aggregation, [NAMES[1:], NAMES[1:]])
    # Its masked vote was in: the others open the sum without it, as of a party that dropped out late.
    np.testing.assert_array_equal(aggregation.result().total.counts, [[4, 6]] * 6)
    assert liar.opened() == {"a": 0, "b": 1, "c": 1, "d": 1}


def test_messages_out_of_order(liar: Liar) -> None:
    aggregation = liar.aggregation()
    later = liar.through(liar.aggregation(), [NAMES, NAMES, NAMES])
    consent = later.request("a")
    liar.refuses("a", _renamed(consent, aggregation), "not started here")
    liar.step(aggregation, advance=False)
    liar.refuses("a", _renamed(consent, aggregation), "and the next is")
    masked = vote_pb2.PartyRequest()
    masked.ask_masked.attempt = aggregation.attempt
    liar.refuses("a", masked, "and the next is")
    # That attempt ended the one before it.
    liar.refuses("a", consent, "not started here")


def _renamed(
    request: vote_pb2.PartyRequest, aggregation: MaskedAggregation
) -> vote_pb2.PartyRequest:
    made = vote_pb2.PartyRequest()
    made.CopyFrom(request)
    getattr(made, made.WhichOneof("body") or "").attempt = aggregation.attempt
    return made


def test_a_second_unmasking_request(liar: Liar) -> None:
    aggregation = liar.through(liar.aggregation(), [NAMES] * 4)
    first = aggregation.request("a")
    liar.step(aggregation)
    other = vote_pb2.PartyRequest()
    other.CopyFrom(first)
    del other.ask_opening.signatures[3]
    liar.refuses("a", other, "a second time")
    # Nor does it sign another list of survivors now.
    consent = vote_pb2.PartyRequest()
    consent.ask_consent.attempt = aggregation.attempt
    consent.ask_consent.survivors = bits_from_names(NAMES[:3], NAMES)
    liar.refuses("a", consent, "a second time")
    assert liar.opened() == dict.fromkeys(NAMES, 1)


def test_a_peer_declared_both_alive_and_dropped(liar: Liar) -> None:
    """Half of the parties get a list with "d" in the sum, the others one without it."""
    aggregation = liar.through(liar.aggregation(), [NAMES, NAMES, NAMES])
    signatures: dict[tuple[str, ...], dict[str, bytes]] = {NAMES: {}, NAMES[:3]: {}}
    for name, survivors in (("a", NAMES), ("b", NAMES), ("c", NAMES[:3]), ("d", NAMES)):
        request = vote_pb2.PartyRequest()
        request.ask_consent.attempt = aggregation.attempt
        request.ask_consent.survivors = bits_from_names(survivors, NAMES)
        signatures[survivors][name] = liar.tell(name, request).consent.signature
        # Nobody signs two lists.
        other = vote_pb2.PartyRequest()
        other.ask_consent.attempt = aggregation.attempt
        others = NAMES[:3] if survivors == NAMES else NAMES
        other.ask_consent.survivors = bits_from_names(others, NAMES)
        liar.refuses(name, other, "a second time")
    # Three signed that "d" is alive; "c" does not unmask under that list, and no party under its own.
    alive, dropped = signatures[NAMES], signatures[NAMES[:3]]
    liar.refuses("c", _opening(aggregation, alive), "it saw another list")
    liar.refuses("c", _opening(aggregation, dropped), "signed the list of survivors")
    both = {**dropped, "a": alive["a"], "b": alive["b"]}
    liar.refuses("c", _opening(aggregation, both), "it saw another list")
    for name in ("a", "b", "d"):
        opening = liar.tell(name, _opening(aggregation, alive)).opening
        assert not opening.keys
    assert liar.opened()["c"] == 0


def _opening(aggregation: MaskedAggregation, signatures: dict[str, bytes]) -> vote_pb2.PartyRequest:
    request = vote_pb2.PartyRequest()
    request.ask_opening.attempt = aggregation.attempt
    for name in sorted(signatures):
        request.ask_opening.signatures.add(party=name, signature=signatures[name])
    return request


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("batch", [WHOLE, PART])
def test_a_batch_is_not_run_again_with_fewer_parties(
    liar: Liar, batch: Batch, restarted: bool
) -> None:
    """The difference of the two sums would be the votes of "d"."""
    liar.through(liar.aggregation(), [NAMES] * 5)
    if restarted:
        for name in NAMES:
            liar.start(name)
    again, rest = liar.aggregation(batch), NAMES[:3]
    liar.through(again, [rest, rest, rest, rest])
    for name in rest:
        liar.refuses(name, again.request(name), "unmasked")
    assert liar.what_comes(again) is None
    assert liar.opened() == dict.fromkeys(NAMES, 1)


def test_the_same_batch_may_be_run_again_with_the_same_parties(liar: Liar) -> None:
    """A server that lost the first result gets the same sum, and nothing new."""
    one = liar.through(liar.aggregation(), [NAMES] * 5).result()
    for name in NAMES:
        liar.start(name)
    two = liar.through(liar.aggregation(), [NAMES] * 5).result()
    np.testing.assert_array_equal(one.total.counts, two.total.counts)


def test_an_old_attempt_does_not_lend_its_signatures_to_a_new_one(liar: Liar) -> None:
    """All parties are started anew, and the server brings an attempt of before to life again."""
    aggregation = liar.through(liar.aggregation(), [NAMES, NAMES, NAMES])
    liar.step(aggregation, advance=False)
    old = {}
    for name in NAMES:
        old[name] = liar.tell(name, aggregation.request(name)).consent.signature
        liar.start(name)
    again = liar.aggregation()
    again.attempt, again._opens = aggregation.attempt, aggregation._opens
    again._masking = type(aggregation._masking)(aggregation._masking.context)
    rest = NAMES[:3]
    liar.through(again, [NAMES, NAMES, rest])
    # "a" is to open the list of all four by the signatures of before, after it signs one of three.
    liar.step(again, rest)
    liar.refuses("a", _opening(again, old), "it saw another list, or other keys")
    assert liar.opened() == dict.fromkeys(NAMES, 0)


def test_other_terms_in_the_middle_of_a_sum(liar: Liar) -> None:
    """Votes in another order of classes, under the same masks: the difference would be votes."""
    aggregation = liar.through(liar.aggregation(), [NAMES, NAMES])
    permuted = liar.campaign.copy()
    permuted.classes = CLASSES[::-1]
    liar.refuses(
        "a", aggregation.request("a"), "with other terms than it was started with", permuted
    )
    # What is left is the sum that was begun.
    np.testing.assert_array_equal(liar.what_comes(aggregation), [[4, 6]] * 6)


def test_the_order_of_classes_does_not_change_within_a_campaign(liar: Liar) -> None:
    liar.through(liar.aggregation(), [NAMES] * 5)
    liar.campaign.classes = CLASSES[::-1]
    for name in NAMES:
        liar.refuses(name, liar.aggregation().request(name), "has changed its classes")
    assert liar.what_comes(liar.aggregation()) is None


@pytest.mark.parametrize("field", ["public_set", "schema"])
def test_nor_does_what_it_is_about(liar: Liar, field: str) -> None:
    about = liar.campaign.copy()
    setattr(about, field, b"x" * 32 if field == "public_set" else "images 4x4x3")
    reply = liar.tell("a", describe(), about)
    assert reply.WhichOneof("body") == "refusal"


def test_a_party_that_was_trained_anew_gives_no_second_sum(liar: Liar) -> None:
    """The others' votes are the same, so the difference would be what is new in its data."""
    liar.through(liar.aggregation(), [NAMES] * 5)
    liar.start("a", "y")
    again = liar.aggregation()
    liar.refuses("a", again.request("a"), "our data or settings have changed")
    assert liar.what_comes(again) is None


@pytest.mark.parametrize("asked_to_open", [True, False])
@pytest.mark.parametrize("noise", ["central", "distributed"])
def test_nor_in_another_campaign(liar: Liar, noise: str, asked_to_open: bool) -> None:
    """What only "a" can know is refused before its votes are masked: three others can open a sum."""
    if noise == "distributed":
        liar.campaign = _distributed(liar)
    first = liar.through(liar.aggregation(), [NAMES] * 4)
    liar.step(first, NAMES if asked_to_open else NAMES[1:])
    liar.start("a", "y")
    liar.campaign = liar.terms(liar.roster, id=b"d" * 16)
    again = liar.aggregation()
    liar.refuses("a", again.request("a"), "other data or settings of ours")
    assert liar.what_comes(again) is None


def test_nor_after_votes_that_were_never_opened(liar: Liar) -> None:
    """The server may have the first sum opened later, by the others."""
    first = liar.through(liar.aggregation(), [NAMES] * 3)
    liar.start("a", "y")
    before, liar.campaign = liar.campaign, liar.terms(liar.roster, id=b"d" * 16)
    liar.refuses("a", liar.aggregation().request("a"), "other data or settings of ours")
    liar.campaign = before
    rest = NAMES[1:]
    found = liar.through(first, [rest, rest]).result()
    assert found.responders == NAMES


def test_a_policy_may_allow_it(liar: Liar) -> None:
    first = liar.what_comes(liar.aggregation())
    for name in NAMES:
        liar.start(name, "y" if name == "a" else None, Policy(
            campaigns="any", repeat_queries="allow", least_survivors=3, largest_epsilon=None
        ))  # fmt: skip
    liar.campaign = liar.terms(liar.roster, id=b"d" * 16)
    second = liar.what_comes(liar.aggregation())
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(second - first, [[-1, 1]] * 6)


@pytest.mark.parametrize("campaign", ["the same", "another"])
@pytest.mark.parametrize("batch", ["the same", "another"])
def test_the_same_teachers_with_other_votes_give_none(
    liar: Liar, campaign: str, batch: str
) -> None:
    """As after a restore, when training does not come out the same to the last bit."""
    first = liar.what_comes(liar.aggregation())
    (liar.root / "a" / "votes.db").unlink()
    liar.start("a")
    liar.voters["a"]._voters = ReadyVoters(Unanimous(1, "y"))  # of the same fingerprint
    if campaign == "another":
        liar.campaign = liar.terms(liar.roster, id=b"d" * 16)
    again = liar.aggregation(WHOLE if batch == "the same" else PART)
    liar.through(again, [NAMES, NAMES])
    liar.refuses("a", again.request("a"), "differ from those that we sent")
    assert liar.what_comes(again) is None
    # With the votes that it gave it takes part again.
    liar.start("a")
    (liar.root / "a" / "votes.db").unlink()
    found = liar.what_comes(liar.aggregation(WHOLE if batch == "the same" else PART))
    assert first is not None
    assert found is not None
    np.testing.assert_array_equal(found, first[: len(found)])


def test_classes_in_another_order_are_the_same_votes(liar: Liar) -> None:
    first = liar.what_comes(liar.aggregation())
    liar.campaign = liar.terms(liar.roster, id=b"d" * 16, classes=CLASSES[::-1])
    second = liar.what_comes(liar.aggregation())
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(second, first[:, ::-1])


def test_the_same_name_with_another_key_is_another_party(liar: Liar) -> None:
    """A server that puts one of its own in the place of "d" would have the others' sum."""
    liar.through(liar.aggregation(), [NAMES] * 5)
    sybil = Ed25519PrivateKey.generate()
    roster = [
        *liar.roster[:3],
        RosterParty("d", sybil.public_key().public_bytes_raw().hex(), 4, "record"),
    ]
    liar.campaign = liar.terms(roster, id=b"d" * 16)
    home = liar.root / "sybil"
    liar.voters["d"] = Voter(
        name="d", identity=sybil, voters=ReadyVoters(Unanimous(4, "y")), home=home, site=site(home),
        noise=SystemNoise(), public=PUBLIC, say=liar.said["d"].append,
    )  # fmt: skip
    liar.roster = roster
    again = liar.through(liar.aggregation(), [NAMES] * 4)
    for name in NAMES[:3]:
        liar.refuses(name, again.request(name), "with other parties")
    assert liar.what_comes(again) is None  # "d" opens it, and two more are needed


def test_another_campaign_over_the_same_queries_with_fewer_parties(liar: Liar) -> None:
    liar.through(liar.aggregation(), [NAMES] * 5)
    first = liar.campaign
    liar.campaign = liar.terms(liar.roster, id=b"d" * 16)
    assert liar.campaign.id != first.id == CAMPAIGN_ID
    rest = NAMES[:3]
    again = liar.aggregation()
    liar.through(again, [NAMES, NAMES, rest, rest])
    for name in rest:
        liar.refuses(name, again.request(name), "unmasked")
    assert liar.what_comes(again) is None


def test_a_roster_without_us_or_with_other_teachers_gets_no_votes(liar: Liar) -> None:
    others = [party for party in liar.roster if party.name != "a"]
    for roster, words in (
        (others, "not on the roster"),
        ([RosterParty("a", liar.roster[0].identity, 9, "record"), *others], "9 teachers"),
    ):
        lie = liar.terms(roster)
        asked = MaskedAggregation(lie.offer(), roster, WHOLE).request("a")
        liar.refuses("a", asked, words, lie)


def test_noise_shares_are_drawn_once(tmp_path: Path) -> None:
    """Two noisy sums of the same votes would have less noise between them."""
    liar = Liar(tmp_path)
    liar.campaign = _distributed(liar)
    one = liar.through(liar.aggregation(), [NAMES] * 5).result()
    for name in NAMES:
        liar.start(name)
    two = liar.through(liar.aggregation(), [NAMES] * 5).result()
    np.testing.assert_array_equal(one.total.counts, two.total.counts)
    # All four shares have sigma 8: that all twelve counts are exact has a chance below 1e-9.
    assert (one.total.counts != [[4, 6]] * 6).any()


def test_a_copy_from_while_teachers_voted_has_no_answer_without_its_noise(tmp_path: Path) -> None:
    """Restored, "a" would draw a second share for the same votes; its newest head is missing."""
    liar = Liar(tmp_path / "homes")
    liar.campaign = _distributed(liar)
    home, copy = tmp_path / "homes" / "a", tmp_path / "copy"

    class Copied(Unanimous):
        def vote(
            self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
        ) -> Counts:
            back_up(home, copy)
            return super().vote(public, rows, classes, code)

    liar.voters["a"]._voters = ReadyVoters(Copied(1, "x"))
    liar.through(liar.aggregation(), [NAMES] * 3)
    head = PartyLedger(home / "ledger.db", read_only=True).head
    _lose(home)
    with pytest.raises(LedgerError, match="was in this ledger and is missing"):
        restore(copy, home, head=head)


def test_without_its_noise_an_answer_is_not_given_again(tmp_path: Path) -> None:
    liar = Liar(tmp_path / "homes")
    liar.campaign = _distributed(liar)
    liar.through(liar.aggregation(), [NAMES] * 3)
    (tmp_path / "homes" / "a" / "noise.db").unlink()
    liar.start("a")
    again = liar.through(liar.aggregation(), [NAMES] * 2)
    liar.refuses("a", again.request("a"), "has no noise for it")
    # The others' noisy sum may come, with their shares of before.
    assert liar.what_comes(again) is not None


@pytest.mark.parametrize("point", ["noise-share-kept", "answer-recorded"])
def test_killed_on_the_way_it_gives_the_same_votes_and_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    liar = Liar(tmp_path)
    liar.campaign = _distributed(liar)

    class Killed(BaseException):
        pass

    def die(reached: str) -> None:
        if reached == point:
            raise Killed

    aggregation = liar.through(liar.aggregation(), [NAMES] * 2)
    with monkeypatch.context() as patched:
        for module in ("party.voting.casting", "party.voting.site"):
            patched.setattr(f"{module}.reach", die)
        with pytest.raises(Killed):
            liar.tell("a", aggregation.request("a"))
    held = NoiseShares(tmp_path / "a" / "noise.db")._file
    with held.reading() as db:
        before = db.execute("SELECT noise FROM shares").fetchall()
    assert len(before) == 1
    liar.start("a")
    assert liar.what_comes(liar.aggregation()) is not None
    with held.reading() as db:
        assert db.execute("SELECT noise FROM shares").fetchall() == before


def _lose(home: Path) -> None:
    """Lose a party's disk, but for its keys."""
    for path in list(home.iterdir()):
        if path.name not in ("identity.key", "shard.key"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _distributed(liar: Liar) -> CampaignMessage:
    members = [(party.name, bytes.fromhex(party.identity), party.teachers) for party in liar.roster]
    terms = terms_message(
        members, [DistributedGNMax(Fraction(8), 2, 1)], composition="zcdp", cap="1/10"
    )
    return campaign_message(
        PUBLIC, terms, id=b"e" * 16, classes=CLASSES, aggregation="masked", noise="distributed",
        min_parties=3, colluders=1, epsilon=5.0,
    )  # fmt: skip


def test_masked_votes_are_only_asked_for_by_steps(liar: Liar) -> None:
    plain = ask(PUBLIC)
    asked = liar.terms(liar.roster, aggregation="plain", colluders=0)
    liar.refuses("a", plain, "has changed its aggregation", asked)


def test_with_proofs_a_bad_one_is_named_and_left_out(liar: Liar) -> None:
    liar.campaign = liar.terms(liar.roster, id=b"f" * 16, vote_proofs=True)
    aggregation = liar.through(liar.aggregation(), [NAMES] * 3)
    rest = NAMES[:3]
    liar.step(aggregation, rest, advance=False)
    reply = liar.tell("d", aggregation.request("d"))
    forged = bytearray(reply.proof.content)
    forged[len(forged) // 2] ^= 1
    reply.proof.content = bytes(forged)
    with pytest.raises(ProtocolError, match="d"):
        aggregation.take(liar.party("d"), reply)
    aggregation.advance()
    found = liar.through(aggregation, [rest, rest]).result()
    assert found.responders == rest
    np.testing.assert_array_equal(found.total.counts, [[4, 2]] * 6)


def test_with_proofs_no_party_answers_a_seed_of_its_own(liar: Liar) -> None:
    """With a seed for each party a server could solve the links for single votes."""
    liar.campaign = liar.terms(liar.roster, id=b"f" * 16, vote_proofs=True)
    aggregation = liar.through(liar.aggregation(), [NAMES] * 3)
    other = aggregation.request("a")
    other.ask_proof.seed = bytes(32)
    liar.refuses("a", other, "not the one of this attempt")
    early = liar.aggregation()
    liar.step(early, advance=False)
    asked = vote_pb2.PartyRequest()
    asked.ask_proof.attempt, asked.ask_proof.seed = early.attempt, early._masking._seed or b""
    liar.refuses("a", asked, "and the next is")


def test_steps_that_are_refused_leave_no_entry(liar: Liar) -> None:
    """Else a server fills a party's ledger by attempts that it never means to finish."""
    ledger = liar.voters["b"]._site.ledger

    def begun() -> None:
        aggregation = liar.aggregation()
        liar.tell("b", aggregation.request("b"))
        ask = vote_pb2.PartyRequest(ask_masked=vote_pb2.AskMasked(attempt=aggregation.attempt))
        liar.refuses("b", ask, "")

    begun()
    head = ledger.head
    for _ in range(3):
        begun()
    assert ledger.head == head


def test_another_roster_with_a_piece_does_not_take_the_place_of_the_true_one(liar: Liar) -> None:
    aggregation = liar.aggregation()
    assert liar.tell("a", aggregation.request("a")).WhichOneof("body") == "keys"
    other = liar.campaign.copy()
    assert other.terms is not None
    other.terms.roster[1].identity = other.terms.roster[2].identity[::-1]
    piece = vote_pb2.PublicPiece(index=0, pieces=2, content=b"x")
    liar.refuses("a", vote_pb2.PartyRequest(public_piece=piece), "changed its roster", other)
    short = vote_pb2.PartyRequest()
    short.CopyFrom(aggregation.request("a"))
    for campaign, answer in ((liar.campaign, "keys"), (other, "unknown")):
        short.digest = campaign.offer().digest
        assert liar.tell("a", short, campaign).WhichOneof("body") == answer


def test_pieces_of_a_public_set_that_the_campaign_has_not_are_refused(liar: Liar) -> None:
    other = liar.campaign.copy()
    other.public_set = bytes(32)
    piece = vote_pb2.PartyRequest(
        public_piece=vote_pb2.PublicPiece(index=0, pieces=1, content=b"x")
    )
    liar.refuses("a", piece, "changed its public_set", other)


def test_a_request_that_is_larger_than_any_is_not_read(liar: Liar) -> None:
    asked = vote_pb2.PartyRequest(version=wire.VERSION, nonce=wire.new_id())
    asked.campaign = liar.campaign.packed()
    asked.ask_shares.keys.extend([vote_pb2.PeerKeys()] * (MAX_REQUEST // 2))
    with pytest.raises(ProtocolError, match="the limit is"):
        liar.voters["a"].handle(wire.sign_request(asked, SERVER_KEY))
