"""Who is here: the parties of a campaign by name, and the address at which each can be asked.

A party is known by its name and its signing key. The node id under which Flower shows it is
only an address: it changes when the party restarts, and nothing is remembered by it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from aggregator_server.exchange.parties import DescribedParty
from pate.errors import ProtocolError, StateError
from protos import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pate.campaign.roster import RosterParty
    from protos.pate.v1 import vote_pb2

#: A party whose code raised is asked again this many times before the batch does without it.
_RETRIES: Final = 2
#: With more parties than this, the server's screen counts them instead of naming each that joins.
_GREETED: Final = 16


class Attendance:
    """The parties that have said who they are.

    Args:
        campaign: what they are told.
        enrolled: identity keys (32 bytes) by name, of those who may take part; None: anybody.
            Asked each time a party describes itself.
        say: one line for the server's screen.

    Attributes:
        awaited: parties that the campaign waits for.
        described: nodes that were asked who they are.
        known: every party that ever said so, by name.
        node_of: the node of each party that is here.
        visits: how often each party was met, by name: whoever came back is another process.
        has_public_set: names of those that have the campaign's public set.
        roster: whom alone is talked to, by name; None while it is open.
        out: parties that said no, or failed too often: not waited for unless they come back.
        refused: those of them that said no for good, by their policy or their ledger.
    """

    def __init__(
        self,
        campaign: vote_pb2.Campaign,
        enrolled: Callable[[], Mapping[str, bytes]] | None,
        say: Callable[[str], None],
    ) -> None:
        self._campaign = campaign
        self._enrolled = enrolled
        self._say = say
        self._failures: Counter[str] = Counter()
        self.awaited = 0
        self.described: set[int] = set()
        self.known: dict[str, DescribedParty] = {}
        self.node_of: dict[str, int] = {}
        self.visits: Counter[str] = Counter()
        self.has_public_set: set[str] = set()
        self.roster: dict[str, RosterParty] | None = None
        self.out: set[str] = set()
        self.refused: set[str] = set()

    def fix_roster(self, roster: Sequence[RosterParty]) -> None:
        """From now on know these parties alone."""
        self.roster = {party.name: party for party in roster}
        self.awaited = len(self.roster)
        for name in [name for name in self.node_of if name not in self.roster]:
            self._say(f"{name} is not on the roster of this campaign; it is not asked")
            del self.node_of[name]

    def call_again(self) -> None:
        """Give all parties that were put out another chance."""
        self.out.clear()
        self.refused.clear()

    def meet(self, node: int, identity: bytes, reply: vote_pb2.Reply) -> DescribedParty | None:
        """Take in what a node says that it is.

        Args:
            node: that answered.
            identity: (32,) bytes, the key that signed the answer.
            reply: with a description.

        Returns:
            The party that is at the node from now on; None if it is not to be asked.

        Raises:
            ProtocolError: if it cannot be, or may not be, who it says.
        """
        said = reply.description
        wire.check_description(said)
        party = DescribedParty(
            reply.party, identity.hex(), said.teachers, said.unit, tuple(said.classes)
        )
        if self._campaign.most_votes not in (0, said.teachers):
            raise ProtocolError(
                f"{party.name} would put up to {said.teachers} votes on a count, the campaign says "
                f"{self._campaign.most_votes}"
            )
        if self._enrolled is not None:
            try:
                enrolled = self._enrolled()
            except StateError as error:
                # Ours to mend, and none of the party's doing: it is asked again.
                self._say(f"who is enrolled cannot be read now: {error}")
                self.described.discard(node)
                return None
            if enrolled.get(party.name) != identity:
                raise ProtocolError(
                    f"{party.name} is not enrolled with that key; it is told nothing"
                )
        if not self._expects(party):
            self._say(f"{party.name} is not on the roster of this campaign; it is not asked")
            return None
        self._welcome(node, party, said.public_set == self._campaign.public_set)
        return party

    def unenrolled_marked(self, names: Sequence[str]) -> list[str]:
        """Return the names, marked where a party is not enrolled now: it was revoked, or never was.

        Such a party is waited for, since it may still be enrolled; the coordinator has to know that.
        """
        if self._enrolled is None:
            return list(names)
        try:
            enrolled = self._enrolled()
        except StateError:
            return list(names)
        return [name if name in enrolled else f"{name} (not enrolled)" for name in names]

    def _expects(self, party: DescribedParty) -> bool:
        """Return whether a party is one to talk to.

        Raises:
            ProtocolError: if it is another than the one of that name.
        """
        known: Mapping[str, RosterParty] = self.known if self.roster is None else self.roster
        expected = known.get(party.name)
        if expected is None:
            return self.roster is None
        if expected.identity != party.identity:
            raise ProtocolError(f"a stranger calls itself {party.name}: its key is another one")
        like = (expected.teachers, expected.unit) == (party.teachers, party.unit)
        if self.roster is not None and not like:
            raise ProtocolError(
                f"{party.name} came back with {party.teachers} teachers per {party.unit}, "
                f"on the roster it has {expected.teachers} per {expected.unit}; "
                "a roster does not change within a campaign"
            )
        return True

    def _welcome(self, node: int, party: DescribedParty, has_public_set: bool) -> None:
        back = party.name in self.known
        self.known[party.name] = party
        self.node_of[party.name] = node
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
        """Count a failure of a party or a node; return whether it had its last chance."""
        self._failures[who] += 1
        return self._failures[who] > _RETRIES

    def forget(self, node: int, *, left: bool = False) -> None:
        """Take note that nobody is at a node any more.

        Args:
            node: of the party.
            left: whether it went by itself, which the screen then says.
        """
        self.described.discard(node)
        for name in [name for name, at in self.node_of.items() if at == node]:
            del self.node_of[name]
            if left:
                self._say(f"{name} has left; the same `pate-party start` there brings it back")
