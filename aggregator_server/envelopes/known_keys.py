"""The sealing keys that the server knows before any party has described itself.

They come with an enrolment's answer, and with the description in an earlier campaign. With them the
first envelope asks for keys ahead together with the description: a trip less. Each key is signed by
its party's identity, so a server gains nothing by another one; a party that has made a new key since
gives no bundles for the old one, and is asked again once it has described itself.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from pate.errors import PateError, ProtocolError
from pate.formats.enrolment import SealingKey
from pate.masking.ahead.bundle import BundleRoster, Sealed
from pate.masking.context import Member
from pate.runtime.home import write_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aggregator_server.identities import Identities
    from pate.campaign.spec import CampaignSpec

#: File with the roster that the first envelopes of a campaign name, in its folder.
_FILE: Final = "envelopes.roster"


class KnownKeys:
    """The sealing keys of a campaign's parties, as the list of enrolled parties has them.

    Args:
        folder: of the campaign.
        spec: of the campaign.
        identities: of the server.
        say: one line for the server's screen.
    """

    def __init__(
        self, folder: Path, spec: CampaignSpec, identities: Identities, say: Callable[[str], None]
    ) -> None:
        self._file = folder / _FILE
        self._spec = spec
        self._identities = identities
        self._say = say

    @cached_property
    def roster(self) -> BundleRoster | None:
        """The roster for bundles, the same for a whole campaign; None if it is not known ahead.

        Raises:
            StateError: if the list of parties cannot be read.
            DiskError: if it cannot be stored.
        """
        try:
            return BundleRoster.from_bytes(self._file.read_bytes())
        except FileNotFoundError:
            pass
        names, enrolled = self._spec.parties, self._identities.enrolled()
        if not self._spec.sums.masked or not isinstance(names, tuple):
            return None
        found = []
        try:
            for name in sorted(names):
                if name not in enrolled:
                    return None
                each = enrolled[name]
                member = Member(name, each.identity)
                found.append(Sealed(member, each.sealing.key, each.sealing.signature))
            sums = self._spec.sums
            made = BundleRoster(tuple(found), sums.min_parties, sums.colluders)
        except ProtocolError as error:
            self._say(f"keys ahead are asked for one trip later: {error}")
            return None
        write_file(self._file, made.to_bytes())
        return made

    def learn(self, roster: BundleRoster) -> None:
        """Record the keys with which parties have described themselves, for later campaigns."""
        enrolled = self._identities.enrolled()
        for each in roster.parties:
            known = enrolled.get(each.member.name)
            sealing = SealingKey(each.key, each.signature)
            if known is None or known.sealing == sealing:
                continue
            try:
                self._identities.registry.seal(each.member.name, each.member.identity, sealing)
            except PateError as error:  # a later campaign takes a trip more
                self._say(f"the sealing key of {each.member.name} is not recorded: {error}")
