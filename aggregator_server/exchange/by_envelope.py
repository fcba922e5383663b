"""What a run of the server needs for parties by envelope: who they are, their files and their keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from aggregator_server.exchange.folders import Folders, derived
from aggregator_server.exchange.store import FILE, Store
from pate.errors import PateError, ProtocolError, UsageError
from pate.formats.enrolment import SealingKey, check_name
from pate.masking.ahead.bundle import BundleRoster, Sealed
from pate.masking.context import Member
from pate.runtime.home import kept_secret, sync, write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aggregator_server.exchange.attendance import Keyring
    from aggregator_server.exchange.presence import Out
    from aggregator_server.identities import Identities
    from pate.campaign.spec import CampaignSpec

#: File with the secret of a campaign's envelopes, in its folder.
_KEY_FILE: Final = "envelopes.key"
#: File with the roster that the first envelopes of a campaign name, in its folder.
_ROSTER_FILE: Final = "envelopes.roster"


@dataclass(frozen=True)
class ByEnvelope:
    """Who takes part by envelope, and where."""

    folder: Path  # for the folders ``out`` and ``in``
    parties: tuple[str, ...] | None = None  # their names; None: all
    days: float | None = None  # how long an envelope may be answered; None: no end

    def names(self, spec: CampaignSpec) -> tuple[str, ...]:
        """Return the names of the parties by envelope in a campaign."""
        if spec.vote_proofs:
            raise UsageError(
                "proofs of votes need a connection: leave out --vote-proofs, or --envelopes"
            )
        named = spec.parties if isinstance(spec.parties, tuple) else None
        found = named if self.parties is None else self.parties
        if found is None:
            raise UsageError(
                "by envelope each party must be named: give --parties a,b,c, or --by-envelope a,b "
                "for those that are not online"
            )
        try:
            for name in found:  # it is in the names of files
                check_name(name)
        except PateError as error:
            raise UsageError(f"by envelope: {error}") from error
        if named is not None and (strange := sorted(set(found) - set(named))):
            raise UsageError(f"--by-envelope names {', '.join(strange)}, not in --parties")
        return found

    def all_of(self, spec: CampaignSpec) -> bool:
        """Return whether no party is online."""
        wanted = spec.parties if isinstance(spec.parties, int) else len(spec.parties)
        return len(self.names(spec)) >= wanted

    def carrier(
        self,
        folder: Path,
        spec: CampaignSpec,
        keys: Keyring,
        say: Callable[[str], None],
        show: Callable[[Sequence[Out]], None] = lambda _: None,
    ) -> Folders:
        """Return the carrier to these parties; see :class:`Folders`. ``folder`` is the campaign's."""
        secret = kept_secret(folder / _KEY_FILE)
        nonce_key = derived(secret, b"nonce")
        store = Store(folder / FILE, self.names(spec), nonce_key=nonce_key, days=self.days)
        return Folders(store, self.folder, spec.id, keys, secret, say, show)


@dataclass(frozen=True)
class KnownKeys:
    """The sealing keys of a campaign's parties, before any of them has described itself.

    They come with an enrolment's answer, and with the description in an earlier campaign. With them the
    first envelope asks for keys ahead together with the description: a trip less. Each key is signed by
    its party's identity, so a server gains nothing by another one; a party that has made a new key since
    gives no bundles for the old one, and is asked again once it has described itself.
    """

    folder: Path  # of the campaign
    spec: CampaignSpec
    identities: Identities
    say: Callable[[str], None]

    @property
    def _file(self) -> Path:
        return self.folder / _ROSTER_FILE

    @cached_property
    def roster(self) -> BundleRoster | None:
        """The roster for bundles, the same for a whole campaign; None if it is not known ahead."""
        try:
            return BundleRoster.from_bytes(self._file.read_bytes())
        except FileNotFoundError:
            pass
        names, sums, enrolled = self.spec.parties, self.spec.sums, self.identities.enrolled()
        if not sums.masked or not isinstance(names, tuple) or not enrolled.keys() >= set(names):
            return None
        found = [enrolled[name] for name in sorted(names)]
        try:
            members = (
                Sealed(Member(each.name, each.identity), each.sealing.key, each.sealing.signature)
                for each in found
            )
            made = BundleRoster(tuple(members), sums.min_parties, sums.colluders)
        except ProtocolError as error:
            self.say(f"keys ahead are asked for one trip later: {error}")
            return None
        write_file(self._file, made.to_bytes())
        return made

    def learn(self, roster: BundleRoster) -> None:
        """Record the keys with which parties have described themselves, for later campaigns."""
        enrolled = self.identities.enrolled()
        for each in roster.parties:
            known = enrolled.get(each.member.name)
            sealing = SealingKey(each.key, each.signature)
            if known is None or known.sealing == sealing:
                continue
            try:
                self.identities.registry.seal(each.member.name, each.member.identity, sealing)
            except PateError as error:  # a later campaign takes a trip more
                self.say(f"the sealing key of {each.member.name} is not recorded: {error}")


def check_goes_by_envelope(folder: Path, given: ByEnvelope | None) -> None:
    """Check that a campaign that began with envelopes goes on with them: that their folder is named."""
    if given is None and (folder / FILE).exists():
        raise UsageError(
            "parties of this campaign take part by envelope: name the folder of its files with "
            "--envelopes DIR (and --by-envelope, if others are online)"
        )


def last_envelopes(folder: Path) -> list[Out]:
    """Return the last envelope for each party of a campaign, to be shown; none if they cannot be read."""
    if not (folder / FILE).exists():
        return []
    try:
        return Store(folder / FILE, read_only=True).newest()
    except PateError:
        return []


def forget_key(folder: Path) -> None:
    """Delete the key that opens answers, once the end is outside: copies of them cannot be read."""
    (folder / _KEY_FILE).unlink(missing_ok=True)
    sync(folder)
