"""Collection of bundles: one step before a masked sum whose keys come ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pate.errors import ProtocolError, QuorumError
from protos import ahead
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.campaign.roster import RosterParty
    from pate.masking.ahead.bundle import BundleRoster


class BundleSteps:
    """One step: every party sends a bundle of a number, and those of later sums. A party may be missing.

    Args:
        sealed: the roster that the bundles are made for.
        number: of the bundle.
        least: number of parties that the sum needs.
        block: bundles that are asked for together; the same request asks for each of them.
        only: names of the parties that may be in it; None: all.

    Attributes:
        bundles: of the parties that answered, by name.
    """

    first: ClassVar[bool] = True
    needed: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        sealed: BundleRoster,
        number: int,
        least: int,
        only: Sequence[str] | None = None,
        block: range | None = None,
    ) -> None:
        block = range(number, number + 1) if block is None else block
        self._asked = ahead.roster_to_wire(sealed, block.start, len(block))
        self._at = number - block.start
        roster = frozenset(each.member.name for each in sealed.parties)
        self._roster = roster if only is None else roster & frozenset(only)
        self._least = least
        self.bundles: dict[str, vote_pb2.Bundle] = {}
        self.step = "ask_bundles"

    @property
    def awaited(self) -> frozenset[str]:
        """The parties that may be in the sum."""
        return self._roster

    @property
    def answered(self) -> frozenset[str]:
        """The parties whose bundles have arrived."""
        return frozenset(self.bundles)

    def request(self, name: str) -> vote_pb2.PartyRequest:
        """Return the request for bundles."""
        del name  # the same for all
        return vote_pb2.PartyRequest(ask_bundles=self._asked)

    def take(self, party: RosterParty, reply: vote_pb2.Reply) -> None:
        """Take a party's bundle; see :class:`aggregator_server.exchange.aggregation.Aggregation`.

        Its signature and its boxes are checked when a round begins with it.
        """
        if not reply.bundles.bundles:
            raise ProtocolError(
                f"{party.name} has another sealing key now than the one that it described"
            )
        ahead.check_bundles(reply.bundles, self._asked)
        self.bundles[party.name] = reply.bundles.bundles[self._at]

    def advance(self) -> None:
        """See :class:`aggregator_server.exchange.aggregation.Aggregation`."""
        if len(self.bundles) < self._least:
            raise QuorumError(
                f"{len(self.bundles)} parties sent keys ahead, {self._least} are needed"
            )
        self.step = ""
