"""Presence of the parties of a campaign: by name, with the node at which each can be reached.

A party is identified by its name and its signing key. Its Flower node id is only an address: it
changes when the party restarts, and no state is stored under it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.campaign.roster import RosterParty
from pate.errors import ProtocolError, StateError
from pate.printable import listed
from protos import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.campaign.announced import Announced
    from protos.pate.v1 import vote_pb2

#: How often a party whose code raised is asked again before the batch continues without it.
_RETRIES: Final = 2
#: With more parties than this, the server's screen counts joining parties instead of naming them.
_GREETED: Final = 16
#: Most names of parties that refused to join: on a trial's loopback anybody can choose one.
_MOST_REFUSED: Final = 64


@dataclass(frozen=True)
class Keyring:
    """The keys of a campaign."""

    own: Ed25519PrivateKey
    # returns the identity keys (32 bytes) by name, of the allowed parties; None: any party. Called
    # each time a party describes itself
    enrolled: Callable[[], Mapping[str, bytes]] | None = None


@dataclass(frozen=True)
class DescribedParty(RosterParty):
    """A party's description of itself."""

    classes: tuple[str, ...]  # the class list of its data, possibly a part of the campaign's


class Attendance:
    """The parties that have described themselves."""

    def __init__(self, campaign: Announced, keys: Keyring, say: Callable[[str], None]) -> None:
        self._campaign = campaign
        self._enrolled = keys.enrolled
        self._say = say
        self._failures: Counter[str] = Counter()
        self.awaited = 0  # parties that the campaign waits for
        self.described: set[int] = set()  # nodes that were asked for a description
        # every party that ever described itself, by name
        self.known: dict[str, DescribedParty] = {}
        self.node_of: dict[str, int] = {}
        # names of the parties that accepted the terms and have not described themselves yet: they
        # read their records and train, by node
        self.preparing: dict[int, str] = {}
        # names of the parties that refused to join, until they return
        self.unwilling: dict[str, None] = {}  # the oldest first
        # how often each party was met, by name: a returning party is a new process
        self.visits: Counter[str] = Counter()
        # names of the parties that have the campaign's public set
        self.has_public_set: set[str] = set()
        # the only parties to communicate with, by name; None while it is open
        self.roster: dict[str, RosterParty] | None = None
        # parties that refused, or failed too often: not waited for unless they return
        self.out: set[str] = set()
        # those of them that refused permanently, by their policy or their ledger
        self.refused: set[str] = set()

    def fix_roster(self, roster: Sequence[RosterParty]) -> None:
        """Restrict the campaign to these parties."""
        self.roster = {party.name: party for party in roster}
        self.awaited = len(self.roster)
        for name in [name for name in self.node_of if name not in self.roster]:
            self._say(f"{name} is not on the roster of this campaign; it is not asked")
            del self.node_of[name]

    def call_again(self) -> None:
        """Give all excluded parties another chance."""
        self.out.clear()
        self.refused.clear()

    def prepares(self, node: int, name: str, identity: bytes) -> bool:
        """Record that the party at a node prepares; return whether that is new."""
        if not self.may_come(node, name, identity) or node in self.preparing:
            return False
        self.preparing[node] = name
        self.unwilling.pop(name, None)
        if self.awaited <= _GREETED:
            self._say(f"{name} is here, preparing")
        return True

    def refuses(self, node: int, name: str, identity: bytes) -> None:
        """Record that the party at a node refused to join."""
        self.preparing.pop(node, None)
        with suppress(StateError):  # without the list it cannot be named
            if self._enrolled is not None and self._enrolled().get(name) != identity:
                return
            self.unwilling[name] = None
            if len(self.unwilling) > _MOST_REFUSED:
                del self.unwilling[next(iter(self.unwilling))]

    def send_away(self, party: DescribedParty) -> int:
        """Take a party out that names other classes than most; return its node."""
        return self.node_of.pop(party.name)

    def meet(self, node: int, identity: bytes, reply: vote_pb2.Reply) -> DescribedParty | None:
        """Return the party at a node from now on, by the description that it sent; None: it is not asked."""
        said = reply.description
        wire.check_description(said)
        party = DescribedParty(
            reply.party, identity.hex(), said.teachers, said.unit, tuple(said.classes)
        )
        if self._campaign.most_votes not in (None, said.teachers):
            raise ProtocolError(
                f"{party.name} would cast up to {said.teachers} votes on a count, the campaign allows "
                f"{self._campaign.most_votes}"
            )
        if not self.may_come(node, party.name, identity):
            return None
        self._require_expected(party)
        self._welcome(node, party, said.public_set.hex() == self._campaign.public_set)
        return party

    def may_come(self, node: int, name: str, identity: bytes) -> bool:
        """Return whether a party is enrolled, and on the roster; asked again if the list cannot be read."""
        if self._enrolled is not None:
            try:
                enrolled = self._enrolled()
            except StateError as error:
                # An error of this server, not of the party.
                self._say(f"the list of enrolled parties cannot be read now: {error}")
                self.described.discard(node)
                return False
            if enrolled.get(name) != identity:
                raise ProtocolError(f"{name} is not enrolled with that key; it gets no information")
        if self.roster is not None and name not in self.roster:
            self._say(f"{name} is not on the roster of this campaign; it is not asked")
            return False
        return True

    def unenrolled_marked(self, names: Sequence[str]) -> list[str]:
        """Return the names, marked where a party is not enrolled now: it is waited for all the same."""
        if self._enrolled is None:
            return list(names)
        try:
            enrolled = self._enrolled()
        except StateError:
            return list(names)
        return [name if name in enrolled else f"{name} (not enrolled)" for name in names]

    def _require_expected(self, party: DescribedParty) -> None:
        """Check that a party is the one that is known by its name, with as many teachers."""
        known: Mapping[str, RosterParty] = self.known if self.roster is None else self.roster
        expected = known.get(party.name)
        if expected is None:
            return
        if expected.identity != party.identity:
            raise ProtocolError(f"another party uses the name {party.name}: its key differs")
        like = (expected.teachers, expected.unit) == (party.teachers, party.unit)
        if self.roster is not None and not like:
            raise ProtocolError(
                f"{party.name} came back with {party.teachers} teachers per {party.unit}, "
                f"on the roster it has {expected.teachers} per {expected.unit}; "
                "a roster does not change within a campaign"
            )

    def _welcome(self, node: int, party: DescribedParty, has_public_set: bool) -> None:
        back = party.name in self.known
        self.known[party.name] = party
        self.node_of[party.name] = node
        self.preparing.pop(node, None)
        self.unwilling.pop(party.name, None)
        self.visits[party.name] += 1
        self.has_public_set.discard(party.name)
        if has_public_set:
            self.has_public_set.add(party.name)
        self._failures[party.name] = 0
        self.out.discard(party.name)
        self.refused.discard(party.name)
        if back or self.awaited <= _GREETED:
            with_what = "records" if self._campaign.most_votes else f"{party.teachers} teachers"
            self._say(f"{party.name} {'is back' if back else 'joined'}: {with_what}")

    def failed_for_good(self, who: str) -> bool:
        """Count a failure of a party or a node; return whether it has no attempt left."""
        self._failures[who] += 1
        return self._failures[who] > _RETRIES

    def forget(self, node: int, *, left: bool = False) -> None:
        """Record that a node has disconnected; the screen reports a party that left by itself."""
        self.described.discard(node)
        gone = [name for name, at in self.node_of.items() if at == node]
        if (name := self.preparing.pop(node, None)) is not None and name not in gone:
            gone.append(name)
        for name in gone:
            self.node_of.pop(name, None)
            if left:
                self._say(f"{name} has left; the same `pate-party start` there brings it back")


def agreed_classes(parties: Sequence[DescribedParty], wanted: int) -> tuple[str, ...] | None:
    """Return the class list that more than half of the wanted parties name; None without one, or with two.

    So neither one party nor the first one decides for the others.
    """
    counts = Counter(party.classes for party in parties)
    enough = [classes for classes, count in counts.items() if 2 * count > wanted]
    return enough[0] if len(enough) == 1 else None


def differ_in_words(parties: Sequence[DescribedParty], wanted: int) -> str:
    """Return how class lists of parties differ, and what helps; "" if they do not, or one is agreed."""
    other = next((each for each in parties if each.classes != parties[0].classes), None)
    if other is None or agreed_classes(parties, wanted) is not None:
        return ""
    return (
        f"{parties[0].name} and {other.name} name different classes: {difference(parties[0], other)}, and "
        f"more than half of the {wanted} parties have to name one list: correct the labels of one, name the "
        "list there with --classes, or start a campaign with --classes"
    )


def difference(one: DescribedParty, other: DescribedParty) -> str:
    """Return in words how the class lists of two parties differ."""
    parts = [
        f"only {party.name} has {listed(extra)}"
        for party, rest in ((one, other), (other, one))
        if (extra := [name for name in party.classes if name not in rest.classes])
    ]
    return ", ".join(parts) or "the same classes in another order"
